#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/tokenizer.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/status.h>

namespace strata {

inline constexpr std::string_view kChatRoles = "system, user, assistant, tool";
bool is_chat_role(std::string_view role) noexcept;

struct ChatMessage {
  std::string role;  ///< one of kChatRoles
  std::string content;
  /// Further fields of the message that the template reads, as a JSON object: "tool_calls", "name",
  /// "tool_call_id", "reasoning_content".
  std::string more = {};
  bool is_learned = true;  ///< for the assistant: whether the loss is on the message

  bool operator==(const ChatMessage&) const = default;
};

/// How a conversation is written as text: a Jinja template, as in a tokenizer_config.json. It is evaluated as
/// transformers does (Jinja 3 with trim_blocks and lstrip_blocks, in a sandbox with limits). Documents are
/// not given to it. A value type that is cheap to copy; const calls from any thread.
class ChatTemplate {
 public:
  /// The built-in template "plain": "User:" and "Assistant:" on lines of their own, without special tokens.
  ChatTemplate();
  /// The template of a folder. Its name is that of the built-in template that writes the same, else
  /// kOwn. `words` has the tokens that it may print. Errors: `invalid` or `unsupported`, with the line.
  static Result<ChatTemplate> parse(const std::string& jinja, const SpecialWords& words);
  /// A built-in template. Errors: `unsupported`, with the names.
  static Result<ChatTemplate> named(std::string_view name);

  static constexpr std::string_view kOwn = "own";
  const std::string& name() const noexcept;
  const std::string& jinja() const noexcept;
  /// Templates with equal digests write equal texts.
  const Digest& digest() const noexcept;
  /// The same with another day for strftime_now(). The default, 26 July 2024, is that of LLaMA's templates
  /// and keeps the data of a training run from depending on the day.
  ChatTemplate with_date(const std::tm& day) const;
  bool uses_date() const noexcept;
  /// The same with further variables, chat_template_kwargs in transformers: a JSON object, for example
  /// {"enable_thinking": false}. They are added to earlier ones and replace those of the same names. Their
  /// strings are text: no special token is recognized in them. Errors: `invalid` for other JSON, and for
  /// names that are not the caller's: messages, tools, documents, add_generation_prompt and those of special
  /// tokens.
  Result<ChatTemplate> with_arguments(const std::string& json) const;

  struct Parsed;
  const Parsed& parsed() const noexcept { return *parsed_; }

 private:
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) noexcept : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;  // immutable, so copies share it
};

/// "plain, chatml, ...": the names of all built-in templates.
std::string chat_template_names();

/// A half-open range of bytes of a text, or of token indices.
using ChatRange = TextRange;

/// Where an answer of the assistant is.
struct ChatAnswer {
  std::size_t begin = 0;     ///< where the assistant goes on after the generation prompt
  std::size_t said_end = 0;  ///< where the text of the message ends
  std::size_t end = 0;     ///< where the turn ends, with the text that the template writes after the message
  bool has_calls = false;  ///< ends with tool calls, which the template may close with tokens of their own
  bool is_learned = true;  ///< whether the loss is on it
};

struct ChatText {
  std::string text;
  /// The parts of the text that the template wrote itself, in order. Special tokens are recognized there and
  /// nowhere else.
  std::vector<ChatRange> of_template;
  std::vector<ChatAnswer> answers;
  /// Special tokens that a built-in template cannot do without.
  std::vector<std::string> markers;
};

/// Writes the messages as the template does. With `for_generation` the text ends where the assistant
/// continues. `tools` is a JSON array of the tools that the model may call, or empty. Errors: `invalid` for
/// no messages, `unsupported` for an unknown role, for a conversation that the template refuses, and for a
/// message, tool calls, reasoning or tools that it would leave out; those of evaluating the template.
Result<ChatText> apply_chat_template(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                                     bool for_generation = false, const std::string& tools = {});

struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<bool> loss_mask;     ///< per token: whether it is in an answer that is learned
  std::vector<ChatRange> answers;  ///< as token indices, each with the special token that ends it
  std::vector<std::int32_t> ends;  ///< per answer: that token; -1 if there is none
  bool is_ended = false;           ///< nothing but white space follows the end of the last answer
};

/// Encodes a conversation. Special tokens in the contents of messages are plain text unless `special` says
/// otherwise, so that a message cannot end its own turn. An answer ends with the first special token that the
/// template writes after it, even that of the next turn (GLM). Errors: `not_found` if the tokenizer lacks a
/// token of `markers`.
Result<ChatTokens> encode_chat(const Tokenizer& tokenizer, const ChatText& chat,
                               SpecialTokens special = SpecialTokens::as_text);

/// The special tokens that end the answers of a template; empty if it has none.
std::vector<std::int32_t> answer_ends(const Tokenizer& tokenizer, const ChatTemplate& chat);

}  // namespace strata
