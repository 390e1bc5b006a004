#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <strata/text/tokenizer.h>
#include <strata/runtime/status.h>

namespace strata {

/// A text whose log-probability is wanted: a continuation after a context, both as text or both as token ids,
/// or a whole text.
struct ScoreRequest {
  enum class Kind : std::uint8_t { pair, ids, text };
  Kind kind = Kind::pair;
  std::string id;  ///< the JSON of "id"; empty if there is none
  std::string context, continuation;
  std::vector<std::int32_t> context_ids, continuation_ids;
  std::string text;
  std::optional<std::string> adapter;  ///< the adapter of the text; empty: none, nullopt: not chosen
};

/// Parses one line of JSON: {"context", "continuation"}, {"context_ids", "continuation_ids"} or {"text"},
/// each also with "id", which may have any value, and "adapter", a name or null for none. `request.id` is set
/// after an error, too, if the line has one. Errors: `corrupt` for text that is not JSON, `invalid` for a
/// missing, unknown or empty key and for a value of the wrong type.
Status parse_score_request(const std::string& line, ScoreRequest& request);

/// Tokens that go through the model as one sequence, and how many of the last ones are scored.
struct ScoreSequence {
  std::vector<std::int32_t> ids;
  std::size_t scored = 0;
  std::int32_t adapter = -1;  ///< number of its adapter; -1: none
};

struct ScoreTokens {
  std::vector<ScoreSequence> sequences;  ///< more than one only for a text longer than the model's context
  std::size_t scored = 0;                ///< sum over the sequences
  std::size_t cut = 0;                   ///< tokens of a context that were left out at its beginning
};

/// How requests become tokens.
struct ScoreEncoding {
  const Tokenizer& tokenizer;
  std::int32_t prefix_id = -1;  ///< precedes what has no context; -1: there is no such token
  std::int32_t vocab = 0;       ///< rows of the model's embedding
  std::size_t context = 0;      ///< tokens that the model reads at once
};

/// Encodes a request as the class HFLM of EleutherAI's lm_eval does (version 0.4.13): white space at the end
/// of a context belongs to the continuation, whose tokens are those of the whole text after as many as the
/// context has alone; special tokens in a text are recognized. A context that is too long is cut on the left.
/// A text becomes disjoint parts, each after as many earlier tokens as fit; the first one follows the prefix.
/// Errors: `invalid` for a continuation without tokens or longer than the model's context, an id outside of
/// the vocabulary, and a missing prefix.
Result<ScoreTokens> encode_score_request(const ScoreRequest& request, const ScoreEncoding& encoding);

}  // namespace strata
