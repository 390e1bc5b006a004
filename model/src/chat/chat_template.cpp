#include <strata/model/chat.h>

#include <optional>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

#include "chat/chat_writers.h"

namespace strata {
namespace {

using namespace std::string_view_literals;
using detail::chat_formats;
using detail::NamedChatFormat;

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
  for (const NamedChatFormat& format : chat_formats()) names += str(names.empty() ? "" : ", ", format.name);
  return names;
}

std::string_view chat_template_name(ChatFormat format) noexcept {
  for (const NamedChatFormat& known : chat_formats())
    if (known.format == format) return known.name;
  return {};
}

Result<ChatTemplate> chat_template_named(std::string_view name) {
  for (const NamedChatFormat& format : chat_formats())
    if (format.name == name) {
      ChatTemplate out;
      out.format = format.format;
      out.takes_system = format.format == ChatFormat::phi3;
      return out;
    }
  std::vector<std::string_view> names;
  for (const NamedChatFormat& format : chat_formats()) names.push_back(format.name);
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
  detail::ChatWriter out;
  for (const NamedChatFormat& format : chat_formats())
    if (format.format == chat.format) format.write(chat, messages, for_generation, out);
  return out.take();
}

}  // namespace strata
