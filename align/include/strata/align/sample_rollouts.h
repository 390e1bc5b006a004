#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/batches/prompt_set.h>
#include <strata/align/rollout.h>
#include <strata/infer/batcher.h>

namespace strata {

struct RolloutOptions {
  std::int64_t prompts = 1, samples = 1;  ///< answers to each prompt, which follow each other
  std::int64_t max_tokens = 1;
  double temperature = 1;
  std::vector<std::int32_t> ends;  ///< the tokenizer's tokens that each end an answer
  BatchLimits limits;
  std::uint64_t seed = 0;
};

/// Samples the answers of an iteration with the engine's present parameters, as many at a time as the cache
/// has sequences. Which prompts they are, and each answer's random numbers, depend on the seed and the
/// iteration alone: every epoch over the prompts has its own order. Errors: those of Batcher; `cancelled`
/// once `stops` returns true.
Result<std::vector<Rollout>> sample_rollouts(Engine& engine, const PromptSet& prompts,
                                             const RolloutOptions& options, std::int64_t iteration,
                                             const std::function<bool()>& stops);

}  // namespace strata
