// Messages as files of fine-tuning data have them: OpenAI's, and ShareGPT's with other names of keys and
// roles.
#include "data/records/messages.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "text/large_integer.h"
#include <strata/runtime/config/strict_json.h>

namespace strata::detail {
namespace {

struct RoleName {
  std::string_view written, role;
};
constexpr std::string_view kCalls = "function_call";  // an assistant's message that is JSON of calls
constexpr std::array<RoleName, 16> kRoles = {{{"system", "system"},
                                              {"user", "user"},
                                              {"human", "user"},
                                              {"assistant", "assistant"},
                                              {"gpt", "assistant"},
                                              {"chatgpt", "assistant"},
                                              {"bing", "assistant"},
                                              {"bard", "assistant"},
                                              {"model", "assistant"},
                                              {kCalls, "assistant"},
                                              {"tool", "tool"},
                                              {"tool_response", "tool"},
                                              {"function", "tool"},
                                              {"function_response", "tool"},
                                              {"observation", "tool"},
                                              {"ipython", "tool"}}};

std::string_view role_of(std::string_view written) {
  const auto* const found =
      std::find_if(kRoles.begin(), kRoles.end(), [&](const RoleName& r) { return r.written == written; });
  return found == kRoles.end() ? std::string_view() : found->role;
}

/// JSON in a string of a record. `kind` and `what` name it if it is none.
Outcome json_in(const std::string& text, const char* kind, const std::string& what, RecordJson& into) {
  auto parsed = parse_strict_ordered_json(text);
  if (!parsed.has_value())
    return Problem{kind, str(what, " is no JSON: ", shown_text(parsed.status().message()))};
  if (const auto large = large_integer_in(text)) return Problem{"large integer", why_refused(*large)};
  into = *std::move(parsed);
  return {};
}

/// OpenAI has the arguments of a call as JSON in a string, where templates want an object.
Outcome read_arguments(RecordJson& function) {
  if (!function.contains("arguments") || !function["arguments"].is_string()) return {};
  RecordJson arguments;
  constexpr const char* kNoJson = "no JSON";
  const std::string& text = function["arguments"].get_ref<const std::string&>();
  Outcome problem = json_in(text, kNoJson, "", arguments);
  if (problem && problem->kind != kNoJson) return problem;
  if (arguments.is_object()) function["arguments"] = std::move(arguments);  // else it is a text
  return {};
}

/// A list of calls or tools, each as {"type": "function", "function": {...}}. A single one is a list of one.
RecordJson as_functions(RecordJson items) {
  if (items.is_object()) items = RecordJson::array({std::move(items)});
  for (RecordJson& item : items)
    if (item.is_object() && item.contains("name") && !item.contains("function"))
      item = RecordJson{{"type", "function"}, {"function", std::move(item)}};
  return items;
}

Outcome read_calls(RecordJson calls, RecordJson& more) {
  calls = as_functions(std::move(calls));
  if (!calls.is_array() || calls.empty())
    return Problem{"calls", "its tool calls are no objects with 'name' and 'arguments'"};
  for (RecordJson& call : calls) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object() || !function->contains("name"))
      return Problem{"calls", "its tool calls are no objects with 'name' and 'arguments'"};
    if (Outcome problem = read_arguments(*function)) return problem;
  }
  more["tool_calls"] = std::move(calls);
  return {};
}

/// The text of a message, which may be empty: an answer is then learned as an end at once. Null is none, and
/// a list is the text of its parts.
Outcome read_content(const RecordJson& message, const char* key, bool may_be_null, bool may_lack,
                     std::string& into) {
  const auto content = message.find(key);
  if (content == message.end() && may_lack) return {};
  if (content != message.end() && content->is_null() && may_be_null) return {};
  if (content == message.end() || !content->is_array()) {
    const std::string* text = nullptr;
    if (Outcome problem = string_at(message, key, true, text)) return problem;
    into = *text;
    return {};
  }
  for (const RecordJson& part : *content) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text)
      return Problem{
          "parts",
          str("'", key, "' has a part that is no text",
              part.is_object() && part.contains("type") ? str(": ", shown_text(part["type"].dump())) : "")};
    into += part["text"].get_ref<const std::string&>();
  }
  return {};
}

/// OpenAI's weight of a message, 0 or 1; ShareGPT files have it, too, also for those that are not learned.
Outcome read_weight(const RecordJson& weight, ChatMessage& into) {
  const double number = weight.is_number()    ? weight.get<double>()
                        : weight.is_boolean() ? (weight.get<bool>() ? 1 : 0)
                                              : -1;
  const bool is_zero = number == 0, is_one = number == 1;
  if ((!is_zero && !is_one) || (is_one && into.role != "assistant"))
    return Problem{"weight", str("'weight' is ", shown_text(weight.dump()), " in a message of the ",
                                 into.role, "; it may be 0, or 1 in one of the assistant")};
  into.is_learned = is_one;
  return {};
}

/// Reads the reasoning of an answer, which precedes its text. Some programs write it under the shorter name.
Outcome read_reasoning(const std::string& key, const RecordJson& value, std::string_view role,
                       RecordJson& more) {
  if (!value.is_string())
    return Problem{"reasoning", str("'", key, "' must be a string, not ", kind_of(value))};
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty()) return {};
  if (role != "assistant")
    return Problem{"reasoning",
                   str("'", key, "' in a message of the ", role, "; only the assistant reasons")};
  if (more.contains("reasoning_content") && more["reasoning_content"] != value)
    return Problem{"reasoning", "'reasoning_content' and 'reasoning' differ"};
  more["reasoning_content"] = value;
  return {};
}

/// The keys other than those of the role and of the text.
Outcome read_rest(const RecordJson& message, std::string_view role_key, std::string_view content_key,
                  ChatMessage& into, RecordJson& more) {
  for (const auto& [key, value] : message.items()) {
    if (key == role_key || key == content_key || value.is_null()) continue;  // null: tables have every column
    if (key == "weight") {
      if (Outcome problem = read_weight(value, into)) return problem;
    } else if (key == "tool_calls") {
      if (value.is_array() && value.empty()) continue;  // some files have the key in every message
      if (into.role != "assistant")
        return Problem{"calls", str("'tool_calls' has ", plural(value.size(), "call"),
                                    " in a message of the ", into.role, "; only the assistant calls tools")};
      if (Outcome problem = read_calls(value, more)) return problem;
    } else if (key == "reasoning_content" || key == "reasoning") {
      if (Outcome problem = read_reasoning(key, value, into.role, more)) return problem;
    } else if (key == "name" || key == "tool_call_id") {
      more[key] = value;
    } else {
      // It would change what is trained on, so it is not ignored.
      return Problem{"part", str("'", shown_text(key),
                                 "' of a message is not supported; only 'role', 'content', 'weight', 'name', "
                                 "'tool_calls', 'tool_call_id' and 'reasoning_content' are")};
    }
  }
  return {};
}

}  // namespace

Outcome read_message(const RecordJson& message, Messages& said) {
  if (!message.is_object()) return Problem{"message", str("expected an object, not ", kind_of(message))};
  const bool is_sharegpt = !message.contains("role") && message.contains("from");
  const char* const role_key = is_sharegpt ? "from" : "role";
  const char* const content_key =
      is_sharegpt || (!message.contains("content") && message.contains("value")) ? "value" : "content";
  const std::string* role = nullptr;
  if (Outcome problem = string_at(message, role_key, false, role)) return problem;
  ChatMessage read{std::string(role_of(*role)), {}};
  if (read.role.empty())
    return Problem{"unknown role",
                   str("'", role_key, "' is '", shown_text(*role), "'; roles are ", kChatRoles,
                       ", and ShareGPT's human, gpt, function_call and observation")};
  RecordJson more;
  if (Outcome problem = read_rest(message, role_key, content_key, read, more)) return problem;
  const bool has_calls = more.contains("tool_calls");
  const bool may_be_null = read.role != "assistant" || has_calls;
  if (Outcome problem = read_content(message, content_key, may_be_null, has_calls, read.content))
    return problem;
  if (*role == kCalls) {
    RecordJson calls;
    const std::string what = str("'", content_key, "' of a function_call");
    if (Outcome problem = json_in(read.content, "calls", what, calls)) return problem;
    if (Outcome problem = read_calls(std::move(calls), more)) return problem;
    read.content.clear();
  }
  if (!more.is_null()) read.more = more.dump();
  said.push_back(std::move(read));
  return {};
}

Outcome read_messages(const RecordJson& messages, const char* key, Messages& said) {
  if (!messages.is_array()) return Problem{key, str("'", key, "' must be an array, not ", kind_of(messages))};
  if (messages.empty()) return Problem{str("empty ", key), str("'", key, "' is empty")};
  std::size_t n = 0;
  for (const RecordJson& message : messages) {
    ++n;
    if (Outcome problem = read_message(message, said)) {
      problem->message = str("message ", n, " of ", messages.size(), ": ", problem->message);
      return problem;
    }
  }
  return {};
}

Outcome messages_at(const RecordJson& record, const char* key, Messages& said) {
  const auto messages = record.find(key);
  if (messages == record.end()) return Problem{str("no ", key), str("no '", key, "'; ", keys_of(record))};
  return read_messages(*messages, key, said);
}

Outcome tools_at(const RecordJson& record, std::string& tools) {
  tools.clear();
  const auto found = record.find("tools");
  if (found == record.end() || found->is_null()) return {};
  RecordJson list = *found;
  if (list.is_string()) {
    if (list.get_ref<const std::string&>().empty()) return {};
    const std::string text = list.get<std::string>();
    if (Outcome problem = json_in(text, "tools", "'tools' is a string that", list)) return problem;
  }
  list = as_functions(std::move(list));
  if (!list.is_array()) return Problem{"tools", str("'tools' must be an array, not ", kind_of(list))};
  if (!list.empty()) tools = list.dump();
  return {};
}

}  // namespace strata::detail
