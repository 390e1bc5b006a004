#pragma once

#include <cstdint>
#include <vector>

#include <strata/model/tokenizer_spec.h>
#include <strata/runtime/digest.h>

#include "added_tokens.h"
#include "bpe.h"

namespace strata::detail {

/// What a Tokenizer shares between its copies: what it is made of, and what makes that fast.
struct TokenizerModel {
  TokenizerSpec spec;
  BpeTable bpe;
  AddedTokenMatcher original;    // added tokens found in the text as it is
  AddedTokenMatcher normalized;  // and those found after normalization
  std::vector<bool> special;
  bool safe_cuts = true;  // no added token holds white space or takes it along
  std::int32_t end_of_text = -1;
  Digest digest{};
};

}  // namespace strata::detail
