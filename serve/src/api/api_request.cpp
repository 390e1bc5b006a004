#include <strata/serve/api_request.h>

#include <charconv>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include <strata/runtime/config/json_tree.h>
#include <strata/runtime/str.h>

#include "api/request_fields.h"

namespace strata {
namespace {

using detail::RequestFields;
using Json = nlohmann::json;

constexpr std::size_t kMaxProblemBytes = 300;

/// A field of OpenAI's API that strata does not honour, and the values with which it changes nothing.
struct NeutralField {
  std::string_view name, neutral;
};
constexpr NeutralField kNeutralFields[] = {
    {"service_tier", R"(["auto", "default"])"},
    {"store", "[false]"},
};
constexpr NeutralField kNeutralInCompletions[] = {{"suffix", R"([""])"}};
constexpr NeutralField kNeutralInChat[] = {
    {"audio", "[]"},
    {"function_call", R"(["none"])"},
    {"functions", "[[]]"},
    {"modalities", R"([["text"]])"},
    {"parallel_tool_calls", "[true, false]"},
    {"prediction", "[]"},
    {"reasoning_effort", R"(["none"])"},
    {"tool_choice", R"(["none", "auto"])"},
    {"tools", "[[]]"},
    {"verbosity", R"(["medium"])"},
    {"web_search_options", "[]"},
};
/// They say who asks, or how OpenAI stores and caches.
constexpr std::string_view kFieldsWithoutEffect[] = {"user", "metadata", "safety_identifier",
                                                     "prompt_cache_key", "prompt_cache_retention"};

tl::unexpected<ApiError> refuse(const RequestFields& fields) { return tl::make_unexpected(*fields.error()); }

ApiResult<JsonTree<Json>> read_object(std::string_view body) {
  const auto refused = [](std::string why) {
    return tl::make_unexpected(ApiError{400, std::move(why), {}, "invalid_json"});
  };
  // The parser would take a NUL for the end.
  if (const std::size_t nul = body.find('\0'); nul != std::string_view::npos)
    return refused(str("the body has a NUL at byte ", nul));
  JsonTree<Json> tree;
  if (const std::string problem = tree.read(body); !problem.empty())
    return refused(str("the body is not the JSON of a request: ", problem.substr(0, kMaxProblemBytes)));
  if (!tree.root.is_object())
    return refused(str("the body is JSON of type ", tree.root.type_name(), "; it must be an object"));
  return tree;
}

void read_stop(RequestFields& fields, std::vector<std::string>& stop) {
  const Json* const value = fields.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const Json& each) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty() ||
        each.get_ref<const std::string&>().size() > kMaxStopBytes)
      return fields.fail("stop",
                         str("must be a string of 1 to ", kMaxStopBytes, " bytes, or an array of them"),
                         "invalid_value");
    stop.push_back(each.get<std::string>());
  };
  if (!value->is_array()) return add(*value);
  if (value->size() > kMaxStops)
    return fields.fail("stop", str("has ", value->size(), " texts; at most ", kMaxStops, " are supported"),
                       "invalid_value");
  for (const Json& each : *value) add(each);
}

void read_stream(RequestFields& fields, AnswerOptions& options) {
  options.stream = fields.flag("stream").value_or(false);
  const Json* const value = fields.find("stream_options");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.fail("stream_options", "must be an object", "invalid_type");
  if (!options.stream) return fields.fail("stream_options", "needs 'stream': true", "invalid_value");
  RequestFields inner(*value, "stream_options.");
  options.include_usage = inner.flag("include_usage").value_or(false);
  inner.accept_only("include_obfuscation", "[false, true]");
  inner.refuse_others();
  fields.adopt(inner.error());
}

/// The id that a key of "logit_bias" is, without signs, spaces and leading zeros.
std::optional<std::int32_t> token_id_of(std::string_view key) {
  std::int32_t id = -1;
  const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (code != std::errc() || end != key.data() + key.size() || id < 0 || std::to_string(id) != key)
    return std::nullopt;
  return id;
}

void read_logit_bias(RequestFields& fields, std::vector<LogitBias>& bias) {
  const Json* const value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object())
    return fields.fail("logit_bias", "must be an object with ids of tokens and numbers", "invalid_type");
  if (value->size() > kMaxBiasedTokens)
    return fields.fail("logit_bias",
                       str("has ", value->size(), " tokens; at most ", kMaxBiasedTokens, " are supported"),
                       "invalid_value");
  RequestFields inner(*value, "logit_bias.");
  for (const auto& [key, each] : value->items()) {
    const auto id = token_id_of(key);
    if (!id) inner.fail(key, "is no id of a token, which is a whole number from 0", "invalid_value");
    bias.push_back({id.value_or(0), inner.number(key, -kMaxLogitBias, kMaxLogitBias).value_or(0)});
    if (inner.error()) return fields.adopt(inner.error());
  }
}

void read_sampling(RequestFields& fields, SamplingOptions& sampling) {
  sampling.temperature = fields.number("temperature", 0, 100).value_or(1);
  sampling.top_k = fields.integer("top_k", 0, std::int64_t{1} << 20).value_or(0);
  sampling.top_p = fields.number("top_p", 0, 1).value_or(1);
  if (sampling.top_p == 0) fields.fail("top_p", "is 0; it must be above 0 and at most 1", "invalid_value");
  sampling.min_p = fields.number("min_p", 0, 1).value_or(0);
  sampling.presence_penalty = fields.number("presence_penalty", -kMaxPenalty, kMaxPenalty).value_or(0);
  sampling.frequency_penalty = fields.number("frequency_penalty", -kMaxPenalty, kMaxPenalty).value_or(0);
  sampling.repetition_penalty = fields.number("repetition_penalty", 0, kMaxRepetitionPenalty).value_or(1);
  if (sampling.repetition_penalty == 0)
    fields.fail("repetition_penalty", str("is 0; it must be above 0 and at most ", kMaxRepetitionPenalty),
                "invalid_value");
  read_logit_bias(fields, sampling.logit_bias);
}

/// Whether the answer must be a JSON object.
bool read_response_format(RequestFields& fields) {
  const Json* const value = fields.find("response_format");
  if (value == nullptr) return false;
  if (!value->is_object()) {
    fields.fail("response_format", "must be an object", "invalid_type");
    return false;
  }
  RequestFields inner(*value, "response_format.");
  const std::string type = inner.text("type").value_or("");
  if (type != "text" && type != "json_object")
    inner.fail("type", "must be \"text\" or \"json_object\"; schemas are not supported here",
               "unsupported_parameter");
  inner.refuse_others();
  fields.adopt(inner.error());
  return type == "json_object";
}

void read_options(RequestFields& fields, AnswerOptions& options) {
  options.model = fields.text("model");
  read_sampling(fields, options.sampling);
  using Limits = std::numeric_limits<std::int64_t>;
  if (const auto seed = fields.integer("seed", Limits::min(), Limits::max()))
    options.seed = static_cast<std::uint64_t>(*seed);
  options.n = fields.integer("n", 1, kMaxAnswers).value_or(1);
  options.json_object = read_response_format(fields);
  read_stop(fields, options.stop);
  read_stream(fields, options);
  for (const NeutralField& field : kNeutralFields) fields.accept_only(field.name, field.neutral);
  for (const std::string_view name : kFieldsWithoutEffect) fields.ignore(name);
}

std::optional<std::vector<std::int32_t>> token_ids(const Json& array) {
  std::vector<std::int32_t> ids;
  for (const Json& id : array) {
    const auto number = detail::whole_number(id);
    if (!number || *number < 0 || *number > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    ids.push_back(static_cast<std::int32_t>(*number));
  }
  if (ids.empty()) return std::nullopt;
  return ids;
}

void read_prompts(RequestFields& fields, std::vector<PromptInput>& prompts) {
  constexpr const char* kForms =
      "must be a string, an array of strings, an array of token ids, or an array of such arrays, none of "
      "them "
      "empty";
  const Json* const value = fields.find("prompt");
  if (value == nullptr) return fields.fail("prompt", "is missing", "missing_required_parameter");
  const auto add = [&](const Json& each) {
    if (each.is_string()) {
      prompts.emplace_back(each.get<std::string>());
    } else if (auto ids = each.is_array() ? token_ids(each) : std::nullopt) {
      prompts.emplace_back(*std::move(ids));
    } else {
      fields.fail("prompt", kForms, "invalid_type");
    }
  };
  const bool is_one =
      value->is_string() || (value->is_array() && !value->empty() && value->front().is_number());
  if (is_one) return add(*value);
  if (!value->is_array() || value->empty()) return fields.fail("prompt", kForms, "invalid_type");
  for (const Json& each : *value) add(each);
}

std::string role_named(const std::string& role) { return role == "developer" ? "system" : role; }

/// Texts of the parts of a content.
void read_parts(RequestFields& fields, const Json& parts, std::string& content) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string where = str("content[", i, "]");
    if (!parts[i].is_object()) return fields.fail(where, "must be an object", "invalid_type");
    RequestFields part(parts[i], str(fields.path(), where, "."));
    const std::string type = part.text("type").value_or("");
    if (!part.error() && type != "text")
      part.fail("type", "must be \"text\": the model reads nothing else", "unsupported_content");
    const auto text = part.text("text");
    if (!part.error() && !text) part.fail("text", "is missing", "missing_required_parameter");
    part.refuse_others();
    if (part.error()) return fields.adopt(part.error());
    content += *text;
  }
}

std::optional<ApiError> read_message(const Json& value, const std::string& path, ChatMessage& message) {
  RequestFields fields(value, path);
  const auto role = fields.text("role");
  message.role = role_named(role.value_or(""));
  // The answers of tools belong to calls, of which this API writes none.
  if (!fields.error() && (!is_chat_role(message.role) || message.role == "tool"))
    fields.fail("role", "must be one of developer, system, user, assistant", "invalid_value");
  const Json* const content = fields.find("content");
  if (content == nullptr) {
    fields.fail("content", "is missing", "missing_required_parameter");
  } else if (content->is_array() && !content->empty()) {
    read_parts(fields, *content, message.content);
  } else if (const auto text = fields.text("content")) {
    message.content = *text;
  }
  (void)fields.text("name");  // the name of a participant, which no template that is known here writes
  // An answer of this API, sent back.
  for (const std::string_view name : {"refusal", "audio", "function_call", "reasoning_content"})
    fields.accept_only(name, "[]");
  for (const std::string_view name : {"tool_calls", "annotations"}) fields.accept_only(name, "[[]]");
  fields.refuse_others();
  return fields.error();
}

void read_messages(RequestFields& fields, std::vector<ChatMessage>& messages) {
  const Json* const value = fields.find("messages");
  if (value == nullptr) return fields.fail("messages", "is missing", "missing_required_parameter");
  if (!value->is_array() || value->empty())
    return fields.fail("messages", "must be an array of at least one message", "invalid_type");
  for (const Json& each : *value) {
    const std::string where = str("messages[", messages.size(), "]");
    if (!each.is_object()) return fields.fail(where, "must be an object", "invalid_type");
    const auto error = read_message(each, str(where, "."), messages.emplace_back());
    if (error) return fields.adopt(error);
  }
}

/// "chat_template_kwargs", as vLLM and llama.cpp have them, and "enable_thinking", which others have alone.
std::string read_template_arguments(RequestFields& fields) {
  Json arguments = Json::object();
  if (const Json* const given = fields.find("chat_template_kwargs")) {
    if (given->is_object())
      arguments = *given;
    else
      fields.fail("chat_template_kwargs", "must be an object", "invalid_type");
  }
  if (const auto thinks = fields.flag("enable_thinking")) {
    if (arguments.contains("enable_thinking"))
      fields.fail("enable_thinking", "is in 'chat_template_kwargs', too", "invalid_value");
    arguments["enable_thinking"] = *thinks;
  }
  return arguments.empty() ? std::string() : arguments.dump();
}

std::optional<std::int64_t> read_chat_logprobs(RequestFields& fields) {
  const bool wanted = fields.flag("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !wanted) fields.fail("top_logprobs", "needs 'logprobs': true", "invalid_value");
  return wanted ? std::optional(top.value_or(0)) : std::nullopt;
}

}  // namespace

ApiResult<CompletionRequest> parse_completion_request(std::string_view body) {
  const auto tree = read_object(body);
  if (!tree.has_value()) return tl::make_unexpected(tree.error());
  RequestFields fields(tree->root);
  CompletionRequest request;
  read_options(fields, request.options);
  read_prompts(fields, request.prompts);
  request.echo = fields.flag("echo").value_or(false);
  request.logprobs = fields.integer("logprobs", 0, kMaxTopLogprobs);
  // Only an echo says something without new tokens.
  request.options.max_tokens = fields.integer("max_tokens", request.echo ? 0 : 1, kMaxTokensAsked);
  if (const auto best_of = fields.integer("best_of", 1, kMaxAnswers);
      best_of && *best_of != request.options.n)
    fields.fail("best_of",
                str("is ", *best_of, ", and 'n' is ", request.options.n,
                    "; answers are not chosen by their likelihood, so they must be the same"),
                "unsupported_parameter");
  for (const NeutralField& field : kNeutralInCompletions) fields.accept_only(field.name, field.neutral);
  fields.refuse_others();
  if (fields.error()) return refuse(fields);
  return request;
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body) {
  const auto tree = read_object(body);
  if (!tree.has_value()) return tl::make_unexpected(tree.error());
  RequestFields fields(tree->root);
  ChatRequest request;
  read_options(fields, request.options);
  read_messages(fields, request.messages);
  request.template_arguments = read_template_arguments(fields);
  request.options.max_tokens = fields.integer("max_completion_tokens", 1, kMaxTokensAsked);
  const auto older = fields.integer("max_tokens", 1, kMaxTokensAsked);
  if (older && request.options.max_tokens)
    fields.fail("max_tokens", "is the older name of max_completion_tokens, which is there, too",
                "invalid_value");
  if (older) request.options.max_tokens = older;
  request.logprobs = read_chat_logprobs(fields);
  for (const NeutralField& field : kNeutralInChat) fields.accept_only(field.name, field.neutral);
  fields.refuse_others();
  if (fields.error()) return refuse(fields);
  return request;
}

}  // namespace strata
