#include <strata/model/chat.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

#include "tokenizer/added_tokens.h"

namespace strata {
namespace {

using namespace std::string_view_literals;

/// Appends to a text and records the ranges of its markers and messages.
class Writer {
 public:
  void marker(std::string_view text) {
    out_.markers.push_back({out_.text.size(), out_.text.size() + text.size()});
    out_.text += text;
  }
  void text(std::string_view text) { out_.text += text; }
  /// Begins the written range of the next message; end() ends it.
  void begin(const ChatMessage& message) {
    out_.written.push_back({out_.text.size(), out_.text.size()});
    out_.loss_mask.push_back(message.role == "assistant");
  }
  void end() { out_.written.back().end = out_.text.size(); }
  ChatText take() { return std::move(out_); }

 private:
  ChatText out_;
};

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
    text = text.substr(0, detail::without_trailing_spaces(text));
    text.remove_prefix(detail::leading_spaces(text));
    text = trimmed(text, kSeparators);
  }
  return text;
}

/// Without special tokens; a line break ends a turn.
void write_plain(const ChatTemplate&, std::span<const ChatMessage> messages, bool for_generation,
                 Writer& out) {
  for (const ChatMessage& message : messages) {
    out.text(message.role == "system" ? "System:\n" : message.role == "user" ? "User:\n" : "Assistant:\n");
    out.begin(message);
    out.text(message.content);
    out.text("\n");
    out.end();
  }
  if (for_generation) out.text("Assistant:\n");
}

void begin_im(std::string_view role, Writer& out) {
  out.marker("<|im_start|>");
  out.text(role);
  out.text("\n");
}
void end_im(Writer& out) { out.marker("<|im_end|>"); }

void write_chatml(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool for_generation,
                  Writer& out) {
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
                 Writer& out) {
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

void begin_header(std::string_view role, Writer& out) {
  out.marker("<|start_header_id|>");
  out.text(role);
  out.marker("<|end_header_id|>");
  out.text("\n\n");
}

void write_llama3(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool for_generation,
                  Writer& out) {
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
                Writer& out) {
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

void write_mistral(const ChatTemplate& chat, std::span<const ChatMessage> messages, bool, Writer& out) {
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
                 Writer& out) {
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
                Writer& out) {
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
                 Writer& out) {
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

/// Checks that questions and answers alternate, after a system message if the template accepts one.
Status check_turns(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  const bool told =
      chat.format == ChatFormat::gemma && chat.takes_system && messages.front().role == "system";
  for (std::size_t i = told ? 1 : 0; i < messages.size(); ++i) {
    const std::string_view want = (i - (told ? 1 : 0)) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != want)
      return Status::error(Code::unsupported,
                           str("message ", i, " has the role '", messages[i].role, "', but the ",
                               chat_template_name(chat.format), " template requires '", want, "'"));
  }
  return messages.size() > (told ? 1u : 0u)
             ? Status::ok()
             : Status::error(Code::unsupported,
                             "a system message without a question, to which this template joins it");
}

/// Checks that there is no system message, for a template that would ignore it.
Status check_no_system_message(std::span<const ChatMessage> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == "system")
      return Status::error(Code::unsupported,
                           str("message ", i, " has the role 'system', which this phi3 template ignores"));
  return Status::ok();
}

struct Format {
  std::string_view name;
  ChatFormat format;
  void (*write)(const ChatTemplate&, std::span<const ChatMessage>, bool, Writer&);
};
constexpr std::array<Format, 10> kFormats = {{
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

Status unknown(std::string_view what, std::string_view meant = {}) {
  return Status::error(Code::unsupported, str(what, "; choose one by name: ", chat_template_names(), meant));
}

/// The default system message of a ChatML template: the literal text in it between the system markers.
std::string default_system(std::string_view jinja) {
  for (const std::string_view begin : {"<|im_start|>system\\n"sv, "<|im_start|>system\n"sv})
    for (std::size_t at = jinja.find(begin); at != std::string_view::npos; at = jinja.find(begin, at + 1)) {
      const std::string_view rest = jinja.substr(at + begin.size());
      const std::string_view said = rest.substr(0, rest.find_first_of("'\"{<"));
      if (!said.empty() && rest.substr(said.size()).starts_with("<|im_end|>")) return std::string(said);
    }
  return {};
}

}  // namespace

Digest ChatTemplate::digest() const {
  // The texts of two conversations with all roles depend on every field, and on the code of the writers.
  const std::vector<ChatMessage> asked = {{"user", "q"}, {"assistant", "<think>t</think>a"}, {"user", "r"}};
  const std::vector<ChatMessage> told = {{"system", " s "}, {"user", "q"}, {"assistant", "a"}};
  Digester digester;
  for (const auto* messages : {&asked, &told}) {
    const Result<ChatText> chat = apply_chat_template(*this, *messages);
    if (!chat.has_value()) {  // the template does not allow this order
      digester.update("-");
      continue;
    }
    digester.update(std::string_view(chat->text));
    digester.update(std::as_bytes(std::span(chat->written)));
    digester.update(std::as_bytes(std::span(chat->markers)));
  }
  return digester.digest();
}

std::string chat_template_names() {
  std::string names;
  for (const Format& format : kFormats) names += str(names.empty() ? "" : ", ", format.name);
  return names;
}

std::string_view chat_template_name(ChatFormat format) noexcept {
  for (const Format& known : kFormats)
    if (known.format == format) return known.name;
  return {};
}

Result<ChatTemplate> chat_template_named(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) {
      ChatTemplate out;
      out.format = format.format;
      out.takes_system = format.format == ChatFormat::phi3;
      return out;
    }
  std::vector<std::string_view> names;
  for (const Format& format : kFormats) names.push_back(format.name);
  return unknown(str("no chat template is called '", name.substr(0, 80), "'"), did_you_mean(name, names));
}

namespace {

/// Finds the template whose chat_template_jinja() is this text, for formats whose Jinja
/// detect_chat_template() could not recognize by markers.
std::optional<ChatTemplate> own_template(std::string_view jinja) {
  for (const ChatFormat format :
       {ChatFormat::plain, ChatFormat::mistral, ChatFormat::gemma, ChatFormat::phi3, ChatFormat::olmo2})
    for (const unsigned switches : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u}) {
      ChatTemplate own;
      own.format = format;
      own.takes_system = (switches & 1u) != 0;
      own.space_after_turn = own.with_bos = (switches & 2u) != 0;
      own.with_eos = (switches & 4u) != 0;
      if (jinja == chat_template_jinja(own)) return own;
    }
  return std::nullopt;
}

/// Replaces each "\n" escape by a line break, since a Jinja string may contain either.
std::string with_line_breaks(std::string_view jinja) {
  std::string out;
  for (std::size_t i = 0; i < jinja.size(); ++i) {
    const bool escaped = jinja.substr(i, 2) == "\\n";
    out += escaped ? '\n' : jinja[i];
    if (escaped) ++i;
  }
  return out;
}

}  // namespace

Result<ChatTemplate> detect_chat_template(std::string_view jinja) {
  if (const auto own = own_template(jinja)) return *own;
  const std::string broken = with_line_breaks(jinja);
  const auto has = [&](std::string_view text) { return broken.find(text) != std::string::npos; };
  const bool thinks = has("reasoning_content") || has("<think>") || has("/nothink");
  ChatTemplate out;
  if (has("<|im_start|>") && !has("<|im_sep|>") && (!thinks || has("last_query_index"))) {
    out.format = thinks ? ChatFormat::qwen3 : ChatFormat::chatml;
    if (!thinks) out.system = default_system(jinja);
  } else if (has("<|start_header_id|>") && has("<|eot_id|>") && !thinks) {
    out.format = has("Cutting Knowledge Date") ? ChatFormat::llama31 : ChatFormat::llama3;
  } else if (has("[gMASK]<sop>") && !thinks) {
    out.format = ChatFormat::glm4;
    out.newline_in_prompt = has("<|assistant|>\n{% endif") || has("<|assistant|>\n' }}{% endif");
  } else if (has("'[INST] ' + message['content'] + ' [/INST]'") && !has("system")) {
    out.format = ChatFormat::mistral;
    out.space_after_turn = has("eos_token + ' '");
  } else if (has("<start_of_turn>") && has("<end_of_turn>") && !has("tool")) {
    out.format = ChatFormat::gemma;
    out.takes_system = has("first_user_prefix");
  } else if (has("<|user|>") && has("<|end|>") && has("<|assistant|>") && !thinks) {
    out.format = ChatFormat::phi3;
    out.takes_system = has("<|system|>");
    out.with_bos = has("bos_token");
    out.with_eos = has("eos_token");
  } else if (has("'<|user|>\n' + message['content'] + '\n'") && has("bos_token") &&
             has("message['content'] + eos_token + '\n'") && !thinks) {
    out.format = ChatFormat::olmo2;
  } else if (jinja.empty()) {
    return unknown("the tokenizer has no chat_template");
  } else {
    return unknown(str("the chat_template that begins '", jinja.substr(0, 80), "' is unknown"));
  }
  return out;
}

bool is_chat_role(std::string_view role) noexcept {
  return role == "system" || role == "user" || role == "assistant";
}

Result<ChatText> apply_chat_template(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                                     bool for_generation) {
  if (messages.empty())
    return Status::error(Code::invalid, "a conversation has 0 messages; it needs at least 1");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (!is_chat_role(role))
      return Status::error(Code::unsupported, str("message ", i, " has the role '", role.substr(0, 80),
                                                  "'; the known roles are ", kChatRoles));
  }
  if (chat.format == ChatFormat::mistral || chat.format == ChatFormat::gemma)
    STRATA_TRY(check_turns(chat, messages));
  if (chat.format == ChatFormat::phi3 && !chat.takes_system) STRATA_TRY(check_no_system_message(messages));
  Writer out;
  for (const Format& format : kFormats)
    if (format.format == chat.format) format.write(chat, messages, for_generation, out);
  return out.take();
}

}  // namespace strata
