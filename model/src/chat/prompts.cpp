#include <strata/model/prompts.h>

#include <map>

#include <strata/model/documents.h>
#include <strata/runtime/str.h>

#include "text/lines.h"
#include "text/strict_json.h"

namespace strata {
namespace {

using nlohmann::json;

Status wrong(const std::string& what) { return Status::error(Code::invalid, what); }

Result<std::string> string_at(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_string()) return wrong(str("'", key, "' is not a string"));
  return at->get<std::string>();
}

Result<std::vector<ChatMessage>> messages_of(const json& messages) {
  if (!messages.is_array() || messages.empty())
    return wrong("'messages' is not an array of at least one message");
  std::vector<ChatMessage> read;
  for (const json& message : messages) {
    const std::string where = str("message ", read.size() + 1, " of ", messages.size(), ": ");
    if (!message.is_object()) return wrong(where + "it is not an object");
    auto role = string_at(message, "role"), content = string_at(message, "content");
    if (!role.has_value()) return wrong(where + std::string(role.status().message()));
    if (!content.has_value()) return wrong(where + std::string(content.status().message()));
    for (const auto& [key, value] : message.items())  // e.g. a tool call would change the prompt
      if (key != "role" && key != "content") return wrong(str(where, "'", key, "' is not supported"));
    read.push_back({*std::move(role), *std::move(content)});
  }
  return read;
}

/// Parses one line of a .jsonl file and counts its unused keys.
Result<Prompt> prompt_of(const std::string& line, std::map<std::string, int>& ignored_keys) {
  STRATA_TRY_ASSIGN(const json record, detail::parse_strict_json(line));
  if (!record.is_object() || record.contains("prompt") == record.contains("messages"))
    return wrong("it is not an object with either 'prompt' or 'messages'");
  for (const auto& [key, value] : record.items())
    if (key != "prompt" && key != "messages" && key != "adapter") ++ignored_keys[key];
  Prompt prompt;
  prompt.record = line;
  STRATA_TRY_ASSIGN(prompt.adapter, detail::adapter_choice(record));
  if (record.contains("messages")) {
    STRATA_TRY_ASSIGN(prompt.messages, messages_of(record["messages"]));
  } else {
    STRATA_TRY_ASSIGN(prompt.text, string_at(record, "prompt"));
    if (prompt.text.empty()) return wrong("'prompt' is empty");
  }
  return prompt;
}

}  // namespace

Result<std::vector<Prompt>> read_prompts(Io& io, const std::string& path,
                                         const std::function<void(std::string_view)>& warn) {
  std::vector<Prompt> prompts;
  std::map<std::string, int> ignored_keys;
  const bool records = is_jsonl(path);
  STRATA_TRY(detail::for_each_line(io, path, kMaxRecordBytes, [&](const detail::Line& line) -> Status {
               const std::string where = str(path, ": line ", line.number, ": ");
               if (line.too_long) return wrong(str(where, "longer than ", kMaxRecordBytes, " bytes"));
               if (line.text.find_first_not_of(" \t\r") == std::string::npos) return Status::ok();
               if (!records) {
                 const bool returns = line.text.back() == '\r';  // CRLF line ends
                 prompts.push_back({line.text.substr(0, line.text.size() - (returns ? 1 : 0)), {}});
                 return Status::ok();
               }
               auto prompt = prompt_of(line.text, ignored_keys);
               if (!prompt.has_value()) return wrong(where + std::string(prompt.status().message()));
               prompts.push_back(*std::move(prompt));
               return Status::ok();
             }).status());
  if (prompts.empty()) return wrong(str(path, " has no prompts"));
  for (const auto& [key, n] : ignored_keys) warn(str(path, ": '", key, "' of ", n, " lines is ignored"));
  return prompts;
}

Result<PromptTokens> encode_prompt(const Tokenizer& tokenizer, const Prompt& prompt, const ChatTemplate& chat,
                                   std::span<const std::int32_t> ends) {
  PromptTokens out;
  if (prompt.messages.empty()) {
    out.ids = tokenizer.encode(prompt.text, SpecialTokens::as_text, AddSpecialTokens::yes);
  } else {
    STRATA_TRY_ASSIGN(const ChatText text, apply_chat_template(chat, prompt.messages, true));
    STRATA_TRY_ASSIGN(ChatTokens tokens, encode_chat(tokenizer, text));
    out.ids = std::move(tokens.ids);
    out.stop_ids.assign(ends.begin(), ends.end());
  }
  if (out.ids.empty()) return wrong("the prompt is empty; give at least one character to continue");
  return out;
}

}  // namespace strata
