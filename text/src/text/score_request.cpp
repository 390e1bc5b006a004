#include <strata/text/score_request.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <strata/text/model_rows.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include <strata/runtime/config/strict_json.h>
#include "text/unicode_ranges.h"
#include <strata/runtime/utf8.h>
#include "text/adapter_choice.h"

namespace strata {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

Status invalid_request(const std::string& what) { return Status::error(Code::invalid, what); }

Status read_string(const json& object, const char* key, std::string& into) {
  const json& value = object[key];
  if (!value.is_string()) return invalid_request(str("'", key, "' is not a string"));
  into = value.get<std::string>();
  return {};
}

Status read_ids(const json& object, const char* key, Ids& into) {
  const json& value = object[key];
  if (!value.is_array()) return invalid_request(str("'", key, "' is not an array of token ids"));
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  for (const json& id : value) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(kMax))
      return invalid_request(str("element ", into.size(), " of '", key, "' is ", id.dump(),
                                 "; a token id is a whole number from 0 to ", kMax));
    into.push_back(id.get<std::int32_t>());
  }
  return {};
}

Status unknown_form() {
  return invalid_request(
      "it has neither 'context' and 'continuation', nor 'context_ids' and 'continuation_ids', nor 'text'");
}

Result<ScoreRequest::Kind> kind_of(const json& record) {
  using enum ScoreRequest::Kind;
  const auto has = [&](const char* key) { return record.contains(key); };
  for (const auto& [key, value] : record.items())
    if (key != "context" && key != "continuation" && key != "context_ids" && key != "continuation_ids" &&
        key != "text" && key != "id" && key != "adapter")
      return invalid_request(str("the key '", key, "' is unknown"));
  const std::size_t keys = record.size() - (has("id") ? 1 : 0) - (has("adapter") ? 1 : 0);
  if (keys == 1 && has("text")) return text;
  if (keys == 2 && has("context") && has("continuation")) return pair;
  if (keys == 2 && has("context_ids") && has("continuation_ids")) return ids;
  return unknown_form();
}

/// Length of `text` without the white space at its end, by Python's str.rstrip().
std::size_t stripped_size(const std::string& text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t at = end - 1;
    while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
    const CodePoint last = code_point_at(text, at);
    const bool separator = last.value >= 0x1C && last.value <= 0x1F;  // space in Python, not in Unicode
    if (at + last.length != end || (!separator && !detail::is_space(last.value))) break;
    end = at;
  }
  return end;
}

/// Encodes with the tokens that the tokenizer adds, unless the text has the prefix already.
Ids encode(const ScoreEncoding& encoding, const std::string& text) {
  const Tokenizer& tokenizer = encoding.tokenizer;
  const bool named = encoding.prefix_id >= 0 && encoding.prefix_id < tokenizer.vocab_size();
  const bool prefixed = named && text.starts_with(tokenizer.token(encoding.prefix_id));
  return tokenizer.encode(text, SpecialTokens::recognised,
                          prefixed ? AddSpecialTokens::no : AddSpecialTokens::yes);
}

Status need_prefix(const ScoreEncoding& encoding, const char* what) {
  if (encoding.prefix_id >= 0) return {};
  return invalid_request(str(what, ", and the model has no token that begins or ends a text"));
}

void encode_pair(const ScoreRequest& request, const ScoreEncoding& encoding, Ids& context,
                 Ids& continuation) {
  if (request.context.empty()) {
    continuation = encoding.tokenizer.encode(request.continuation, SpecialTokens::recognised);
    if (continuation.empty() || continuation.front() != encoding.prefix_id) return;
    context = {encoding.prefix_id};
    continuation.erase(continuation.begin());
    return;
  }
  context = encode(encoding, request.context.substr(0, stripped_size(request.context)));
  continuation = encode(encoding, request.context + request.continuation);
  const std::size_t shared = std::min(context.size(), continuation.size());
  continuation.erase(continuation.begin(), continuation.begin() + static_cast<std::ptrdiff_t>(shared));
}

Status check_rows(const Ids& ids, const char* what, const ScoreEncoding& encoding) {
  return check_token_rows(encoding.tokenizer, ids, encoding.vocab).annotate(what);
}

/// One sequence: as much of the context as there is room for, and the continuation.
Result<ScoreTokens> one_sequence(Ids context, const Ids& continuation, const ScoreEncoding& encoding) {
  STRATA_TRY(check_rows(context, "the context", encoding));
  STRATA_TRY(check_rows(continuation, "the continuation", encoding));
  if (continuation.empty())
    return invalid_request(str("the continuation has no tokens: the context alone has ", context.size(),
                               ", and both together have no more"));
  if (continuation.size() > encoding.context)
    return invalid_request(str("the continuation has ", plural(continuation.size(), "token"),
                               ", but the model reads at most ", encoding.context, " at once"));
  if (context.empty()) {
    STRATA_TRY(need_prefix(encoding, "the context is empty"));
    context = {encoding.prefix_id};
  }
  // The last token is predicted and never read.
  const std::size_t all = context.size() + continuation.size();
  const std::size_t cut = all - std::min(all, encoding.context + 1);
  Ids ids(context.begin() + static_cast<std::ptrdiff_t>(cut), context.end());
  ids.insert(ids.end(), continuation.begin(), continuation.end());
  return ScoreTokens{{{std::move(ids), continuation.size()}}, continuation.size(), cut};
}

/// lm_eval's get_rolling_token_windows() with a context_len of 1, each made disjoint.
Result<ScoreTokens> rolling(const std::string& text, const ScoreEncoding& encoding) {
  STRATA_TRY(need_prefix(encoding, "a text needs a token before its first one"));
  // The prefix is read, and not scored, whether the text begins with it or not.
  Ids ids = encoding.tokenizer.encode(text, SpecialTokens::recognised);
  if (!ids.empty() && ids.front() == encoding.prefix_id) ids.erase(ids.begin());
  if (ids.empty()) return invalid_request("the text has no tokens");
  STRATA_TRY(check_rows(ids, "the text", encoding));
  ids.insert(ids.begin(), encoding.prefix_id);
  ScoreTokens tokens;
  tokens.scored = ids.size() - 1;
  for (std::size_t begin = 1; begin < ids.size();) {
    const std::size_t scored = std::min(ids.size() - begin, encoding.context);
    const std::size_t end = begin + scored;
    const auto at = [&](std::size_t i) { return ids.begin() + static_cast<std::ptrdiff_t>(i); };
    tokens.sequences.push_back({Ids(at(end - std::min(end, encoding.context + 1)), at(end)), scored});
    begin = end;
  }
  return tokens;
}

}  // namespace

Status parse_score_request(const std::string& line, ScoreRequest& request) {
  auto parsed = detail::parse_strict_json(line);
  if (!parsed.has_value()) return parsed.status();
  const json& record = *parsed;
  if (!record.is_object()) return invalid_request("it is not a JSON object");
  if (const auto id = record.find("id"); id != record.end()) request.id = id->dump();
  STRATA_TRY_ASSIGN(request.kind, kind_of(record));
  STRATA_TRY_ASSIGN(request.adapter, detail::adapter_choice(record));
  switch (request.kind) {
    case ScoreRequest::Kind::pair:
      STRATA_TRY(read_string(record, "context", request.context));
      STRATA_TRY(read_string(record, "continuation", request.continuation));
      return request.continuation.empty() ? invalid_request("'continuation' is empty") : Status::ok();
    case ScoreRequest::Kind::ids:
      STRATA_TRY(read_ids(record, "context_ids", request.context_ids));
      STRATA_TRY(read_ids(record, "continuation_ids", request.continuation_ids));
      return request.continuation_ids.empty() ? invalid_request("'continuation_ids' is empty") : Status::ok();
    case ScoreRequest::Kind::text:
      STRATA_TRY(read_string(record, "text", request.text));
      return request.text.empty() ? invalid_request("'text' is empty") : Status::ok();
  }
  return unknown_form();
}

Result<ScoreTokens> encode_score_request(const ScoreRequest& request, const ScoreEncoding& encoding) {
  if (request.kind == ScoreRequest::Kind::text) return rolling(request.text, encoding);
  if (request.kind == ScoreRequest::Kind::ids)
    return one_sequence(request.context_ids, request.continuation_ids, encoding);
  Ids context, continuation;
  encode_pair(request, encoding, context, continuation);
  return one_sequence(std::move(context), continuation, encoding);
}

}  // namespace strata
