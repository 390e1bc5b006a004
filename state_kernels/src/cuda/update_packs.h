#pragma once

#include <cstdint>
#include <cstring>

#include <strata/cpuopt/math/element.h>
#include <strata/cpuopt/update_block.h>
#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/packs.h>

/// The work of one thread of the kernels that update states: eight consecutive elements, so that tensors of
/// 16 bits are read and written by packs of 16 bytes, those of f32 by two, and int8 moments by eight bytes. A
/// format is looked up once for the eight. A warp has the 256 elements that share the scale of int8 moments.
/// Compiled for the host, too, where tests run it thread by thread.
namespace strata::state_kernels::detail {

using cpuopt::MasterLayout;
using cpuopt::Moment;
using cpuopt::MomentKind;
using cpuopt::RoundingNoise;
using cpuopt::UpdateBlock;
using cpuopt::UpdateScalars;

inline constexpr int kThreadElems = 8;
static_assert(kThreadElems * 32 == kMomentBlock);

template <class T>
struct Eight {
  T value[kThreadElems];
};
template <class F>
STRATA_DEVICE_INLINE void for_each_of_eight(const F& f) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int i = 0; i < kThreadElems; ++i) f(i);
}

/// The elements of a thread of a range: eight, fewer at its end, none behind it.
struct ThreadRange {
  std::int64_t first;
  int count;
  bool is_pack;  ///< all eight, at addresses of which packs can be loaded
};
STRATA_HD ThreadRange thread_range(std::int64_t thread, std::int64_t n, bool are_aligned) {
  const std::int64_t first = thread * kThreadElems, left = n - first;
  const int count = left < kThreadElems ? (left > 0 ? static_cast<int>(left) : 0) : kThreadElems;
  return {first, count, are_aligned && count == kThreadElems};
}

template <class T>
STRATA_DEVICE_INLINE void load_eight(const void* from, const ThreadRange& range, Eight<T>& into) {
  const T* const at = static_cast<const T*>(from) + range.first;
  if (!range.is_pack) {
    for_each_of_eight([&](int i) { into.value[i] = i < range.count ? at[i] : T{}; });
    return;
  }
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 1) {
    const uint2 bytes = *reinterpret_cast<const uint2*>(at);
    std::memcpy(&into, &bytes, sizeof(into));
    return;
  }
#endif
  if constexpr (sizeof(T) == 1) {
    std::memcpy(&into, at, sizeof(into));
  } else {
    constexpr int kSize = dispatch::Pack<T>::kSize;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int begin = 0; begin < kThreadElems; begin += kSize) {
      const dispatch::Pack<T> pack = dispatch::load_pack(at + begin);
      for (int i = 0; i < kSize; ++i) into.value[begin + i] = pack.value[i];
    }
  }
}
template <class T>
STRATA_DEVICE_INLINE void store_eight(void* into, const ThreadRange& range, const Eight<T>& from) {
  T* const at = static_cast<T*>(into) + range.first;
  if (!range.is_pack) {
    for_each_of_eight([&](int i) {
      if (i < range.count) at[i] = from.value[i];
    });
    return;
  }
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 1) {
    uint2 bytes;
    std::memcpy(&bytes, &from, sizeof(from));
    *reinterpret_cast<uint2*>(at) = bytes;
    return;
  }
#endif
  if constexpr (sizeof(T) == 1) {
    std::memcpy(at, &from, sizeof(from));
  } else {
    constexpr int kSize = dispatch::Pack<T>::kSize;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int begin = 0; begin < kThreadElems; begin += kSize) {
      dispatch::Pack<T> pack;
      for (int i = 0; i < kSize; ++i) pack.value[i] = from.value[begin + i];
      dispatch::store_pack(at + begin, pack);
    }
  }
}
template <class T>
STRATA_DEVICE_INLINE void load_widened(const void* from, const ThreadRange& range, Eight<float>& into) {
  Eight<T> stored;
  load_eight(from, range, stored);
  for_each_of_eight([&](int i) { into.value[i] = to_f32(stored.value[i]); });
}

STRATA_DEVICE_INLINE void load_gradient(const UpdateBlock& b, const ThreadRange& range, Eight<float>& g) {
  if (b.grad == DType::bf16)
    load_widened<bf16>(b.g, range, g);
  else if (b.grad == DType::f16)
    load_widened<f16>(b.g, range, g);
  else
    load_eight(b.g, range, g);
}

template <MasterLayout kLayout>
STRATA_DEVICE_INLINE void load_masters(const UpdateBlock& b, const ThreadRange& range, Eight<float>& p) {
  if constexpr (kLayout == MasterLayout::bf16_split) {
    Eight<bf16> high;
    Eight<std::uint16_t> low;
    load_eight(b.param, range, high);
    load_eight(b.master, range, low);
    for_each_of_eight([&](int i) { p.value[i] = cpuopt::join_master(high.value[i], low.value[i]); });
  } else {
    load_eight(kLayout == MasterLayout::f32 ? b.param : b.master, range, p);
  }
}
template <MasterLayout kLayout>
STRATA_DEVICE_INLINE void store_masters(const UpdateBlock& b, const ThreadRange& range,
                                        const Eight<float>& p) {
  if constexpr (kLayout == MasterLayout::f32) {
    store_eight(b.param, range, p);
  } else if constexpr (kLayout == MasterLayout::bf16_split) {
    Eight<bf16> high;
    Eight<std::uint16_t> low;
    for_each_of_eight([&](int i) {
      const cpuopt::SplitMaster split = cpuopt::split_master(p.value[i]);
      high.value[i] = split.high;
      low.value[i] = split.low;
    });
    store_eight(b.param, range, high);
    store_eight(b.master, range, low);
  } else {
    using T = std::conditional_t<kLayout == MasterLayout::bf16_shadow, bf16, f16>;
    Eight<T> shadow;
    for_each_of_eight([&](int i) { shadow.value[i] = from_f32<T>(p.value[i]); });
    store_eight(b.master, range, p);
    store_eight(b.param, range, shadow);
  }
}

template <MomentKind kKind>
STRATA_DEVICE_INLINE void load_moments(StateFormat format, const Moment& moment, const ThreadRange& range,
                                       Eight<float>& x) {
  if (format == StateFormat::bf16) {
    load_widened<bf16>(moment.values, range, x);
  } else if (format == StateFormat::int8) {
    Eight<std::uint8_t> bytes;
    load_eight(moment.values, range, bytes);
    const float scale = range.count > 0 ? moment.scales[range.first / kMomentBlock] : 0.0f;
    for_each_of_eight(
        [&](int i) { x.value[i] = cpuopt::dequantize_moment_byte<kKind>(bytes.value[i], scale); });
  } else {
    load_eight(moment.values, range, x);
  }
}
/// The largest magnitude of a thread's moments, as bits.
STRATA_DEVICE_INLINE std::uint32_t max_bits(const ThreadRange& range, const Eight<float>& x) {
  std::uint32_t most = 0;
  for_each_of_eight([&](int i) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x.value[i]) & 0x7FFFFFFFu;
    if (i < range.count && bits > most) most = bits;
  });
  return most;
}
/// `block_bits`: the maximum of max_bits() over the threads of a warp, which only int8 needs.
template <MomentKind kKind>
STRATA_DEVICE_INLINE void store_moments(StateFormat format, const Moment& moment, const ThreadRange& range,
                                        const Eight<float>& x, const RoundingNoise& noise,
                                        std::uint32_t index, std::uint32_t block_bits) {
  const auto random = [&](int i) {
    return cpuopt::moment_noise<kKind>(noise, index + static_cast<std::uint32_t>(i));
  };
  if (format == StateFormat::int8) {
    const float scale = cpuopt::moment_scale(block_bits), inverse = cpuopt::inverse_scale(scale);
    Eight<std::uint8_t> bytes;
    for_each_of_eight([&](int i) {
      bytes.value[i] = cpuopt::quantize_moment_stochastic<kKind>(x.value[i], scale, inverse, random(i));
    });
    store_eight(moment.values, range, bytes);
    if (range.count > 0 && range.first % kMomentBlock == 0) moment.scales[range.first / kMomentBlock] = scale;
  } else if (format == StateFormat::bf16) {
    Eight<bf16> rounded;
    for_each_of_eight([&](int i) { rounded.value[i] = cpuopt::round_to_bf16(x.value[i], random(i)); });
    store_eight(moment.values, range, rounded);
  } else {
    store_eight(moment.values, range, x);
  }
}

/// The step of a thread's elements. The threads of a warp call step(), then find the maxima of their bits,
/// then call store_moments(): a block's old scale has been read by all of them when the new one is written.
template <class Rule, MasterLayout kLayout>
struct UpdateThread {
  static constexpr bool kFirst = Rule::kFacts.moments.first, kSecond = Rule::kFacts.moments.second;
  Eight<float> m = {}, v = {};

  STRATA_DEVICE_INLINE void step(const UpdateScalars<float>& s, const UpdateBlock& b,
                                 const ThreadRange& range) {
    Eight<float> p, g;
    load_masters<kLayout>(b, range, p);
    load_gradient(b, range, g);
    if constexpr (kFirst) load_moments<MomentKind::first>(b.states, b.m, range, m);
    if constexpr (kSecond) load_moments<MomentKind::second>(b.states, b.v, range, v);
    for_each_of_eight([&](int i) {
      p.value[i] = Rule::update(p.value[i], g.value[i] * s.grad_factor, m.value[i], v.value[i], s);
    });
    if constexpr (!Rule::kFacts.tensor_norms) detail::store_masters<kLayout>(b, range, p);
  }
  STRATA_DEVICE_INLINE void store_moments(const UpdateBlock& b, const ThreadRange& range,
                                          const RoundingNoise& noise, std::uint32_t m_bits,
                                          std::uint32_t v_bits) const {
    const auto index = b.index + static_cast<std::uint32_t>(range.first);
    if constexpr (kFirst)
      detail::store_moments<MomentKind::first>(b.states, b.m, range, m, noise, index, m_bits);
    if constexpr (kSecond)
      detail::store_moments<MomentKind::second>(b.states, b.v, range, v, noise, index, v_bits);
  }
};

/// lamb's second pass of a thread's elements.
template <MasterLayout kLayout>
STRATA_DEVICE_INLINE void apply_lamb(const UpdateScalars<float>& s, const UpdateBlock& b,
                                     const ThreadRange& range, float trust) {
  Eight<float> p, m, v;
  load_masters<kLayout>(b, range, p);
  load_moments<MomentKind::first>(b.states, b.m, range, m);
  load_moments<MomentKind::second>(b.states, b.v, range, v);
  for_each_of_eight([&](int i) {
    const float along = cpuopt::lamb_direction(p.value[i], m.value[i], v.value[i], s);
    p.value[i] = p.value[i] - s.step_size * trust * along;
  });
  store_masters<kLayout>(b, range, p);
}

/// The moving average of a thread's masters.
template <MasterLayout kLayout>
STRATA_DEVICE_INLINE void update_ema(float weight, const UpdateBlock& b, const ThreadRange& range) {
  Eight<float> p, average;
  load_masters<kLayout>(b, range, p);
  if (weight == 1) {
    store_eight(b.ema, range, p);
    return;
  }
  load_eight(b.ema, range, average);
  for_each_of_eight(
      [&](int i) { average.value[i] = cpuopt::moved_ema(average.value[i], p.value[i], weight); });
  store_eight(b.ema, range, average);
}

/// Whether all addresses of a block are multiples of a pack's bytes.
inline bool are_pack_aligned(const UpdateBlock& b) {
  return dispatch::are_pack_aligned(static_cast<const char*>(b.param), static_cast<const char*>(b.master),
                                    static_cast<const char*>(b.m.values),
                                    static_cast<const char*>(b.v.values), static_cast<const char*>(b.g),
                                    reinterpret_cast<const char*>(b.ema));
}

// --- lamb's norms

template <MomentKind kKind, StateFormat kFormat>
STRATA_DEVICE_INLINE float load_moment(const Moment& moment, std::int64_t i) {
  if constexpr (kFormat == StateFormat::bf16)
    return to_f32(static_cast<const bf16*>(moment.values)[i]);
  else if constexpr (kFormat == StateFormat::int8)
    return cpuopt::dequantize_moment_byte<kKind>(static_cast<const std::uint8_t*>(moment.values)[i],
                                                 moment.scales[i / kMomentBlock]);
  else
    return static_cast<const float*>(moment.values)[i];
}
struct LambSquareSums {
  double masters, directions;
};
/// The square sums of `n` elements from `first` on, by the lanes of one half warp.
template <MasterLayout kLayout, StateFormat kFormat, class Lanes>
STRATA_DEVICE_INLINE LambSquareSums lamb_square_sums(const Lanes& lanes, const UpdateScalars<float>& s,
                                                     const UpdateBlock& b, std::int64_t first,
                                                     std::int64_t n) {
  const auto square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
  const auto master = [&](std::int64_t i) {
    return cpuopt::load_master_at<kLayout>(b.param, b.master, first + i);
  };
  const double masters = lanes.template sum<double>(n, [&](std::int64_t i) { return square(master(i)); });
  const double directions = lanes.template sum<double>(n, [&](std::int64_t i) {
    return square(cpuopt::lamb_direction(master(i), load_moment<MomentKind::first, kFormat>(b.m, first + i),
                                         load_moment<MomentKind::second, kFormat>(b.v, first + i), s));
  });
  return {masters, directions};
}

}  // namespace strata::state_kernels::detail
