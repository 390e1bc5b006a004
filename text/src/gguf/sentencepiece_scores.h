#pragma once

#include <vector>

#include <strata/text/tokenizer_spec.h>

namespace strata::detail {

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
