#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/chat.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// What a model is to go on from: a text, or a conversation whose next turn is the assistant's.
struct Prompt {
  std::string text;
  std::vector<ChatMessage> messages;  ///< empty: the text counts
};

/// A prompt as tokens, and the tokens that end its answer beside those that end any text.
struct PromptTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> stop_ids;
};

/// A file of prompts. One named .jsonl or .ndjson has an object a line with "prompt", a text, or "messages",
/// an array of objects with "role" and "content"; `warn` is told of other keys. Any other has a prompt a
/// line. Blank lines hold none. Errors: `invalid` with "PATH: line N: ..." and where there is no prompt at
/// all; those of reading.
Result<std::vector<Prompt>> read_prompts(Io& io, const std::string& path,
                                         const std::function<void(std::string_view)>& warn);

/// A text is encoded as it is, a conversation as encode_chat() does. Errors: `invalid` for one that gives no
/// token, those of encode_chat().
Result<PromptTokens> encode_prompt(const Tokenizer& tokenizer, const Prompt& prompt, const ChatTemplate& chat,
                                   AddSpecialTokens add_special);

}  // namespace strata
