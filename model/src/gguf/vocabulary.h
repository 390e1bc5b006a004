// The tokenizer of a GGUF file (tokenizer.ggml.*).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/model/gguf/options.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/status.h>

#include "gguf/layout.h"

namespace strata::detail {

/// Adds the tokens, which are padded to `vocab`, the ranks of merges and what begins and ends a text. Appends
/// to `notes` what llama.cpp does differently. Errors: `invalid` if there are more tokens than `vocab`;
/// `unsupported` for a tokenizer that llama.cpp cannot have.
Status add_vocabulary(const Tokenizer& tokenizer, std::int64_t vocab, const GgufExport& options,
                      GgufMetadata& metadata, std::vector<std::string>& notes);

/// general.name: `name`, unless llama.cpp takes another meaning from it. In a model named Phi-3 it strips
/// white space as Phi-3's tokenizer does, and needs its tokens, so a model with that tokenizer must be named
/// so and no other may be; then the name is empty.
std::string gguf_model_name(const Tokenizer& tokenizer, const std::string& name,
                            std::vector<std::string>& notes);

/// Scores of all tokens with which SentencePiece's algorithm, which always makes the token of the highest
/// score, merges in the order of the tokenizer's ranks.
struct SentencePieceScores {
  std::vector<float> scores;
  /// Whether all texts have the same tokens: merges with the same result follow each other, and no pair of
  /// tokens makes a third without being a merge.
  bool exact = true;
};
SentencePieceScores sentencepiece_scores(const TokenizerSpec& spec);

}  // namespace strata::detail
