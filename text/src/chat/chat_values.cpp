#include "chat/chat_values.h"

#include <cstdint>
#include <limits>
#include <utility>

#include <strata/runtime/str.h>

#include "chat/parsed_template.h"
#include "jinja/evaluator.h"
#include <strata/runtime/config/strict_json.h>

namespace strata::detail {
namespace {

using jinja::None;
using jinja::Text;
using jinja::Value;

constexpr std::uint64_t kMaxSigned = std::numeric_limits<std::int64_t>::max();

template <class Json>
Value made_of(const Json& from, jinja::Author author) {
  if (from.is_object()) {
    jinja::Dict dict;
    for (const auto& [key, value] : from.items()) dict.emplace_back(key, made_of(value, author));
    return {std::move(dict)};
  }
  if (from.is_array()) {
    jinja::List list;
    for (const Json& value : from) list.push_back(made_of(value, author));
    return {std::move(list)};
  }
  if (from.is_string()) return {Text(from.template get<std::string>(), author)};
  if (from.is_boolean()) return {from.template get<bool>()};
  if (from.is_number_unsigned() && from.template get<std::uint64_t>() > kMaxSigned)
    return Value::large(from.template get<std::uint64_t>());
  if (from.is_number_integer()) return {from.template get<std::int64_t>()};
  if (from.is_number()) return {from.template get<double>()};
  return {None{}};
}

}  // namespace

Value value_of(const nlohmann::json& from, jinja::Author author) { return made_of(from, author); }

Result<ChatValues> ChatValues::of(std::span<const ChatMessage> messages, const std::string& tools) {
  const std::vector<bool> none(messages.size());
  ChatValues out{{messages.size()}, {}, none, none, Value(None{})};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    jinja::Dict dict = {{"role", Value(message.role)},
                        {"content", Value(Text(message.content, out.authors.content(i)))}};
    if (!message.more.empty()) {
      STRATA_TRY_ASSIGN(const auto more, parse_strict_ordered_json(message.more));
      out.has_calls[i] = more.contains("tool_calls");
      out.has_reasoning[i] = more.contains("reasoning_content");
      for (const auto& [key, value] : more.items())
        if (key == "reasoning_content")  // templates know it by either name
          for (const char* const name : {"reasoning_content", "reasoning"})
            dict.emplace_back(name, made_of(value, out.authors.reasoning(i)));
        else
          dict.emplace_back(key, made_of(value, out.authors.more(i)));
    }
    out.messages.emplace_back(std::move(dict));
  }
  if (!tools.empty()) {
    STRATA_TRY_ASSIGN(const auto list, parse_strict_ordered_json(tools));
    out.tools = made_of(list, out.authors.tools());
  }
  return out;
}

Result<Text> written(const ChatTemplate& chat, const ChatValues& values, std::size_t n, bool for_generation) {
  const ChatTemplate::Parsed& parsed = chat.parsed();
  const auto begin = values.messages.begin();
  jinja::Dict variables = {{"messages", Value(jinja::List(begin, begin + static_cast<std::ptrdiff_t>(n)))},
                           {"add_generation_prompt", Value(for_generation)},
                           {"tools", values.tools},
                           {"documents", Value(None{})}};
  for (const auto& [name, token] : parsed.words) variables.emplace_back(name, Value(token));
  for (const auto& [name, value] : parsed.arguments.items())
    variables.emplace_back(name, value_of(value, jinja::kArgument));
  return jinja::Evaluator(*parsed.body, variables, parsed.day).run();
}

}  // namespace strata::detail
