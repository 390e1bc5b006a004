#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// How the next token is drawn from a row of logits.
struct SamplingOptions {
  double temperature = 1.0;  ///< divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;    ///< only the k most likely; 0: all
  double top_p = 1.0;        ///< of these the fewest whose probabilities sum to it (Holtzman et al. 2020)
};

/// A token that may be drawn.
struct TokenProbability {
  std::int32_t id = 0;
  double p = 0;
};

/// Draws tokens. What is drawn is a function of the logits, the options and the number given: of equal logits
/// the lower id comes first. Keeps its buffers; one thread.
class Sampler {
 public:
  /// Errors: `invalid`, all problems at once.
  static Result<Sampler> create(const SamplingOptions& options);

  /// The tokens that may be drawn, the most likely first, their chances summing to 1. Valid until the next
  /// call. Errors: `diverged` naming the token whose logit is NaN or +infinity; where all are -infinity.
  Result<std::span<const TokenProbability>> candidates(std::span<const float> logits);
  /// The token at `uniform` in [0, 1) of the chances laid end to end.
  Result<std::int32_t> sample(std::span<const float> logits, double uniform);

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}
  void apply_top_p();

  SamplingOptions options_;
  std::vector<std::int32_t> ids_;
  std::vector<TokenProbability> probabilities_;
};

}  // namespace strata
