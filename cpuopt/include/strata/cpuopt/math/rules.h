#pragma once

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/cpuopt/optimizer_facts.h>

/// One step of each optimizer for one element, written once over a value type V (float, or a SIMD value with
/// the same operators). The order of operations is part of the contract: because of it all instruction sets
/// and CUDA agree bit for bit.
namespace strata::cpuopt {

using namespace simd;

/// The optimizers, in the order of OptimizerRules below; sgd is the last.
enum class Optimizer : std::uint8_t { adamw, adam, lion, lamb, adagrad, sgd };

/// The constants of a step, each computed in f64 and rounded once (see update_scalars). V is float, or a
/// value broadcast to all lanes of a SIMD value.
template <class V>
struct UpdateScalars {
  V grad_factor;  ///< multiplies every gradient first: unscaling and clipping in one
  V momentum;
  V one_minus_beta1, one_minus_beta2;
  V eps;
  V weight_decay;         ///< for rules that add the decay to the gradient or to the direction
  V decay;                ///< lr * weight_decay, for decoupled decay
  V step_size;            ///< lr
  V corrected_step_size;  ///< lr / (1 - beta1^step)
  V inv_bias1;            ///< 1 / (1 - beta1^step)
  V inv_sqrt_bias2;       ///< 1 / sqrt(1 - beta2^step)
};

/// The moving average of a parameter after its update: of weight 1 - decay is the new parameter `p`.
template <class V, class S>
STRATA_HD V moved_ema(V ema, V p, S weight) {
  return ema + weight * (p - ema);
}

// A rule states the facts of its optimizer (kFacts), on which all other code depends, and has a function
// `update`, which updates the moments of the facts and returns the new parameter, or the old one if a second
// pass follows (tensor_norms); `g` is already scaled.

/// Exponential moving averages of g and g^2, as m += (1 - beta) * (g - m). The form beta * m + (1 - beta) * g
/// needs one more multiplication, and multiplications share an execution unit with the square root and the
/// division below.
template <class V, class S>
STRATA_HD void update_moments(V g, V& m, V& v, const UpdateScalars<S>& s) {
  m = m + s.one_minus_beta1 * (g - m);
  v = v + s.one_minus_beta2 * (g * g - v);
}
/// Updates both moments and returns the step that Adam and AdamW subtract from the parameter.
template <class V, class S>
STRATA_HD V adam_step(V g, V& m, V& v, const UpdateScalars<S>& s) {
  update_moments(g, m, v, s);
  const V denom = sqrt_of(v) * s.inv_sqrt_bias2 + s.eps;
  return s.corrected_step_size * (m / denom);
}

/// Kingma & Ba 2015, Alg. 1; decoupled decay, Loshchilov & Hutter 2019, Alg. 2.
struct AdamWRule {
  static constexpr OptimizerFacts kFacts{
      .optimizer = Optimizer::adamw, .name = "adamw", .betas = true, .eps = true, .moments = {true, true}};
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V& m, V& v, const UpdateScalars<S>& s) {
    return p - (s.decay * p + adam_step(g, m, v, s));
  }
};

/// Kingma & Ba 2015, Alg. 1, with L2 regularization: the decay is added to the gradient.
struct AdamRule {
  static constexpr OptimizerFacts kFacts{
      .optimizer = Optimizer::adam, .name = "adam", .betas = true, .eps = true, .moments = {true, true}};
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V& m, V& v, const UpdateScalars<S>& s) {
    return p - adam_step(g + s.weight_decay * p, m, v, s);
  }
};

/// Chen et al. 2023, "Symbolic discovery of optimization algorithms", Alg. 2: the step is along the sign of
/// the interpolation of moment and gradient with beta1; the interpolation with beta2 is the new moment. The
/// sign of 0 and of NaN is 0.
struct LionRule {
  static constexpr OptimizerFacts kFacts{
      .optimizer = Optimizer::lion, .name = "lion", .betas = true, .moments = {true, false}};
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V& m, V&, const UpdateScalars<S>& s) {
    const V zero(0.0f), step(s.step_size);
    const V direction = m + s.one_minus_beta1 * (g - m);
    m = m + s.one_minus_beta2 * (g - m);
    const V down = select_greater(zero, direction, step, zero);
    return p - (s.decay * p + select_greater(direction, zero, step, zero - down));
  }
};

/// Duchi et al. 2011 (diagonal), with L2 regularization.
struct AdagradRule {
  static constexpr OptimizerFacts kFacts{
      .optimizer = Optimizer::adagrad, .name = "adagrad", .eps = true, .moments = {false, true}};
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V&, V& v, const UpdateScalars<S>& s) {
    const V with_decay = g + s.weight_decay * p;
    v = v + with_decay * with_decay;
    return p - s.step_size * (with_decay / (sqrt_of(v) + s.eps));
  }
};

/// Gradient descent with L2 regularization.
struct SgdRule {
  static constexpr OptimizerFacts kFacts{.optimizer = Optimizer::sgd, .name = "sgd", .momentum = true};
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V&, V&, const UpdateScalars<S>& s) {
    return p - s.step_size * (g + s.weight_decay * p);
  }
};
/// SGD with momentum: m = momentum * m + g (Polyak 1964; Sutskever et al. 2013).
struct MomentumRule {
  static constexpr OptimizerFacts kFacts{
      .optimizer = Optimizer::sgd, .name = "sgd", .momentum = true, .moments = {true, false}};
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V& m, V&, const UpdateScalars<S>& s) {
    m = s.momentum * m + (g + s.weight_decay * p);
    return p - s.step_size * m;
  }
};
/// SGD with Nesterov momentum: the step is along g + momentum * m.
struct NesterovRule {
  static constexpr OptimizerFacts kFacts = MomentumRule::kFacts;
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V& m, V&, const UpdateScalars<S>& s) {
    const V with_decay = g + s.weight_decay * p;
    m = s.momentum * m + with_decay;
    return p - s.step_size * (with_decay + s.momentum * m);
  }
};

/// First pass of LAMB (You et al. 2020, Alg. 2), which updates only the moments. LAMB takes two passes,
/// because the length of its step depends on the whole tensor.
struct LambMomentsRule {
  static constexpr OptimizerFacts kFacts{.optimizer = Optimizer::lamb,
                                         .name = "lamb",
                                         .betas = true,
                                         .eps = true,
                                         .moments = {true, true},
                                         .tensor_norms = true};
  template <class V, class S>
  static STRATA_HD V update(V p, V g, V& m, V& v, const UpdateScalars<S>& s) {
    update_moments(g, m, v, s);
    return p;
  }
};
/// The direction of LAMB's second pass, from the parameter and the moments as they are stored.
template <class V, class S>
STRATA_HD V lamb_direction(V p, V m, V v, const UpdateScalars<S>& s) {
  const V denom = sqrt_of(v) * s.inv_sqrt_bias2 + s.eps;
  return (m * s.inv_bias1) / denom + s.weight_decay * p;
}

/// A list of types, which tables of kernels are made from.
template <class... R>
struct RuleList {
  static constexpr int kSize = sizeof...(R);
  template <class... More>
  using With = RuleList<R..., More...>;
};
/// The rule of each optimizer, in the order of the enumeration; lamb's updates the moments.
using OptimizerRules = RuleList<AdamWRule, AdamRule, LionRule, LambMomentsRule, AdagradRule, SgdRule>;
/// The rules that have kernels: behind the others, the two of momentum.
using UpdateRules = OptimizerRules::With<MomentumRule, NesterovRule>;

}  // namespace strata::cpuopt
