// The texts of render_chat() as Jinja, for folders that others read.
#include <strata/model/chat.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// A Jinja expression that prints `text`.
std::string print(std::string_view text) {
  std::string out = "{{ '";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "' }}";
}

std::string for_each_message(std::string_view body) {
  return str("{% for message in messages %}", body, "{% endfor %}");
}
std::string where_asked_to_go_on(std::string_view text) {
  return str("{% if add_generation_prompt %}", print(text), "{% endif %}");
}
std::string without_a_system_message(std::string_view text) {
  return str("{% if messages[0]['role'] != 'system' %}", print(text), "{% endif %}");
}

constexpr std::string_view kRole = "{{ message['role'] }}", kContent = "{{ message['content'] }}",
                           kTrimmed = "{{ message['content'] | trim }}";

std::string plain_jinja() {
  return for_each_message(str("{% if message['role'] == 'system' %}", print("System:\n"),
                              "{% elif message['role'] == 'user' %}", print("User:\n"), "{% else %}",
                              print("Assistant:\n"), "{% endif %}", kContent, print("\n"))) +
         where_asked_to_go_on("Assistant:\n");
}

std::string chatml_jinja(const ChatTemplate& chat) {
  std::string out;
  if (!chat.system.empty())
    out += without_a_system_message(str("<|im_start|>system\n", chat.system, "<|im_end|>\n"));
  return out +
         for_each_message(str(print("<|im_start|>"), kRole, print("\n"), kContent, print("<|im_end|>\n"))) +
         where_asked_to_go_on("<|im_start|>assistant\n");
}

std::string llama_jinja(const ChatTemplate& chat) {
  constexpr std::string_view kBegin = "<|start_header_id|>", kEnd = "<|end_header_id|>\n\n";
  const bool dated = chat.format == ChatFormat::llama31;
  const std::string dates = str("Cutting Knowledge Date: December 2023\nToday Date: ", chat.date, "\n\n");
  std::string out = print("<|begin_of_text|>");
  if (dated) out += without_a_system_message(str(kBegin, "system", kEnd, dates, "<|eot_id|>"));
  const std::string system =
      dated ? str("{% if loop.first and message['role'] == 'system' %}", print(dates), "{% endif %}") : "";
  return out +
         for_each_message(str(print(kBegin), kRole, print(kEnd), system, kTrimmed, print("<|eot_id|>"))) +
         where_asked_to_go_on(str(kBegin, "assistant", kEnd));
}

std::string glm_jinja(const ChatTemplate& chat) {
  return print("[gMASK]<sop>") + for_each_message(str(print("<|"), kRole, print("|>\n"), kContent)) +
         where_asked_to_go_on(chat.newline_in_prompt ? "<|assistant|>\n" : "<|assistant|>");
}

}  // namespace

std::string chat_template_jinja(const ChatTemplate& chat) {
  switch (chat.format) {
    case ChatFormat::plain:
      return plain_jinja();
    case ChatFormat::chatml:
      return chatml_jinja(chat);
    case ChatFormat::llama3:
    case ChatFormat::llama31:
      return llama_jinja(chat);
    case ChatFormat::glm4:
      return glm_jinja(chat);
    default:
      return {};
  }
}

}  // namespace strata
