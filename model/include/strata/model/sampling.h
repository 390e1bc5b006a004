#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// How the next token is sampled from a row of logits.
struct SamplingOptions {
  double temperature = 1.0;  ///< divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;    ///< only the k most likely tokens; 0: all
  double top_p = 1.0;  ///< keeps the fewest of these whose probabilities sum to top_p (Holtzman et al. 2020)
};

/// A token that may be sampled.
struct TokenProbability {
  std::int32_t id = 0;
  double p = 0;
};

/// Samples tokens. The result is a function of the logits, the options and the given random number; among
/// equal logits the lower id comes first. Reuses its buffers; used by one thread.
class Sampler {
 public:
  /// Errors: `invalid`, all problems at once.
  static Result<Sampler> create(const SamplingOptions& options);
  const SamplingOptions& options() const noexcept { return options_; }
  /// Samples by other options from now on. Errors: those of create(); then nothing changes.
  Status set_options(const SamplingOptions& options);

  /// The tokens that may be sampled, with probabilities that sum to 1: by id, or with a limit the most likely
  /// first. Valid until the next call. Errors: `diverged` with the token whose logit is NaN or +infinity, or
  /// if all are -infinity.
  Result<std::span<const TokenProbability>> candidates(std::span<const float> logits);
  /// Samples by the inverse of the cumulative probabilities at `uniform` in [0, 1).
  Result<std::int32_t> sample(std::span<const float> logits, double uniform);

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}
  void apply_top_p();
  void sort_ids(std::span<const float> logits, std::int64_t n);

  SamplingOptions options_;
  std::vector<std::int32_t> ids_;
  std::vector<TokenProbability> probabilities_;
};

}  // namespace strata
