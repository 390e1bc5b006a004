#pragma once

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>

/// The gates of the delta rule and of the state scan, on the host and on CUDA in the same order.
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

/// A row's step, and its derivative, which is 0 where a limit has replaced the step.
struct ScanStep {
  float value, slope;
};
STRATA_HD ScanStep scan_step(float dt, float dt_bias, float low, float high) {
  const float x = dt + dt_bias, step = softplus_of(x);
  if (step < low) return {low, 0.0f};
  if (step > high) return {high, 0.0f};
  return {step, simd::sigmoid_of(x).value};
}
STRATA_HD float scan_decay_gate(float a_log, float step) { return 0.0f - simd::exp_of(a_log) * step; }
/// The gradient of dt, and of dt_bias; that of a_log is dg g.
STRATA_HD float scan_gates_backward_of(const ScanStep& step, float a_log, float dstep, float dg) {
  return (dstep - dg * simd::exp_of(a_log)) * step.slope;
}

}  // namespace strata::kernels::detail
