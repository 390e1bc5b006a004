#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// What is added to the logit of a token.
struct LogitBias {
  std::int32_t id = 0;
  double bias = 0;
};

/// How the next token is sampled from a row of logits. The order is vLLM's: the bias and then the penalties
/// change the logits, the temperature divides them, and min-p, top-k and top-p choose among the tokens.
struct SamplingOptions {
  double temperature = 1.0;  ///< divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;    ///< only the k most likely tokens; 0: all
  double top_p = 1.0;  ///< keeps the fewest of these whose probabilities sum to top_p (Holtzman et al. 2020)
  double min_p = 0;    ///< drops tokens less likely than min_p times the most likely one (Nguyen et al. 2024)
  double presence_penalty = 0;   ///< subtracted from the logits of tokens that were generated: OpenAI's
  double frequency_penalty = 0;  ///< the same, once for each time that a token was generated
  /// Divides positive logits of tokens of the prompt or the generated text, and multiplies the others
  /// (Keskar et al. 2019); 1: none. It comes before the two above.
  double repetition_penalty = 1;
  std::vector<LogitBias> logit_bias = {};  ///< ids beyond the logits change nothing

  /// Whether the tokens before the one that is sampled matter.
  bool penalizes() const noexcept {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1;
  }
};

inline constexpr double kMaxPenalty = 2;              ///< the largest of presence and frequency, either sign
inline constexpr double kMaxRepetitionPenalty = 100;  ///< above 0
inline constexpr double kMaxLogitBias = 100;          ///< the largest, either sign

/// The tokens before the one that is sampled, as penalties count them. Empty ones hold no memory.
class TokenCounts {
 public:
  void add_prompt(std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) generated_.try_emplace(id, 0);
  }
  void add_generated(std::int32_t id) { ++generated_[id]; }
  /// Each token of the prompt and the text, with how often it was generated.
  const std::unordered_map<std::int32_t, std::int32_t>& generated() const noexcept { return generated_; }

 private:
  std::unordered_map<std::int32_t, std::int32_t> generated_;
};

/// A token that may be sampled.
struct TokenProbability {
  std::int32_t id = 0;
  double p = 0;
};

/// Samples tokens. The result is a function of the logits, the options, the tokens before and the given
/// random number; among equal logits the lower id comes first. Reuses its buffers; used by one thread.
class Sampler {
 public:
  /// Errors: `invalid`, all problems at once.
  static Result<Sampler> create(const SamplingOptions& options);
  const SamplingOptions& options() const noexcept { return options_; }
  /// Samples by other options from now on. Errors: those of create(); then nothing changes.
  Status set_options(const SamplingOptions& options);

  /// The tokens that may be sampled, with probabilities that sum to 1: by id, or with a limit the most likely
  /// first. Valid until the next call. `before`: matters if the options penalize. Errors: `diverged` with the
  /// token whose logit is NaN or +infinity, or if all are -infinity.
  Result<std::span<const TokenProbability>> candidates(std::span<const float> logits,
                                                       const TokenCounts& before = {});
  /// Samples by the inverse of the cumulative probabilities at `uniform` in [0, 1). `before`: as above.
  Result<std::int32_t> sample(std::span<const float> logits, double uniform, const TokenCounts& before = {});

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}
  std::span<const float> adjusted(std::span<const float> logits, const TokenCounts& before);
  void apply_top_p();
  void sort_ids(std::span<const float> logits, std::int64_t n);

  SamplingOptions options_;
  std::vector<float> adjusted_;
  std::vector<std::int32_t> ids_;
  std::vector<TokenProbability> probabilities_;
};

}  // namespace strata
