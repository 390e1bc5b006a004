#pragma once

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/kernels/values/expert_rules.h>

/// The gate of one element, or of the lanes of a SIMD value: the same operations in the same order on every
/// instruction set and on CUDA.
namespace strata::kernels::detail {

using simd::select_greater;

// Where gate and up are limited, a NaN passes, and the derivative is that of the limit, 0.
template <class V>
STRATA_HD V at_most(V x, V limit) {
  return select_greater(x, limit, limit, x);
}
template <class V>
STRATA_HD V at_least(V x, V limit) {
  return select_greater(limit, x, limit, x);
}

struct SiluGate {
  template <class V>
  STRATA_HD V value(V g, V u) const {
    return g * simd::sigmoid_of(g).value * u;
  }
  /// The value, and its derivatives times d.
  template <class V>
  STRATA_HD V backward(V g, V u, V d, V& dg, V& du) const {
    const auto s = simd::sigmoid_of(g);
    const V act = g * s.value;
    dg = d * u * (s.value + g * (s.value * s.complement));
    du = d * act;
    return act * u;
  }
};

struct GeluGate {
  template <class V>
  STRATA_HD V value(V g, V u) const {
    return simd::gelu_of(g) * u;
  }
  template <class V>
  STRATA_HD V backward(V g, V u, V d, V& dg, V& du) const {
    const V act = simd::gelu_of(g);
    dg = d * u * simd::gelu_derivative_of(g);
    du = d * act;
    return act * u;
  }
};

struct ClampedGate {
  float limit, alpha;
  template <class V>
  STRATA_HD V value(V g, V u) const {
    const V top(limit), bottom(-limit), one(1.0f), by(alpha);
    const V x = at_most(g, top), y = at_least(at_most(u, top), bottom);
    return x * simd::sigmoid_of(x * by).value * (y + one);
  }
  template <class V>
  STRATA_HD V backward(V g, V u, V d, V& dg, V& du) const {
    const V top(limit), bottom(-limit), one(1.0f), by(alpha), zero(0.0f);
    const V x = at_most(g, top), y = at_least(at_most(u, top), bottom);
    const auto s = simd::sigmoid_of(x * by);
    const V act = x * s.value, up = y + one;
    dg = select_greater(g, top, zero, d * up * (s.value + x * by * (s.value * s.complement)));
    du = select_greater(u, top, zero, select_greater(bottom, u, zero, d * act));
    return act * up;
  }
};

/// Both of its operands are the gate, and both derivatives are that of the gate.
struct Relu2Gate {
  template <class V>
  STRATA_HD V value(V g, V) const {
    const V on = at_least(g, V(0.0f));
    return on * on;
  }
  template <class V>
  STRATA_HD V backward(V g, V, V d, V& dg, V& du) const {
    const V on = at_least(g, V(0.0f));
    dg = du = d * (on + on);
    return on * on;
  }
};

/// Calls body(gate) with the type of the gate, so that a loop over elements decides nothing.
template <class Body>
STRATA_HD auto with_gate(const ExpertGate& gate, const Body& body) {
  if (gate.kind == ExpertGate::Kind::gelu) return body(GeluGate{});
  if (gate.kind == ExpertGate::Kind::clamped) return body(ClampedGate{gate.limit, gate.alpha});
  if (gate.kind == ExpertGate::Kind::relu2) return body(Relu2Gate{});
  return body(SiluGate{});
}

}  // namespace strata::kernels::detail
