#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/tokenizer.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/status.h>

namespace strata {

/// How a conversation is written as text. Tool calls are not supported. If a later model of a family changed
/// its template, that is another format.
enum class ChatFormat : std::uint8_t {
  plain,    ///< "User:" and "Assistant:" on lines of their own, for tokenizers without markers
  chatml,   ///< <|im_start|>role ... <|im_end|>: Qwen2, Qwen2.5 and many others
  qwen3,    ///< ChatML, with the answer's reasoning in <think> after the last question
  llama3,   ///< <|start_header_id|>role<|end_header_id|> ... <|eot_id|>
  llama31,  ///< llama3 after a system turn with two dates: LLaMA-3.1, 3.2 and 3.3
  glm4,     ///< [gMASK]<sop><|role|> ...
  mistral,  ///< <s>[INST] ... [/INST] ... </s>
  gemma,    ///< <bos><start_of_turn>role ... <end_of_turn>: Gemma 2 and 3
  phi3,     ///< <|role|> ... <|end|>
  olmo2,    ///< <|endoftext|><|role|> ... with roles in plain text
};

/// A format and the options in which templates of that format differ.
struct ChatTemplate {
  ChatFormat format = ChatFormat::plain;
  std::string system;                ///< chatml: system message if the first message is none
  std::string date = "26 Jul 2024";  ///< llama31: "Today Date"; the template of LLaMA-3.2 has the current day
  bool newline_in_prompt = false;    ///< glm4: "\n" ends the prompt; otherwise the model generates it
  bool space_after_turn = false;     ///< mistral: " " after </s>
  /// gemma: a system message is put before the first question (Gemma 3). phi3: it is a turn; the first
  /// templates of Phi-3 ignore it.
  bool takes_system = false;
  bool with_bos = false;  ///< phi3: the text begins with <s>
  bool with_eos = true;   ///< phi3: <|endoftext|> ends a text that is not continued
  /// Templates with equal digests write equal texts.
  Digest digest() const;
};

/// "plain, chatml, ...": all names that chat_template_named() accepts.
std::string chat_template_names();
/// "chatml"
std::string_view chat_template_name(ChatFormat format) noexcept;
/// Finds a template by its name, or by markers in the Jinja text of a tokenizer_config, which is not
/// executed. Errors: `unsupported` with the names that can be chosen.
Result<ChatTemplate> chat_template_named(std::string_view name);
Result<ChatTemplate> detect_chat_template(std::string_view jinja);

/// Returns a Jinja template that writes conversations as apply_chat_template() does and that
/// detect_chat_template() recognizes. Empty for qwen3, whose own template has features that are not
/// implemented here.
std::string chat_template_jinja(const ChatTemplate& chat);

inline constexpr std::string_view kChatRoles = "system, user, assistant";
bool is_chat_role(std::string_view role) noexcept;

struct ChatMessage {
  std::string role;  ///< one of kChatRoles
  std::string content;
};

/// A half-open range of bytes of a text, or of token indices.
struct ChatRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const ChatRange&, const ChatRange&) = default;
};

struct ChatText {
  std::string text;
  /// The range that the author of each message wrote: the content and the marker that ends the turn, which an
  /// assistant has to learn too. In glm4 the next turn's role is that marker; the last turn has none.
  std::vector<ChatRange> written;
  std::vector<bool> loss_mask;     ///< per message: whether it is the assistant's
  std::vector<ChatRange> markers;  ///< the template's own special tokens, in order
};

/// Writes the messages exactly as the family's own template does. With `for_generation` the text ends where
/// the assistant continues. Errors: `invalid` for no messages, `unsupported` for an unknown role and for an
/// order of roles that the template does not allow.
Result<ChatText> apply_chat_template(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                                     bool for_generation = false);

struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<ChatRange> written;  ///< per message, as token indices; a token is in the range where it begins
  std::vector<bool> loss_mask;     ///< per token: whether the assistant wrote it
};

/// Encodes the markers as their tokens. In the contents of messages special tokens are plain text unless
/// `special` says otherwise, so that a message cannot end its own turn. Errors: `not_found` if the tokenizer
/// lacks a marker.
Result<ChatTokens> encode_chat(const Tokenizer& tokenizer, const ChatText& chat,
                               SpecialTokens special = SpecialTokens::as_text);

}  // namespace strata
