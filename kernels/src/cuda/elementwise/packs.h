#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/packs.h>

#include "cuda/row_math.h"

/// The work of one thread of the elementwise kernels: a pack of consecutive elements, or what is left of a
/// tensor, one by one. Compiled for the host, too, where tests run it thread by thread.
namespace strata::kernels::detail {

using dispatch::are_pack_aligned;
using dispatch::load_pack;
using dispatch::Pack;
using dispatch::store_pack;

/// y[i] = f(x[i]), or f(x[i], more[i]), for the elements of thread `thread`.
template <class T, class F, class... More>
STRATA_DEVICE_INLINE void map_pack(std::int64_t thread, std::int64_t n, const F& f, T* y, const T* x,
                                   const More*... more) {
  constexpr int kSize = Pack<T>::kSize;
  const std::int64_t first = thread * kSize;
  if (first + kSize <= n) {
    const Pack<T> of_x = load_pack(x + first);
    const auto apply = [&](const auto&... packs) {
      Pack<T> out;
      for (int i = 0; i < kSize; ++i) out.value[i] = f(of_x.value[i], packs.value[i]...);
      store_pack(y + first, out);
    };
    apply(load_pack(more + first)...);
  } else {
    for (std::int64_t i = first; i < n; ++i) y[i] = f(x[i], more[i]...);
  }
}

/// Elements [first, first + kN) of a row of the gated activation, where kN is Pack<T>::kSize or 1. The gate
/// and up values of an element are f apart.
template <int kN, class T>
STRATA_DEVICE_INLINE void gate_part(const T* gate_up, T* y, bool gelu, int f, int first) {
  if constexpr (kN == 1) {
    const T gate = gate_up[first], up = gate_up[first + f];
    y[first] = gelu ? stored_geglu(gate, up) : stored_swiglu(gate, up);
  } else {
    const Pack<T> gate = load_pack(gate_up + first), up = load_pack(gate_up + first + f);
    Pack<T> out;
    if (gelu)
      for (int i = 0; i < kN; ++i) out.value[i] = stored_geglu(gate.value[i], up.value[i]);
    else
      for (int i = 0; i < kN; ++i) out.value[i] = stored_swiglu(gate.value[i], up.value[i]);
    store_pack(y + first, out);
  }
}
template <class T>
STRATA_DEVICE_INLINE GateUp<T> gate_gradient(bool gelu, T gate, T up, T dy) {
  return gelu ? stored_geglu_backward(gate, up, dy) : stored_swiglu_backward(gate, up, dy);
}
template <int kN, class T>
STRATA_DEVICE_INLINE void gate_part_backward(const T* gate_up, const T* dy, T* dgate_up, bool gelu, int f,
                                             int first) {
  if constexpr (kN == 1) {
    const auto d = gate_gradient(gelu, gate_up[first], gate_up[first + f], dy[first]);
    dgate_up[first] = d.gate;
    dgate_up[first + f] = d.up;
  } else {
    const Pack<T> gate = load_pack(gate_up + first), up = load_pack(gate_up + first + f),
                  of_dy = load_pack(dy + first);
    Pack<T> dgate, dup;
    for (int i = 0; i < kN; ++i) {
      const auto d = gate_gradient(gelu, gate.value[i], up.value[i], of_dy.value[i]);
      dgate.value[i] = d.gate;
      dup.value[i] = d.up;
    }
    store_pack(dgate_up + first, dgate);
    store_pack(dgate_up + first + f, dup);
  }
}

/// What all threads of a rotation share: the first `heads` heads of a row are rotated, the rest of it is
/// copied, unless it is rotated in place.
struct Rotation {
  int width, heads, head_dim, pairs;
  bool interleaved, inverse, copies;

  /// Threads that have the pairs of a head, kN pairs each, or kN / 2 if they are interleaved.
  template <int kN>
  STRATA_HD int head_threads() const {
    return kN > 1 && interleaved ? 2 * pairs / kN : pairs / kN;
  }
  /// Threads that copy kN elements each: those of a head that are not rotated, and those behind the heads.
  template <int kN>
  STRATA_HD int passed_threads() const {
    return (head_dim - 2 * pairs) / kN;
  }
  template <int kN>
  STRATA_HD int rest_threads() const {
    return (width - heads * head_dim) / kN;
  }
  template <int kN>
  STRATA_HD int row_threads() const {
    return heads * (head_threads<kN>() + (copies ? passed_threads<kN>() : 0)) +
           (copies ? rest_threads<kN>() : 0);
  }
  /// Whether kN elements at once never leave a part of a row.
  template <int kN>
  bool divides() const {
    return (interleaved ? 2 * pairs : pairs) % kN == 0 && (head_dim - 2 * pairs) % kN == 0 &&
           head_dim % kN == 0 && width % kN == 0;
  }
};

template <int kN, class T>
STRATA_DEVICE_INLINE void copy_part(const T* from, T* into) {
  if constexpr (kN == 1)
    *into = *from;
  else
    store_pack(into, load_pack(from));
}
/// The part of thread `thread` of a row at `from`. The table has the row's cosines, then its sines.
template <int kN, class T>
STRATA_DEVICE_INLINE void rotate_part(const T* from, const float* table, T* into, const Rotation& r,
                                      int thread) {
  const int of_head = r.head_threads<kN>(), rotated = r.heads * of_head;
  if (thread >= rotated) {  // only where something is copied
    thread -= rotated;
    const int passed = r.passed_threads<kN>(), behind = r.heads * passed;
    const int at = thread < behind ? thread / passed * r.head_dim + 2 * r.pairs + thread % passed * kN
                                   : r.heads * r.head_dim + (thread - behind) * kN;
    copy_part<kN>(from + at, into + at);
    return;
  }
  const int head = thread / of_head * r.head_dim, part = thread % of_head;
  const auto sine_of = [&](int pair) { return r.inverse ? -table[r.pairs + pair] : table[r.pairs + pair]; };
  if constexpr (kN == 1) {
    const int first = head + (r.interleaved ? 2 * part : part),
              second = first + (r.interleaved ? 1 : r.pairs);
    const auto pair = rotate(from[first], from[second], table[part], sine_of(part));
    into[first] = pair.first;
    into[second] = pair.second;
  } else if (r.interleaved) {
    const int at = head + part * kN;
    Pack<T> both = load_pack(from + at);
    for (int i = 0; i < kN / 2; ++i) {
      const int number = part * (kN / 2) + i;
      const auto pair = rotate(both.value[2 * i], both.value[2 * i + 1], table[number], sine_of(number));
      both.value[2 * i] = pair.first;
      both.value[2 * i + 1] = pair.second;
    }
    store_pack(into + at, both);
  } else {
    const int at = head + part * kN;
    Pack<T> first = load_pack(from + at), second = load_pack(from + at + r.pairs);
    for (int i = 0; i < kN; ++i) {
      const int number = part * kN + i;
      const auto pair = rotate(first.value[i], second.value[i], table[number], sine_of(number));
      first.value[i] = pair.first;
      second.value[i] = pair.second;
    }
    store_pack(into + at, first);
    store_pack(into + at + r.pairs, second);
  }
}

}  // namespace strata::kernels::detail
