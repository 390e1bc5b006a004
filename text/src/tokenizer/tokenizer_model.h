#pragma once

#include <cstdint>
#include <vector>

#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/io/digest.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"

namespace strata::detail {

/// The state that copies of a Tokenizer share: its specification and the tables derived from it.
struct TokenizerModel {
  TokenizerSpec spec;
  BpeTable bpe;
  AddedTokenMatcher original;    // added tokens searched in the original text
  AddedTokenMatcher normalized;  // added tokens searched in the normalized text
  AddedTokenMatcher special_ones;
  std::vector<bool> special;
  bool safe_cuts = true;  // no added token contains white space or strips it
  Digest digest{};
};

}  // namespace strata::detail
