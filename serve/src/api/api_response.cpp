#include <strata/serve/api_response.h>

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/runtime/utf8.h>

#include "api/json_text.h"

namespace strata {
namespace {

using detail::json_text;
using detail::OrderedJson;

std::string event_of(const OrderedJson& json) { return str("data: ", json_text(json), "\n\n"); }

OrderedJson head_json(const ResponseWriter::Head& head, bool is_chunk) {
  const char* const chat = is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head.id},
          {"object", head.is_chat ? chat : "text_completion"},
          {"created", head.created},
          {"model", head.model}};
}

OrderedJson usage_json(const ApiUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

OrderedJson or_null(const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); }

OrderedJson scores_json(const Tokenizer& tokenizer, const std::vector<TokenScore>& scores) {
  OrderedJson tokens = OrderedJson::array(), logprobs = OrderedJson::array(), top = OrderedJson::array(),
              offsets = OrderedJson::array();
  for (const TokenScore& score : scores) {
    tokens.push_back(token_text(tokenizer, score.id));
    logprobs.push_back(score.logprob ? OrderedJson(*score.logprob) : OrderedJson());
    OrderedJson most = score.logprob ? OrderedJson::object() : OrderedJson();
    for (const auto& [id, logprob] : score.top) most[token_text(tokenizer, id)] = logprob;
    top.push_back(std::move(most));
    offsets.push_back(score.offset);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

OrderedJson model_object(const std::string& name, std::int64_t created) {
  return {{"id", name}, {"object", "model"}, {"created", created}, {"owned_by", "strata"}};
}

OrderedJson completion_choice(const ResponseWriter::Head& head, const Tokenizer& tokenizer,
                              const ApiChoice& choice) {
  return {{"text", choice.text},
          {"index", choice.index},
          {"logprobs", head.with_scores ? scores_json(tokenizer, choice.scores) : OrderedJson()},
          {"finish_reason", or_null(choice.finish_reason)}};
}

OrderedJson token_json(const Tokenizer& tokenizer, std::int32_t id, double logprob) {
  OrderedJson bytes;  // null: there are none
  if (const auto text = tokenizer.decode(std::span(&id, 1)); text.has_value()) {
    bytes = OrderedJson::array();
    for (const char byte : *text) bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", token_text(tokenizer, id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

OrderedJson chat_scores(const ResponseWriter::Head& head, const Tokenizer& tokenizer,
                        const std::vector<TokenScore>& scores) {
  if (!head.with_scores) return {};
  OrderedJson content = OrderedJson::array();
  for (const TokenScore& score : scores) {
    OrderedJson token = token_json(tokenizer, score.id, score.logprob.value_or(0)),
                top = OrderedJson::array();
    for (const auto& [id, logprob] : std::span(score.top).first(std::min(head.n_top, score.top.size())))
      top.push_back(token_json(tokenizer, id, logprob));
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

OrderedJson chat_choice(const ResponseWriter::Head& head, const Tokenizer& tokenizer,
                        const ApiChoice& choice) {
  return {{"index", choice.index},
          {"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
          {"logprobs", chat_scores(head, tokenizer, choice.scores)},
          {"finish_reason", or_null(choice.finish_reason)}};
}

OrderedJson chat_delta(std::size_t index, OrderedJson delta, OrderedJson logprobs,
                       const std::string& finish_reason) {
  return {{"index", index},
          {"delta", std::move(delta)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", or_null(finish_reason)}};
}

}  // namespace

std::string ResponseWriter::whole(const std::vector<ApiChoice>& choices, const ApiUsage& usage) const {
  OrderedJson list = OrderedJson::array();
  for (const ApiChoice& choice : choices)
    list.push_back(head_.is_chat ? chat_choice(head_, tokenizer_, choice)
                                 : completion_choice(head_, tokenizer_, choice));
  OrderedJson json = head_json(head_, false);
  json["choices"] = std::move(list);
  json["usage"] = usage_json(usage);
  return json_text(json);
}

std::string ResponseWriter::begin_event(std::size_t choice) const {
  if (!head_.is_chat) return {};
  OrderedJson json = head_json(head_, true);
  json["choices"] =
      OrderedJson::array({chat_delta(choice, {{"role", "assistant"}, {"content", ""}}, {}, "")});
  return event_of(json);
}

std::string ResponseWriter::event(const ApiChoice& choice) const {
  OrderedJson json = head_json(head_, true);
  OrderedJson delta = OrderedJson::object();
  if (!choice.text.empty()) delta["content"] = choice.text;
  OrderedJson logprobs =
      choice.scores.empty() ? OrderedJson() : chat_scores(head_, tokenizer_, choice.scores);
  json["choices"] = OrderedJson::array(
      {head_.is_chat ? chat_delta(choice.index, std::move(delta), std::move(logprobs), choice.finish_reason)
                     : completion_choice(head_, tokenizer_, choice)});
  return event_of(json);
}

std::string ResponseWriter::usage_event(const ApiUsage& usage) const {
  OrderedJson json = head_json(head_, true);
  json["choices"] = OrderedJson::array();
  json["usage"] = usage_json(usage);
  return event_of(json);
}

std::string error_event(const std::string& error_json) { return str("data: ", error_json, "\n\n"); }

std::string models_json(const std::vector<std::string>& names, std::int64_t created) {
  OrderedJson list = OrderedJson::array();
  for (const std::string& name : names) list.push_back(model_object(name, created));
  return json_text({{"object", "list"}, {"data", std::move(list)}});
}

std::string model_json(const std::string& name, std::int64_t created) {
  return json_text(model_object(name, created));
}

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  const auto bytes = tokenizer.decode(std::span(&id, 1));
  if (!bytes.has_value()) return str("token:", id);  // a row of the model without a token
  if (is_utf8(*bytes)) return *bytes;
  std::string text = "bytes:";
  for (const char byte : *bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace strata
