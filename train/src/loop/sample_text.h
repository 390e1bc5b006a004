#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/signals.h>
#include <strata/batches/training_data.h>

namespace strata {

struct TextSampleOptions {
  std::int64_t tokens = 64;
  double temperature = 0.8;  ///< 0: always the most likely token
  int top_k = 40;            ///< 0: all tokens
  std::uint64_t seed = 0;
};

/// The prompt that a sample continues.
struct SamplePrompt {
  std::string text;               ///< for people; a long one is cut at its begin
  std::vector<std::int32_t> ids;  ///< at least one
};
/// `text`: log.sample_prompt; if it is "auto", the prompt is one of the run's data. Errors: `invalid` for a
/// text without tokens.
Result<SamplePrompt> sample_prompt(const std::string& text, const TrainingData& data);

/// Continues `prompt` token by token. Each token is computed from the whole context (the last `seq` tokens),
/// without a KV cache. Stops at end of text, or if `signals` (may be null) requests a stop. Equal engine
/// state, prompt and options return equal text. Errors: those of Engine::infer().
Result<std::string> sample_text(Engine& engine, const Tokenizer& tokenizer,
                                std::span<const std::int32_t> prompt, const TextSampleOptions& options,
                                const Signals* signals = nullptr);

}  // namespace strata
