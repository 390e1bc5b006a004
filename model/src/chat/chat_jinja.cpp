// Jinja templates equivalent to apply_chat_template(), for folders that other programs read.
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

/// Jinja that raises an error if the roles do not alternate, as the families' own templates do.
std::string roles_alternate() {
  return "{% if message['role'] != ('user' if loop.index0 % 2 == 0 else 'assistant') %}"
         "{{ raise_exception('roles must alternate user and assistant') }}{% endif %}";
}

std::string mistral_jinja(const ChatTemplate& chat) {
  return print("<s>") +
         for_each_message(str(roles_alternate(), "{% if message['role'] == 'user' %}", print("[INST] "),
                              kContent, print(" [/INST]"), "{% else %}", kContent,
                              print(chat.space_after_turn ? "</s> " : "</s>"), "{% endif %}"));
}

std::string gemma_jinja(const ChatTemplate& chat) {
  const std::string turn = str(roles_alternate(), print("<start_of_turn>"),
                               "{{ 'model' if message['role'] == 'assistant' else 'user' }}", print("\n"),
                               chat.takes_system ? "{% if loop.first %}{{ system }}{% endif %}" : "",
                               kTrimmed, print("<end_of_turn>\n"));
  std::string out = print("<bos>");
  if (chat.takes_system)
    out +=
        "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\\n\\n' %}"
        "{% set messages = messages[1:] %}"
        "{% if not messages %}{{ raise_exception('a system message needs a question') }}{% endif %}{% else "
        "%}{% set system = '' %}{% endif %}";
  return out + for_each_message(turn) + where_asked_to_go_on("<start_of_turn>model\n");
}

std::string phi3_jinja(const ChatTemplate& chat) {
  std::string out = chat.with_bos ? print("<s>") : "";
  const std::string_view untold = chat.takes_system
                                      ? ""
                                      : "{% if message['role'] == 'system' %}"
                                        "{{ raise_exception('system messages are not written') }}"
                                        "{% endif %}";
  out += for_each_message(str(untold, print("<|"), kRole, print("|>\n"), kContent, print("<|end|>\n")));
  const std::string end = chat.with_eos ? str("{% else %}", print("<|endoftext|>")) : "";
  return out + str("{% if add_generation_prompt %}", print("<|assistant|>\n"), end, "{% endif %}");
}

std::string olmo2_jinja() {
  const std::string turn =
      str(print("<|"), kRole, print("|>\n"), kContent, "{% if message['role'] == 'assistant' %}",
          print("<|endoftext|>"), "{% if not loop.last %}", print("\n"), "{% endif %}{% else %}", print("\n"),
          "{% endif %}");
  return print("<|endoftext|>") + for_each_message(turn) + where_asked_to_go_on("<|assistant|>\n");
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
    case ChatFormat::mistral:
      return mistral_jinja(chat);
    case ChatFormat::gemma:
      return gemma_jinja(chat);
    case ChatFormat::phi3:
      return phi3_jinja(chat);
    case ChatFormat::olmo2:
      return olmo2_jinja();
    default:
      return {};
  }
}

}  // namespace strata
