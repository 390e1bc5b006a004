#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/model/decoder_config.h>
#include <strata/text/score_request.h>

namespace strata {

/// Sum of the log-probabilities of a sequence's scored tokens, in nats, and whether each of them was the most
/// likely one (of equally likely ones, the one with the lowest id).
struct SequenceScore {
  double logprob = 0;
  bool greedy = true;
};

/// ln of the softmax of `logits` at `token`, over all logits, with the bits that training's losses have
/// (kernels::log_probability). `greedy` becomes false if another token is more likely. NaN if a logit is NaN
/// or +Inf.
double log_softmax_at(std::span<const float> logits, std::int32_t token, bool& greedy);

/// Computes log-probabilities of given tokens: all sequences, one after the other, go through the engine's
/// programs with a KV cache, as many rows at a time as a program has. Each pass runs the same program, so the
/// bits of a score do not depend on the other sequences. Not thread-safe.
class Scorer {
 public:
  /// The shape of the engine's programs, the same for both roles.
  static constexpr std::int64_t kRows = 128;  ///< tokens per pass; more is hardly faster on CPUs
  static constexpr std::int64_t kLogitRows =
      64;  ///< so many of these rows are scored; each takes 4 x vocab bytes
  static CacheShape shape(std::int64_t sequences, std::int64_t context) {
    return {kRows, sequences, context, kLogitRows};
  }

  /// `slots`: sequences of the KV cache. `virtual_tokens`: of an adapter, before those of each sequence.
  Scorer(Engine& engine, std::int32_t slots, std::int32_t virtual_tokens = 0)
      : engine_(engine), slots_(slots), virtual_tokens_(virtual_tokens) {}

  /// Each sequence has at least one token before its scored ones, and at most one more token than the cache
  /// has positions behind the virtual tokens. Errors: `diverged` with the index of the sequence, if logits
  /// are not finite; those of Engine::extend().
  Result<std::vector<SequenceScore>> run(std::span<const ScoreSequence> sequences);

 private:
  struct Target {
    std::size_t sequence = 0;
    std::int32_t token = 0;
  };
  Status flush(std::vector<SequenceScore>& scores);

  Engine& engine_;
  const std::int32_t slots_, virtual_tokens_;
  // The next pass: its tokens, the rows whose logits are wanted, and what they predict.
  std::vector<SequenceToken> tokens_;
  std::vector<std::int32_t> wanted_;
  std::vector<Target> targets_;
};

}  // namespace strata
