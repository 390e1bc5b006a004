#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/model/sampling.h>
#include <strata/infer/batcher.h>

namespace strata {

/// A prompt as tokens. Its index selects its random numbers, so other prompts do not change its completion.
struct GenerationRequest {
  std::uint64_t index = 0;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> stop_ids;  ///< any of these ends the completion and is not part of it
  std::int32_t adapter = -1;           ///< number of its adapter; -1: none
  /// Leading tokens of the prompt that the KV cache has already, since the request of the run before that had
  /// the same place began with them; fewer than the prompt has.
  std::int32_t cached = 0;
  /// Leading tokens of the prompt after which a snapshot is kept (BatchSequence::keep_at); 0: none.
  std::int32_t keep_at = 0;
};

struct Completion {
  std::vector<std::int32_t> ids;
  FinishReason finish_reason = FinishReason::max_tokens;
};

struct GenerateOptions {
  std::int64_t max_tokens = 128;  ///< maximum per prompt
  std::int32_t context = 0;       ///< maximum tokens of a sequence, prompt included: those of the KV cache
  std::int32_t vocab = 0;         ///< only ids below it are sampled: a model may have rows without a token
  std::uint64_t seed = 0;
  /// An adapter's, before the tokens of a sequence; `context` is without them.
  std::int32_t virtual_tokens = 0;
};

/// Continues several prompts as one batch, each with its own keys and values in the KV cache (Batcher). Not
/// thread-safe.
class Generator {
 public:
  Generator(Engine& engine, const Sampler& sampler, const GenerateOptions& options);

  /// Called for every token when it is sampled, before the next one is computed. `request`: index into the
  /// requests of run().
  using OnToken = std::function<Status(std::size_t request, std::int32_t id)>;
  /// Accepts at most as many requests as the KV cache has sequences. Errors: `invalid` for a prompt that is
  /// empty or longer than the context, with both numbers; `diverged`, with the prompt and the token, if
  /// logits are not finite; those of Engine::extend() and of `on_token`.
  Result<std::vector<Completion>> run(std::span<const GenerationRequest> requests, const OnToken& on_token);

  /// Sums over all calls of run(): passes that had tokens of prompts and the others, and tokens of the
  /// others.
  const BatchStats& stats() const noexcept { return batcher_.stats(); }

 private:
  class Receiver;
  BatchSequence sequence_of(const GenerationRequest& request) const;
  Status run_all(std::span<const GenerationRequest> requests,
                 std::span<const std::shared_ptr<Receiver>> receivers);

  Batcher batcher_;
  const SamplingOptions sampling_;
  const GenerateOptions options_;
};

}  // namespace strata
