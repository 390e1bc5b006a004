#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <strata/engine/engine.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/signals.h>

namespace strata {

struct TextSampleOptions {
  std::int64_t tokens = 64;
  double temperature = 0.8;  ///< 0: always the most likely token
  int top_k = 40;            ///< 0: all tokens
  std::uint64_t seed = 0;
};

/// Continues `prompt` token by token. Each token is computed from the whole context (the last `seq` tokens),
/// without a KV cache. Stops at end of text, or if `signals` (may be null) requests a stop. Equal engine
/// state, prompt and options return equal text. Errors: `invalid` for an empty prompt.
Result<std::string> sample_text(Engine& engine, const Tokenizer& tokenizer, std::string_view prompt,
                                const TextSampleOptions& options, const Signals* signals = nullptr);

}  // namespace strata
