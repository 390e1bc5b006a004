#pragma once

#include <cstdint>

namespace strata::kernels {

/// How a router chooses k of E experts for a token, and weighs them. With the scores s = softmax(l) or
/// sigmoid(l) of the token's logits l in f32, the k experts with the largest s + bias are chosen, of equal
/// ones the first; NaN is below all numbers, and a NaN among a token's logits makes all its weights NaN.
/// Their weights are scale s_j, or scale s_j / (eps + the sum of the chosen scores). Shazeer et al. 2017;
/// with sigmoid, bias and groups DeepSeek-AI 2024 (DeepSeek-V3, section 2.1.2).
struct RouterRule {
  enum class Score : std::uint8_t { softmax, sigmoid };
  Score score = Score::softmax;
  bool renormalize = false;  ///< divide by the sum of the chosen scores
  float eps = 0;
  float scale = 1;
  /// The experts are `groups` runs of equal length; only those of the `top_groups` with the largest sum of
  /// their two best s + bias can be chosen.
  std::int32_t groups = 1, top_groups = 1;
  bool by_best = false;  ///< ... with the best one, not the sum of two (DeepSeek-V2)
  friend bool operator==(const RouterRule&, const RouterRule&) = default;
};

/// The activation of an expert, computed in f32 from a row's gate g and up u, or from g alone.
struct ExpertGate {
  enum class Kind : std::uint8_t {
    silu,     ///< g sigmoid(g) u
    gelu,     ///< gelu(g) u, tanh approximation
    clamped,  ///< g sigmoid(alpha g) (u + 1), with g at most limit and u in [-limit, limit] (gpt-oss)
    relu2,    ///< max(g, 0)^2 of rows without ups (Nemotron 3)
  };
  /// What a row has: gates and ups, or gates alone.
  constexpr std::int64_t parts() const noexcept { return kind == Kind::relu2 ? 1 : 2; }
  Kind kind = Kind::silu;
  float limit = 0, alpha = 0;  ///< `clamped` alone has them
  friend bool operator==(const ExpertGate&, const ExpertGate&) = default;
};

}  // namespace strata::kernels
