#pragma once

#include <strata/cpuopt/math/elementary.h>
#include <strata/cpuopt/math/hd.h>

namespace strata::cpuopt {

/// What one AdamW step needs of its hyper-parameters, each rounded once from f64 (see adamw_scalars).
template <class V>
struct AdamWScalars {
  V beta1, one_minus_beta1;
  V beta2, one_minus_beta2;
  V eps;
  V decay;           ///< 1 - lr * weight_decay
  V step_size;       ///< lr / (1 - beta1^step)
  V inv_sqrt_bias2;  ///< 1 / sqrt(1 - beta2^step)
};

/// One AdamW step for one value type: returns the new parameter, updates both moments.
/// Kingma & Ba 2015, Alg. 1; decoupled decay, Loshchilov & Hutter 2019, Alg. 2. The order of operations is
/// part of the contract: it is what makes all instruction sets and CUDA agree bit for bit.
template <class V>
STRATA_HD V adamw_update(V p, V g, V& m, V& v, const AdamWScalars<V>& s) {
  m = s.beta1 * m + s.one_minus_beta1 * g;
  v = s.beta2 * v + s.one_minus_beta2 * (g * g);
  const V denom = sqrt_of(v) * s.inv_sqrt_bias2 + s.eps;
  return p * s.decay - s.step_size * (m / denom);
}

}  // namespace strata::cpuopt
