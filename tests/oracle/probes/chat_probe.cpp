// Renders conversations for chat_check.py: reads a JSON list of requests from stdin and prints a JSON list of
// answers.
//   request: {"template": {"jinja": TEXT} or {"name": NAME}, "words": {"bos_token": TEXT ...},
//             "messages": [{"role", "content"}...], "generate": BOOL}
//   answer:  {"name": NAME, "jinja": TEXT, "text": TEXT, "answers": [[BEGIN, SAID_END, END]...]}
//            or {"error": MESSAGE}
#include <iostream>
#include <iterator>

#include <nlohmann/json.hpp>

#include <strata/text/chat.h>

namespace strata {
namespace {

using nlohmann::json;

Result<ChatTemplate> template_of(const json& request) {
  const json& asked = request["template"];
  if (!asked.contains("jinja")) return ChatTemplate::named(asked["name"].get<std::string>());
  SpecialWords words;
  for (const auto& [name, token] : request["words"].items())
    words.emplace_back(name, token.get<std::string>());
  return ChatTemplate::parse(asked["jinja"].get<std::string>(), words);
}

json answer(const json& request) {
  const Result<ChatTemplate> chat = template_of(request);
  if (!chat.has_value()) return {{"error", std::string(chat.status().message())}};
  std::vector<ChatMessage> messages;
  for (const json& message : request["messages"])
    messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  json out = {{"name", chat->name()}, {"jinja", chat->jinja()}};
  const Result<ChatText> text = apply_chat_template(*chat, messages, request["generate"].get<bool>());
  if (!text.has_value()) {
    out["error"] = std::string(text.status().message());
    return out;
  }
  out["text"] = text->text;
  out["answers"] = json::array();
  for (const ChatAnswer& at : text->answers) out["answers"].push_back({at.begin, at.said_end, at.end});
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
