#pragma once

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

/// The gates of the delta rule, on the host and on CUDA in the same order.
namespace strata::kernels::detail {

/// log(1 + e^x), rounded once from f64: x itself where it exceeds 20, and a series where e^x is so small that
/// 1 + e^x would lose it.
STRATA_HD float softplus_of(float x) {
  if (x > 20.0f) return x;
  const double e = static_cast<double>(simd::exp_of(x));
  if (e < 1e-3) return static_cast<float>(e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - e * 0.25))));
  return static_cast<float>(simd::log_of(1.0 + e));
}
STRATA_HD float delta_decay_gate(float a, float a_log, float dt_bias) {
  return 0.0f - simd::exp_of(a_log) * softplus_of(a + dt_bias);
}
/// The gradient of a, and of dt_bias; that of a_log is dg g.
STRATA_HD float delta_decay_gate_backward(float a, float a_log, float dt_bias, float dg) {
  return 0.0f - dg * simd::exp_of(a_log) * simd::sigmoid_of(a + dt_bias).value;
}
STRATA_HD float delta_beta_backward(float b, float dbeta) {
  const auto s = simd::sigmoid_of(b);
  return dbeta * (s.value * s.complement);
}

}  // namespace strata::kernels::detail
