#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {

struct PromptTurn {
  std::string role;  ///< system, user or assistant
  std::string content;
};

/// What a model is to go on from: a text, or a conversation whose next turn is the assistant's.
struct Prompt {
  std::string text;
  std::vector<PromptTurn> turns;  ///< empty: the text counts
};

/// A prompt as tokens, and the tokens that end its answer beside those that end any text.
struct PromptTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> ends;
};

/// A file of prompts. One named .jsonl or .ndjson has an object a line with "prompt", a text, or "messages",
/// an array of objects with "role" and "content"; `warn` is told of other keys. Any other has a prompt a
/// line. Blank lines hold none. Errors: `invalid` with "PATH: line N: ..." and where there is no prompt at
/// all; those of reading.
Result<std::vector<Prompt>> read_prompts(Io& io, const std::string& path,
                                         const std::function<void(std::string_view)>& warn);

/// A text is encoded as it is. A conversation is written as the chat template `jinja` of the model's
/// tokenizer_config does (chat.h knows which), or without one as training data is (chat_format.h); special
/// tokens count in the format's own words alone. Errors: `invalid` for a text or conversation that gives no
/// token, `unsupported` for a template or a role that is not known, `not_found` for a marker that the
/// tokenizer lacks.
Result<PromptTokens> encode_prompt(const Tokenizer& tokenizer, const Prompt& prompt, std::string_view jinja,
                                   Around around);

}  // namespace strata
