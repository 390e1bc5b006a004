#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/chat.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// A text that a model continues, or a conversation whose next turn is the assistant's.
struct Prompt {
  std::string text;  ///< used if there are no messages, or the chat template is "plain"
  std::vector<ChatMessage>
      messages;  ///< used if there are any, unless there is a text for models without turns
  /// The adapter that the prompt chooses; empty: the model without one; nullopt: it does not choose.
  std::optional<std::string> adapter = {};
  std::string record = {};  ///< as JSON on one line; empty for a file of texts
  std::string tools = {};   ///< a JSON array, or empty
};

/// A prompt as tokens, and the tokens that end its answer in addition to those that end any text.
struct PromptTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> stop_ids;
};

/// Reads a file of prompts. A file of records (has_records) has "prompt", a string or messages, or a form of
/// conversations (model/README.md, "Records"), of which the answer at the end is left out; and "adapter", the
/// name of an adapter or null for none; other keys are reported to `warn`. Any other file has one prompt per
/// line. Blank lines are skipped. Errors: `invalid` with "PATH: line N: ..." and for a file without prompts;
/// those of reading.
Result<std::vector<Prompt>> read_prompts(Io& io, const std::string& path,
                                         const std::function<void(std::string_view)>& warn);

/// Encodes a text, with the tokens that the tokenizer begins one with, or a conversation, whose answer ends
/// with one of `ends` (answer_ends(), which takes as long as some prompts). Errors: `invalid` for a prompt
/// without tokens, those of encode_chat().
Result<PromptTokens> encode_prompt(const Tokenizer& tokenizer, const Prompt& prompt, const ChatTemplate& chat,
                                   std::span<const std::int32_t> ends);

/// How many leading tokens the prompt of a conversation, encoded as `prompt`, has in common with the prompts
/// that follow it, whatever the answer is: templates may write a turn otherwise once others follow. Fewer
/// than it has; 0 if the template does not tell.
std::size_t lasting_tokens(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                           const ChatTemplate& chat, std::span<const std::int32_t> prompt);

}  // namespace strata
