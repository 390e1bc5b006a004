#include <cmath>

#include "decoder/recorder.h"

// Layers of Gemma 4: a dense MLP and a mixture of experts next to each other, and a factor of the result.

namespace strata::detail {

Value Recorder::expert_factors(const std::string& name) {
  return b_.param(name + ".expert_factors", {c_.experts.n}, {.init = {1, 0}, .decay = false, .is_f32 = true});
}

// Both MLPs and the router see the residual stream, each through a norm of its own.
Value Recorder::dense_and_mixture(const std::string& name, Value x) {
  const Value of_dense = norm(name + ".dense_post_norm", dense(name, norm(name + ".mlp_norm", x), c_.ffn));
  const Value routed_by = norm(name + ".router_norm", x);
  const Value products =
      b_.linear_f32(routed_by, weight(name + ".router.weight", {c_.experts.n, c_.hidden}, kInitStd));
  // transformers scales what the router multiplies, and rounds it; its products are f32.
  const Value logits = b_.scale(products, 1 / std::sqrt(static_cast<float>(c_.hidden)));
  const Value of_experts =
      norm(name + ".experts_post_norm", routed_experts(name, norm(name + ".experts_norm", x), logits));
  return b_.add(of_dense, of_experts);
}

Value Recorder::layer_factor(const std::string& name) {
  return b_.param(name + ".layer_factor", {1}, {.init = {1, 0}, .decay = false, .is_f32_state = true});
}

}  // namespace strata::detail
