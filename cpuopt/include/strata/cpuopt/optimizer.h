#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <strata/cpuopt/math/rounding_noise.h>
#include <strata/cpuopt/math/rules.h>
#include <strata/runtime/status.h>

namespace strata::cpuopt {

std::span<const Optimizer> all_optimizers() noexcept;
std::string_view to_string(Optimizer optimizer) noexcept;
/// Parses an optimizer's name. Errors: `invalid`, with a list of the known names.
Result<Optimizer> optimizer_named(std::string_view name);

/// Hyper-parameters of one step: a plain value that is copied into queued work. OptimizerFacts says which an
/// optimizer reads.
struct OptimizerParams {
  Optimizer optimizer = Optimizer::adamw;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;          ///< added outside the square root
  double weight_decay = 0.0;  ///< decoupled (times lr), part of the direction, or L2, as the rule has it
  double momentum = 0.0;      ///< 0: there is no moment
  bool nesterov = false;      ///< only with momentum
  std::int64_t step = 1;      ///< counts from 1
  double ema_decay = 0.0;     ///< the decay of the moving average of the parameters; 0: there is none
  double grad_factor = 1.0;   ///< multiplies every gradient (loss unscaling and clipping in one); used as f32
};

/// Errors: `invalid` if step < 1; if a beta, the momentum or ema_decay is outside [0, 1), eps is not above 0
/// (all as f32) or nesterov is set without momentum, for the parameters that the optimizer reads; or if
/// another number is not finite.
Status validate(const OptimizerParams& params);

/// `momentum`: whether sgd has momentum.
MomentSet moments_of(Optimizer optimizer, bool momentum) noexcept;
MomentSet moments_of(const OptimizerParams& params) noexcept;

/// The step's constants, computed in f64 and each rounded once to f32. Powers are squarings in a fixed order
/// and not pow().
UpdateScalars<float> update_scalars(const OptimizerParams& params) noexcept;

/// The rounding noise of tensor `tensor` in step `step`, for all elements whose index has the same high bits
/// (from bit 32 up) as `index`.
RoundingNoise rounding_noise(std::uint64_t seed, std::uint64_t tensor, std::int64_t step,
                             std::int64_t index) noexcept;

}  // namespace strata::cpuopt
