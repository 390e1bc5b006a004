#pragma once

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

/// The gated RMS norm of one element, or of the lanes of a SIMD value: the same operations in the same order
/// on every instruction set and on CUDA. `rstd` is 1 / sqrt(the mean of the squares + eps).
namespace strata::kernels::detail {

STRATA_HD float gated_norm_rstd(float squares, float eps, std::int64_t n) {
  return 1.0f / simd::sqrt_of(squares / static_cast<float>(n) + eps);
}
/// x sigmoid(x), and its derivative.
template <class V>
STRATA_HD V gated_norm_silu(V z) {
  return z * simd::sigmoid_of(z).value;
}
template <class V>
STRATA_HD V gated_norm_silu_slope(V z) {
  const auto s = simd::sigmoid_of(z);
  return s.value + z * (s.value * s.complement);
}

/// What is normalized is x; the result times the weight is multiplied by the gate.
struct GateAfterNorm {
  template <class V>
  static STRATA_HD V input(V x, V) {
    return x;
  }
  template <class V>
  static STRATA_HD V value(V x, V z, V weight, V rstd) {
    return x * rstd * weight * gated_norm_silu(z);
  }
  /// The gradient of the normalized x, of which `mean` below is the mean product with the normalized x.
  template <class V>
  static STRATA_HD V d_normal(V z, V weight, V dy) {
    return dy * gated_norm_silu(z) * weight;
  }
  template <class V>
  static STRATA_HD V d_x(V x, V z, V weight, V rstd, V mean, V dy) {
    return rstd * (d_normal(z, weight, dy) - x * rstd * mean);
  }
  template <class V>
  static STRATA_HD V d_gate(V x, V z, V weight, V rstd, V, V dy) {
    return dy * (x * rstd * weight) * gated_norm_silu_slope(z);
  }
  template <class V>
  static STRATA_HD V d_weight(V x, V z, V rstd, V dy) {
    return dy * gated_norm_silu(z) * (x * rstd);
  }
};

/// What is normalized is x times the gate.
struct GateBeforeNorm {
  template <class V>
  static STRATA_HD V input(V x, V z) {
    return x * gated_norm_silu(z);
  }
  template <class V>
  static STRATA_HD V value(V x, V z, V weight, V rstd) {
    return input(x, z) * rstd * weight;
  }
  template <class V>
  static STRATA_HD V d_normal(V, V weight, V dy) {
    return dy * weight;
  }
  template <class V>
  static STRATA_HD V d_input(V x, V z, V weight, V rstd, V mean, V dy) {
    return rstd * (dy * weight - input(x, z) * rstd * mean);
  }
  template <class V>
  static STRATA_HD V d_x(V x, V z, V weight, V rstd, V mean, V dy) {
    return d_input(x, z, weight, rstd, mean, dy) * gated_norm_silu(z);
  }
  template <class V>
  static STRATA_HD V d_gate(V x, V z, V weight, V rstd, V mean, V dy) {
    return d_input(x, z, weight, rstd, mean, dy) * x * gated_norm_silu_slope(z);
  }
  template <class V>
  static STRATA_HD V d_weight(V x, V z, V rstd, V dy) {
    return dy * (input(x, z) * rstd);
  }
};

}  // namespace strata::kernels::detail
