#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <strata/cpuopt/math/rounding_noise.h>
#include <strata/cpuopt/math/rules.h>
#include <strata/runtime/status.h>

namespace strata::cpuopt {

/// See math/rules.h for what each computes and where it is from.
enum class Optimizer : std::uint8_t { adamw, adam, lion, lamb, adagrad, sgd };
std::span<const Optimizer> all_optimizers() noexcept;
std::string_view to_string(Optimizer optimizer) noexcept;
/// Errors: `invalid` naming the optimizers there are.
Result<Optimizer> optimizer_named(std::string_view name);

/// Hyper-parameters of one step. A plain value: rides in queued work.
struct OptimizerParams {
  Optimizer optimizer = Optimizer::adamw;
  double lr = 1e-3;
  double beta1 = 0.9;   ///< adamw, adam, lamb, lion
  double beta2 = 0.95;  ///< the same
  double eps = 1e-8;    ///< adamw, adam, lamb, adagrad: outside the root
  double weight_decay =
      0.0;                ///< adamw, lion: decoupled, times lr; lamb: part of the direction; the others: L2
  double momentum = 0.0;  ///< sgd; 0: no moment is kept
  bool nesterov = false;  ///< sgd with momentum
  std::int64_t step = 1;  ///< counts from 1
  double grad_factor = 1.0;  ///< unscaling and clipping in one: multiplies every gradient, rounded to f32
};

/// Errors: `invalid` if step < 1, a beta or the momentum lies outside [0, 1), eps is not above 0 (all as f32)
/// or nesterov has no momentum, where the optimizer reads them; or if another number is not finite.
Status validate(const OptimizerParams& params);

/// Which moments live from step to step.
struct MomentSet {
  bool first = false, second = false;
  friend bool operator==(const MomentSet&, const MomentSet&) = default;
};
MomentSet moments_of(const OptimizerParams& params) noexcept;

/// The step's constants: computed in f64 without pow (squarings in a fixed order), each rounded once to f32.
UpdateScalars<float> update_scalars(const OptimizerParams& params) noexcept;

/// What the elements [index, index + 2^32) of tensor `tensor` draw in step `step`.
RoundingNoise rounding_noise(std::uint64_t seed, std::uint64_t tensor, std::int64_t step,
                             std::int64_t index) noexcept;

}  // namespace strata::cpuopt
