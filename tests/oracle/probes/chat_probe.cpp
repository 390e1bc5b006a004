// Renders conversations for chat_check.py: reads a JSON list of requests from stdin and prints a JSON list of
// answers.
//   request: {"template": {"jinja": TEXT} or {"name": NAME, FIELD: VALUE...}, "messages": [{"role",
//   "content"}...],
//             "generate": BOOL}
//   answer:  {"format": NAME, "jinja": strata's own, "text": TEXT} or {"error": MESSAGE}
#include <iostream>
#include <iterator>

#include <nlohmann/json.hpp>

#include <strata/model/chat.h>

namespace strata {
namespace {

using nlohmann::json;

Result<ChatTemplate> template_of(const json& asked) {
  if (asked.contains("jinja")) return detect_chat_template(asked["jinja"].get<std::string>());
  STRATA_TRY_ASSIGN(ChatTemplate chat, chat_template_named(asked["name"].get<std::string>()));
  chat.system = asked.value("system", chat.system);
  chat.date = asked.value("date", chat.date);
  chat.newline_in_prompt = asked.value("newline_in_prompt", chat.newline_in_prompt);
  chat.space_after_turn = asked.value("space_after_turn", chat.space_after_turn);
  chat.takes_system = asked.value("takes_system", chat.takes_system);
  chat.with_bos = asked.value("with_bos", chat.with_bos);
  chat.with_eos = asked.value("with_eos", chat.with_eos);
  return chat;
}

json answer(const json& request) {
  const Result<ChatTemplate> chat = template_of(request["template"]);
  if (!chat.has_value()) return {{"error", std::string(chat.status().message())}};
  std::vector<ChatMessage> messages;
  for (const json& message : request["messages"])
    messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  json out = {{"format", chat_template_name(chat->format)}, {"jinja", chat_template_jinja(*chat)}};
  const Result<ChatText> text = apply_chat_template(*chat, messages, request["generate"].get<bool>());
  if (text.has_value())
    out["text"] = text->text;
  else
    out["error"] = std::string(text.status().message());
  return out;
}

}  // namespace
}  // namespace strata

int main() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  nlohmann::json answers = nlohmann::json::array();
  for (const nlohmann::json& request : nlohmann::json::parse(text))
    answers.push_back(strata::answer(request));
  std::cout << answers.dump() << '\n';
}
