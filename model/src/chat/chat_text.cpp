// Applies a template and finds in the text what the assistant wrote. A template only says what is written,
// not whose turn it is, so the borders of answers follow from the authors of the bytes and from what the
// template writes for the beginning of the conversation.
#include <strata/model/chat.h>

#include <algorithm>
#include <optional>

#include <strata/runtime/str.h>

#include "chat/parsed_template.h"
#include "jinja/evaluator.h"
#include "text/strict_json.h"

namespace strata {

namespace detail {
namespace {

jinja::Value argument_of(const nlohmann::json& value) {
  using jinja::Value;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return jinja::Text(value.get<std::string>(), jinja::kArgument);
  if (value.is_array()) {
    jinja::List list;
    for (const nlohmann::json& each : value) list.push_back(argument_of(each));
    return Value(std::move(list));
  }
  if (!value.is_object()) return jinja::None{};
  jinja::Dict dict;
  for (const auto& [name, each] : value.items()) dict.emplace_back(name, argument_of(each));
  return Value(std::move(dict));
}

}  // namespace

namespace {

/// A JSON value whose texts have this author. It is at most 64 deep, as the parser has it.
jinja::Value value_of(const nlohmann::ordered_json& json, jinja::Author author) {
  using jinja::Value;
  if (json.is_object()) {
    jinja::Dict dict;
    for (const auto& [key, value] : json.items()) dict.emplace_back(key, value_of(value, author));
    return Value(std::move(dict));
  }
  if (json.is_array()) {
    jinja::List list;
    for (const auto& value : json) list.push_back(value_of(value, author));
    return Value(std::move(list));
  }
  if (json.is_string()) return Value(jinja::Text(json.get<std::string>(), author));
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_integer()) return Value(json.get<std::int64_t>());
  if (json.is_number()) return Value(json.get<double>());
  return Value(jinja::None{});
}

}  // namespace

Result<jinja::Text> written(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                            bool for_generation, const std::string& tools) {
  using jinja::Author;
  using jinja::Dict;
  using jinja::List;
  using jinja::None;
  using jinja::Text;
  using jinja::Value;
  const ChatTemplate::Parsed& parsed = chat.parsed();
  const auto n = static_cast<Author>(messages.size());
  List said;
  for (Author i = 0; i < n; ++i) {
    const ChatMessage& message = messages[static_cast<std::size_t>(i)];
    Dict dict = {{"role", Value(message.role)}, {"content", Value(Text(message.content, i))}};
    if (!message.more.empty()) {
      STRATA_TRY_ASSIGN(const auto more, parse_strict_ordered_json(message.more));
      for (const auto& [key, value] : more.items()) dict.emplace_back(key, value_of(value, n + i));
    }
    said.emplace_back(std::move(dict));
  }
  Value given(None{});
  if (!tools.empty()) {
    STRATA_TRY_ASSIGN(const auto list, parse_strict_ordered_json(tools));
    given = value_of(list, 2 * n);
  }
  Dict variables = {{"messages", Value(std::move(said))},
                    {"add_generation_prompt", Value(for_generation)},
                    {"tools", std::move(given)},
                    {"documents", Value(None{})}};
  for (const auto& [name, token] : parsed.words) variables.emplace_back(name, Value(token));
  for (const auto& [name, value] : parsed.arguments.items()) variables.emplace_back(name, argument_of(value));
  return jinja::Evaluator(*parsed.body, variables, parsed.day).run();
}

}  // namespace detail

namespace {

using detail::jinja::kTemplate;
using detail::jinja::stripped;
using detail::jinja::Text;

/// Where the bytes of each author are: from the first to behind the last one; empty if there are none.
std::vector<ChatRange> contents_of(const Text& text, std::size_t n_authors) {
  std::vector<ChatRange> out(n_authors);
  std::size_t begin = 0;
  for (const Text::Stretch& stretch : text.stretches()) {
    if (stretch.author >= 0) {
      ChatRange& range = out[static_cast<std::size_t>(stretch.author)];
      if (range.begin == range.end) range.begin = begin;
      range.end = stretch.end;
    }
    begin = stretch.end;
  }
  return out;
}

bool has_calls(const ChatMessage& message) {
  return message.more.find("\"tool_calls\"") != std::string::npos;
}

ChatRange joined(ChatRange a, ChatRange b) {
  if (a.begin == a.end) return b;
  if (b.begin == b.end) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

class AnswerFinder {
 public:
  AnswerFinder(const ChatTemplate& chat, std::span<const ChatMessage> messages, const std::string& tools,
               const std::string& text, const std::vector<ChatRange>& contents)
      : chat_(chat), messages_(messages), tools_(tools), text_(text), contents_(contents) {}

  Result<std::vector<ChatAnswer>> find() {
    std::vector<ChatAnswer> out;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role != "assistant") continue;
      STRATA_TRY_ASSIGN(ChatAnswer answer, answer_of(i));
      answer.is_learned = messages_[i].is_learned;
      out.push_back(answer);
    }
    return out;
  }

 private:
  /// What the template writes for the first n messages, if the whole text begins with it.
  std::optional<std::size_t> size_of_beginning(std::size_t n, bool for_generation) const {
    if (n == 0) return std::nullopt;  // templates may look at messages[0]
    const auto before = detail::written(chat_, messages_.first(n), for_generation, tools_);
    if (!before.has_value() || !std::string_view(text_).starts_with(before->bytes())) return std::nullopt;
    return before->size();
  }

  Result<ChatAnswer> answer_of(std::size_t i) {
    const ChatRange said = contents_[i];
    const bool has_said = said.begin < said.end;
    ChatAnswer answer;
    answer.has_calls = has_calls(messages_[i]);
    // What the template writes before and behind calls is its text of calls, not that of every turn.
    const bool is_usual = has_said && !answer.has_calls;
    // The text before and behind the first answer is found by rendering; that of the others is usually the
    // same.
    if (is_usual && !prompt_.empty() && ends_at(prompt_, said.begin)) {
      answer.begin = said.begin;
    } else if (const auto begin = size_of_beginning(i, true); begin && (!has_said || *begin <= said.begin)) {
      answer.begin = *begin;
      if (prompt_.empty()) learn_prompt(i, *begin);
    } else if (has_said) {
      answer.begin = said.begin;
    } else {
      return Status::error(
          Code::unsupported,
          str("message ", i, ": the template does not show where the assistant's answer begins"));
    }
    answer.said_end = has_said ? said.end : answer.begin;
    const std::size_t next = next_content(i);
    if (i + 1 == messages_.size()) {
      answer.end = text_.size();
    } else if (is_usual && !tail_.empty() && begins_at(tail_, answer.said_end)) {
      answer.end = answer.said_end + tail_.size();
    } else if (const auto end = size_of_beginning(i + 1, false);
               end && *end >= answer.said_end && *end <= next) {
      answer.end = *end;
      if (is_usual && tail_.empty()) tail_ = text_.substr(answer.said_end, *end - answer.said_end);
    } else {
      answer.end = next;
    }
    return answer;
  }

  bool ends_at(const std::string& text, std::size_t at) const {
    return at >= text.size() && text_.compare(at - text.size(), text.size(), text) == 0;
  }

  bool begins_at(const std::string& text, std::size_t at) const {
    return text_.compare(at, text.size(), text) == 0;
  }

  void learn_prompt(std::size_t i, std::size_t begin) {
    const auto without = size_of_beginning(i, false);
    if (without && *without < begin) prompt_ = text_.substr(*without, begin - *without);
  }

  std::size_t next_content(std::size_t i) const {
    for (std::size_t k = i + 1; k < messages_.size(); ++k)
      if (contents_[k].begin < contents_[k].end && contents_[k].begin >= contents_[i].end)
        return contents_[k].begin;
    return text_.size();
  }

  const ChatTemplate& chat_;
  const std::span<const ChatMessage> messages_;
  const std::string& tools_;
  const std::string& text_;
  const std::vector<ChatRange>& contents_;
  std::string prompt_, tail_;  // of the first answer
};

Status left_out(const std::string& what) {
  return Status::error(Code::unsupported, str(what, ", which the chat template leaves out"));
}

/// A message that the template leaves out would be lost without a word. An earlier answer may be: templates
/// drop reasoning, which can be all of it. `written`: of the contents, of what else messages have, of the
/// tools.
Status check_all_written(std::span<const ChatMessage> messages, const std::vector<ChatRange>& written,
                         bool for_generation, bool has_tools) {
  const std::size_t n = messages.size();
  const auto is_written = [&](std::size_t author) { return written[author].begin < written[author].end; };
  for (std::size_t i = 0; i < n; ++i) {
    const bool may_be_dropped = for_generation && messages[i].role == "assistant";
    if (!is_written(i) && !may_be_dropped && !stripped(Text(messages[i].content), true, true).empty())
      return left_out(str("message ", i, " has the role '", messages[i].role, "'"));
    if (has_calls(messages[i]) && !is_written(n + i)) return left_out(str("message ", i, " has tool calls"));
  }
  return has_tools && !is_written(2 * n) ? left_out("the conversation has tools") : Status::ok();
}

}  // namespace

Result<ChatText> apply_chat_template(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                                     bool for_generation, const std::string& tools) {
  if (messages.empty())
    return Status::error(Code::invalid, "a conversation has 0 messages; it needs at least 1");
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (const std::string& role = messages[i].role; !is_chat_role(role))
      return Status::error(Code::unsupported, str("message ", i, " has the role '", role.substr(0, 80),
                                                  "'; the known roles are ", kChatRoles));
  auto text = detail::written(chat, messages, for_generation, tools);
  if (!text.has_value()) return text.status().annotate(str("chat template ", chat.name()));
  const std::size_t n = messages.size();
  std::vector<ChatRange> contents = contents_of(*text, 2 * n + 1);
  STRATA_TRY(check_all_written(messages, contents, for_generation, !tools.empty()));
  for (std::size_t i = 0; i < n; ++i) contents[i] = joined(contents[i], contents[n + i]);
  ChatText out;
  if (!for_generation) {
    STRATA_TRY_ASSIGN(out.answers, AnswerFinder(chat, messages, tools, text->bytes(), contents).find());
  }
  std::size_t begin = 0;
  for (const Text::Stretch& stretch : text->stretches()) {
    if (stretch.author == kTemplate) out.of_template.push_back({begin, stretch.end});
    begin = stretch.end;
  }
  out.text = text->bytes();
  out.markers = chat.parsed().markers;
  return out;
}

}  // namespace strata
