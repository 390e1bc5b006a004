#include <strata/text/prompts.h>

#include <algorithm>
#include <map>
#include <utility>

#include <strata/text/documents.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "data/records/record_forms.h"
#include "data/records/record_reader.h"
#include "text/large_integer.h"
#include <strata/runtime/config/strict_json.h>
#include "text/adapter_choice.h"

namespace strata {
namespace {

using detail::messages_at;
using detail::Outcome;
using detail::RecordJson;
using detail::RecordParts;
using detail::string_at;
using detail::tools_at;

Status wrong(const std::string& what) { return Status::error(Code::invalid, what); }

Result<Prompt> invalid_prompt(const Outcome& problem) { return wrong(problem->message); }

/// The conversation before the answer at its end.
Result<Prompt> asked_of(RecordParts parts) {
  Prompt prompt;
  if (parts.chats.empty()) return wrong("it has no 'prompt', and is no conversation");
  prompt.messages = std::move(parts.chats.front());
  prompt.tools = std::move(parts.tools);
  while (prompt.messages.size() > 1 && prompt.messages.back().role == "assistant") prompt.messages.pop_back();
  return prompt;
}

/// The prompt of a record in one of the forms of texts or conversations. `used`: the keys that are read.
Result<Prompt> prompt_of_form(const RecordJson& record, std::vector<std::string>& used) {
  const detail::RecordForm* form = nullptr;
  if (find_form(record, RecordUse::texts, form).has_value() || form->keys == "text")
    return wrong(
        str("it has none of 'prompt', 'messages', 'conversations', and 'instruction' with 'output'; ",
            detail::keys_of(record)));
  used = keys_read(*form);
  RecordParts parts, as_text;
  if (const Outcome problem = form->read(record, false, parts)) return invalid_prompt(problem);
  STRATA_TRY_ASSIGN(Prompt prompt, asked_of(std::move(parts)));
  if (!form->may_be_text) return prompt;
  if (const Outcome problem = form->read(record, true, as_text)) return invalid_prompt(problem);
  as_text.texts.front().pop_back();  // the answer
  for (const Segment& segment : as_text.texts.front()) prompt.text += segment.text;
  return prompt;
}

Result<Prompt> prompt_at_key(const RecordJson& record) {
  Prompt prompt;
  if (record["prompt"].is_array()) {
    if (const Outcome problem = messages_at(record, "prompt", prompt.messages))
      return invalid_prompt(problem);
    if (const Outcome problem = tools_at(record, prompt.tools)) return invalid_prompt(problem);
    return prompt;
  }
  const std::string* text = nullptr;
  if (const Outcome problem = string_at(record, "prompt", false, text)) return invalid_prompt(problem);
  prompt.text = *text;
  return prompt;
}

/// Parses one record and counts its unused keys.
Result<Prompt> prompt_of(const detail::Record& line, std::map<std::string, int>& ignored_keys) {
  STRATA_TRY_ASSIGN(const RecordJson record, detail::parse_strict_ordered_json(line.text));
  if (!record.is_object()) return wrong(str("it must be an object, not ", detail::kind_of(record)));
  std::vector<std::string> used = {"prompt", "tools"};
  // As for training, a prompt beside a conversation is its beginning once more.
  const bool has_key = record.contains("prompt") && !record.contains("messages");
  STRATA_TRY_ASSIGN(Prompt prompt, has_key ? prompt_at_key(record) : prompt_of_form(record, used));
  if (const auto large = detail::large_integer_in(line.text, used)) return wrong(why_refused(*large));
  STRATA_TRY_ASSIGN(prompt.adapter, detail::adapter_choice(record));
  used.emplace_back("adapter");
  for (const auto& [key, value] : record.items())
    if (std::find(used.begin(), used.end(), key) == used.end()) ++ignored_keys[key];
  // Rewards are given it on one line.
  prompt.record = line.in_array ? record.dump() : line.text;
  return prompt;
}

}  // namespace

Result<std::vector<Prompt>> read_prompts(Io& io, const std::string& path,
                                         const std::function<void(std::string_view)>& warn) {
  std::vector<Prompt> prompts;
  std::map<std::string, int> ignored_keys;
  const bool records = has_records(path);
  const auto one = [&](const detail::Record& line) -> Status {
    const std::string where = str(path, ": ", line.where(), ": ");
    if (line.too_long) return wrong(str(where, "longer than ", kMaxRecordBytes, " bytes"));
    if (line.text.find_first_not_of(" \t\r") == std::string::npos) return Status::ok();
    if (!records) {
      const bool returns = line.text.back() == '\r';  // CRLF line ends
      prompts.push_back({line.text.substr(0, line.text.size() - (returns ? 1 : 0)), {}});
      return Status::ok();
    }
    auto prompt = prompt_of(line, ignored_keys);
    if (!prompt.has_value()) return wrong(where + std::string(prompt.status().message()));
    prompts.push_back(*std::move(prompt));
    return Status::ok();
  };
  STRATA_TRY((records ? detail::for_each_record(io, path, kMaxRecordBytes, one)
                      : detail::for_each_line(io, path, kMaxRecordBytes, one))
                 .status());
  if (prompts.empty()) return wrong(str(path, " has no prompts"));
  for (const auto& [key, n] : ignored_keys)
    warn(str(path, ": '", key, "' of ", plural(n, "record"), " is ignored"));
  return prompts;
}

Result<PromptTokens> encode_prompt(const Tokenizer& tokenizer, const Prompt& prompt, const ChatTemplate& chat,
                                   std::span<const std::int32_t> ends) {
  PromptTokens out;
  if (prompt.messages.empty() || (!prompt.text.empty() && chat.name() == "plain")) {
    out.ids = tokenizer.encode(prompt.text, SpecialTokens::as_text, AddSpecialTokens::yes);
  } else {
    STRATA_TRY_ASSIGN(const ChatText text, apply_chat_template(chat, prompt.messages, true, prompt.tools));
    STRATA_TRY_ASSIGN(ChatTokens tokens, encode_chat(tokenizer, text));
    out.ids = std::move(tokens.ids);
    out.stop_ids.assign(ends.begin(), ends.end());
  }
  if (out.ids.empty()) return wrong("the prompt is empty; give at least one character to continue");
  return out;
}

// An answer and a question of one letter are written behind it, as any others are.
std::size_t lasting_tokens(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                           const ChatTemplate& chat, std::span<const std::int32_t> prompt) {
  std::vector<ChatMessage> later(messages.begin(), messages.end());
  later.push_back({"assistant", "x"});
  later.push_back({"user", "x"});
  const auto next = encode_prompt(tokenizer, {{}, later}, chat, {});
  if (!next.has_value() || prompt.empty()) return 0;
  const auto same = std::mismatch(prompt.begin(), prompt.end() - 1, next->ids.begin(), next->ids.end());
  return static_cast<std::size_t>(same.first - prompt.begin());
}

}  // namespace strata
