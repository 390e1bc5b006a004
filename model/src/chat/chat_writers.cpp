#include "chat/chat_writers.h"

#include <algorithm>
#include <array>
#include <string>

#include <strata/runtime/str.h>

#include "tokenizer/added_tokens.h"

namespace strata::detail {
namespace {

using namespace std::string_view_literals;

std::string_view trimmed(std::string_view text, std::string_view of) {
  const std::size_t first = text.find_first_not_of(of);
  return first == std::string_view::npos ? ""sv : text.substr(first, text.find_last_not_of(of) - first + 1);
}
std::string_view trimmed_left(std::string_view text, std::string_view of) {
  return text.substr(std::min(text.find_first_not_of(of), text.size()));
}
/// The result of Jinja's `trim`: Python's strip(), whose white space includes four more control characters.
std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSeparators = "\x1c\x1d\x1e\x1f";
  for (std::size_t before = text.size() + 1; text.size() < before;) {
    before = text.size();
    text = text.substr(0, without_trailing_spaces(text));
    text.remove_prefix(leading_spaces(text));
    text = trimmed(text, kSeparators);
  }
  return text;
}

/// Without special tokens; a line break ends a turn.
void write_plain(const ChatTemplate&, std::span<const ChatMessage> messages, bool for_generation,
                 ChatWriter& out) {
  for (const ChatMessage& message : messages) {
    out.text(message.role == "system" ? "System:\n" : message.role == "user" ? "User:\n" : "Assistant:\n");
    out.begin(message);
    out.text(message.content);
    out.text("\n");
    out.end();
  }
  if (for_generation) out.text("Assistant:\n");
}

void begin_im(std::string_view role, ChatWriter& out) {
  out.marker("<|im_start|>");
  out.text(role);
  out.text("\n");
}
void end_im(ChatWriter& out) { out.marker("<|im_end|>"); }

void write_chatml(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool for_generation,
                  ChatWriter& out) {
  if (!chat.system.empty() && messages.front().role != "system") {
    begin_im("system", out);
    out.text(chat.system);
    end_im(out);
    out.text("\n");
  }
  for (const ChatMessage& message : messages) {
    begin_im(message.role, out);
    out.begin(message);
    out.text(message.content);
    end_im(out);
    out.end();
    out.text("\n");
  }
  if (for_generation) begin_im("assistant", out);
}

struct Answer {
  std::string_view reasoning;
  std::string_view content;
};
/// Splits "<think>..</think>answer" into its parts.
Answer split_answer(std::string_view content) {
  constexpr std::string_view kEnd = "</think>";
  constexpr std::string_view kBegin = "<think>";
  const std::size_t first = content.find(kEnd);
  if (first == std::string_view::npos) return {{}, content};
  std::string_view reasoning = content.substr(0, first);
  reasoning = reasoning.substr(0, reasoning.find_last_not_of('\n') + 1);
  if (const std::size_t begin = reasoning.rfind(kBegin); begin != std::string_view::npos)
    reasoning.remove_prefix(begin + kBegin.size());
  return {trimmed_left(reasoning, "\n"),
          trimmed_left(content.substr(content.rfind(kEnd) + kEnd.size()), "\n")};
}

/// Index of the last question. A tool's response also has the role "user" but is no question.
std::size_t last_question(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    if (messages[i].role == "user" &&
        !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>")))
      return i;
  }
  return messages.size() - 1;
}

void write_qwen3(const ChatTemplate&, std::span<const ChatMessage> messages, bool for_generation,
                 ChatWriter& out) {
  const std::size_t question = last_question(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    begin_im(message.role, out);
    out.begin(message);
    if (message.role == "assistant") {
      const Answer answer = split_answer(message.content);
      if (i > question && (i + 1 == messages.size() || !answer.reasoning.empty()))
        out.text(str("<think>\n", trimmed(answer.reasoning, "\n"), "\n</think>\n\n",
                     trimmed_left(answer.content, "\n")));
      else
        out.text(answer.content);
    } else {
      out.text(message.content);
    }
    end_im(out);
    out.end();
    out.text("\n");
  }
  if (for_generation) begin_im("assistant", out);
}

void begin_header(std::string_view role, ChatWriter& out) {
  out.marker("<|start_header_id|>");
  out.text(role);
  out.marker("<|end_header_id|>");
  out.text("\n\n");
}

void write_llama3(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool for_generation,
                  ChatWriter& out) {
  out.marker("<|begin_of_text|>");
  const bool dated = chat.format == ChatFormat::llama31;
  const std::string dates = str("Cutting Knowledge Date: December 2023\nToday Date: ", chat.date, "\n\n");
  if (dated && messages.front().role != "system") {
    begin_header("system", out);
    out.text(dates);
    out.marker("<|eot_id|>");
  }
  for (const ChatMessage& message : messages) {
    begin_header(message.role, out);
    if (dated && &message == &messages.front() && message.role == "system") out.text(dates);
    out.begin(message);
    out.text(stripped(message.content));
    out.marker("<|eot_id|>");
    out.end();
  }
  if (for_generation) begin_header("assistant", out);
}

void write_glm4(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool for_generation,
                ChatWriter& out) {
  out.marker("[gMASK]");
  out.marker("<sop>");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    out.marker(str("<|", messages[i].role, "|>"));
    if (i > 0) out.end();  // the marker ends the previous turn
    if (chat.newline_in_prompt) out.text("\n");
    out.begin(messages[i]);
    if (!chat.newline_in_prompt) out.text("\n");
    out.text(messages[i].content);
    out.end();
  }
  if (!for_generation) return;
  out.marker("<|assistant|>");
  out.end();
  if (chat.newline_in_prompt) out.text("\n");
}

void write_mistral(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool, ChatWriter& out) {
  out.marker("<s>");
  for (const ChatMessage& message : messages) {
    const bool asks = message.role == "user";
    if (asks) out.text("[INST] ");
    out.begin(message);
    out.text(message.content);
    if (!asks) out.marker("</s>");
    out.end();
    out.text(asks ? " [/INST]" : chat.space_after_turn ? " " : "");
  }
}

void write_gemma(const ChatTemplate&, std::span<const ChatMessage> messages, bool for_generation,
                 ChatWriter& out) {
  const auto begin = [&](std::string_view role) {
    out.marker("<start_of_turn>");
    out.text(str(role, "\n"));
  };
  out.marker("<bos>");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool told = i > 0 && messages[i - 1].role == "system", tells = messages[i].role == "system";
    if (!told) begin(messages[i].role == "assistant" ? "model" : "user");
    out.begin(messages[i]);
    if (tells) {
      out.text(messages[i].content);
      out.end();
      out.text("\n\n");
      continue;
    }
    out.text(stripped(messages[i].content));
    out.marker("<end_of_turn>");
    out.end();
    out.text("\n");
  }
  if (for_generation) begin("model");
}

void write_phi3(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool for_generation,
                ChatWriter& out) {
  if (chat.with_bos) out.marker("<s>");
  for (const ChatMessage& message : messages) {
    out.marker(str("<|", message.role, "|>"));
    out.text("\n");
    out.begin(message);
    out.text(message.content);
    out.marker("<|end|>");
    out.end();
    out.text("\n");
  }
  if (for_generation) {
    out.marker("<|assistant|>");
    out.text("\n");
  } else if (chat.with_eos) {
    out.marker("<|endoftext|>");
  }
}

void write_olmo2(const ChatTemplate&, std::span<const ChatMessage> messages, bool for_generation,
                 ChatWriter& out) {
  out.marker("<|endoftext|>");
  for (const ChatMessage& message : messages) {
    const bool answers = message.role == "assistant";
    out.text(str("<|", message.role, "|>\n"));
    out.begin(message);
    out.text(message.content);
    if (answers) out.marker("<|endoftext|>");
    out.end();
    if (!answers || &message != &messages.back()) out.text("\n");
  }
  if (for_generation) out.text("<|assistant|>\n");
}

constexpr std::array<NamedChatFormat, 10> kFormats = {{
    {"plain", ChatFormat::plain, write_plain},
    {"chatml", ChatFormat::chatml, write_chatml},
    {"qwen3", ChatFormat::qwen3, write_qwen3},
    {"llama3", ChatFormat::llama3, write_llama3},
    {"llama3.1", ChatFormat::llama31, write_llama3},
    {"glm4", ChatFormat::glm4, write_glm4},
    {"mistral", ChatFormat::mistral, write_mistral},
    {"gemma", ChatFormat::gemma, write_gemma},
    {"phi3", ChatFormat::phi3, write_phi3},
    {"olmo2", ChatFormat::olmo2, write_olmo2},
}};

}  // namespace

std::span<const NamedChatFormat> chat_formats() noexcept { return kFormats; }

}  // namespace strata::detail
