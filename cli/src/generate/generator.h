#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/model/sampling.h>

namespace strata::cli {

enum class FinishReason : std::uint8_t {
  end_of_text,   ///< the model wrote a token that ends a text
  max_tokens,    ///< as many as were asked for
  context_full,  ///< the sequence is as long as the cache holds
};
std::string_view to_string(FinishReason reason) noexcept;

/// A prompt as tokens. Its index names its random numbers, so that no other prompt changes its text.
struct GenerationRequest {
  std::uint64_t index = 0;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> stop_ids;  ///< any of these ends the text and is not part of it
};

struct Completion {
  std::vector<std::int32_t> ids;
  FinishReason finish_reason = FinishReason::max_tokens;
};

struct GenerateOptions {
  std::int64_t max_tokens = 128;  ///< at most so many a prompt
  std::int32_t context = 0;       ///< tokens of one sequence, prompt included: that of the cache
  std::int32_t vocab = 0;         ///< only tokens below it are drawn: a model may have rows for no token
  std::uint64_t seed = 0;
};

/// Continues prompts together, each from its own keys and values: prompts go through the engine's prefill,
/// then one token of each sequence at a time through its decode. One thread.
class Generator {
 public:
  Generator(Engine& engine, Sampler sampler, const GenerateOptions& options);

  /// Called for every token as it is drawn, before the next is computed: task of the call, token.
  using OnToken = std::function<Status(std::size_t request, std::int32_t id)>;
  /// At most as many tasks as the cache has places for. Errors: `invalid` for a prompt that is empty or does
  /// not fit the context, with both numbers; `diverged` naming the prompt and the place of logits that are no
  /// numbers; those of Engine::extend and of `on_token`.
  Result<std::vector<Completion>> run(std::span<const GenerationRequest> requests, const OnToken& on_token);

  double prefill_seconds() const noexcept { return prefill_seconds_; }
  double decode_seconds() const noexcept { return decode_seconds_; }

 private:
  struct Sequence;
  Status prefill(std::span<const GenerationRequest> requests, std::vector<Sequence>& sequences,
                 const OnToken& on_token);
  Status decode(std::span<const GenerationRequest> requests, std::vector<Sequence>& sequences,
                const OnToken& on_token);
  Status sample_token(const GenerationRequest& request, Sequence& sequence, std::span<const float> logits,
                      const OnToken& on_token);

  Engine& engine_;
  Sampler sampler_;
  const GenerateOptions options_;
  std::size_t prefill_rows_;
  double prefill_seconds_ = 0, decode_seconds_ = 0;
};

}  // namespace strata::cli
