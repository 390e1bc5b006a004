#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/tokenizer.h>
#include <strata/runtime/digest.h>
#include <strata/runtime/status.h>

namespace strata {

/// How a conversation is written as text. Without tools; a family's later forms are other formats.
enum class ChatFormat : std::uint8_t {
  plain,    ///< "User:" and "Assistant:" in lines of their own, for tokenizers without markers
  chatml,   ///< <|im_start|>role ... <|im_end|>: Qwen2, Qwen2.5 and many others
  qwen3,    ///< ChatML, with the answer's reasoning in <think> from the last question on
  llama3,   ///< <|start_header_id|>role<|end_header_id|> ... <|eot_id|>
  llama31,  ///< the same behind a system turn with two dates: LLaMA-3.1, 3.2 and 3.3
  glm4,     ///< [gMASK]<sop><|role|> ...
  mistral,  ///< <s>[INST] ... [/INST] ... </s>
  gemma,    ///< <bos><start_of_turn>role ... <end_of_turn>: Gemma 2 and 3
  phi3,     ///< <|role|> ... <|end|>
  olmo2,    ///< <|endoftext|><|role|> ... with roles in plain text
};

/// A format and what its templates differ in.
struct ChatTemplate {
  ChatFormat format = ChatFormat::plain;
  std::string system;                ///< chatml: what the model is told where the messages begin otherwise
  std::string date = "26 Jul 2024";  ///< llama31: "Today Date"; files of LLaMA-3.2 take the day they run on
  bool newline_in_prompt = false;    ///< glm4: "\n" ends the prompt, else the model writes it
  bool space_after_turn = false;     ///< mistral: " " after </s>
  /// gemma: a system message goes before the first question (Gemma 3). phi3: it is a turn; the first files of
  /// Phi-3 write none of it.
  bool takes_system = false;
  bool with_bos = false;  ///< phi3: <s> begins the text
  bool with_eos = true;   ///< phi3: <|endoftext|> ends a text that nobody goes on with
  /// Equal digests write equal texts.
  Digest digest() const;
};

/// "plain, chatml, ...": all that chat_template_named() knows.
std::string chat_template_names();
/// "chatml"
std::string_view chat_template_name(ChatFormat format) noexcept;
/// By name, or by what a tokenizer_config's Jinja text contains; it is not run. Errors:
/// `unsupported`, naming what may be chosen.
Result<ChatTemplate> chat_template_named(std::string_view name);
Result<ChatTemplate> detect_chat_template(std::string_view jinja);

/// A Jinja text that writes conversations as apply_chat_template() does, and that detect_chat_template()
/// knows again. Empty for qwen3, whose own template does more than this program knows of it.
std::string chat_template_jinja(const ChatTemplate& chat);

inline constexpr std::string_view kChatRoles = "system, user, assistant";
bool is_chat_role(std::string_view role) noexcept;

struct ChatMessage {
  std::string role;  ///< one of kChatRoles
  std::string content;
};

/// A half-open range, of bytes of a text or of tokens.
struct ChatRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const ChatRange&, const ChatRange&) = default;
};

struct ChatText {
  std::string text;
  /// Of each message what its author wrote: the content, and the marker that ends the turn, which an
  /// assistant has to learn too. In glm4 the next turn's role is that marker; the last turn has none.
  std::vector<ChatRange> written;
  std::vector<bool> loss_mask;     ///< of each message: whether it is an assistant's
  std::vector<ChatRange> markers;  ///< the template's own special tokens, in order
};

/// `for_generation` ends the text where the assistant goes on. The text is what the family's own template
/// gives. Errors: `invalid` for no messages, `unsupported` for another role and for an order of them that the
/// template refuses.
Result<ChatText> apply_chat_template(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                                     bool for_generation = false);

struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<ChatRange> written;  ///< of each message, as token indices: a token belongs where it begins
  std::vector<bool> loss_mask;     ///< of each token: whether an assistant wrote it
};

/// The markers become their tokens; in what people wrote special tokens are text unless `special` says
/// otherwise, so that nobody can end a turn for another. Errors: `not_found` where the tokenizer lacks a
/// marker.
Result<ChatTokens> encode_chat(const Tokenizer& tokenizer, const ChatText& chat,
                               SpecialTokens special = SpecialTokens::as_text);

}  // namespace strata
