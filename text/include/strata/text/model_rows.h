#pragma once

#include <cstdint>
#include <span>

#include <strata/text/token_cache.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/status.h>

// A tokenizer may have added tokens for which its model has no row in the embedding: `add_special_tokens` for
// a padding token, without resizing the model. They matter only where a text has them.
namespace strata {

/// Whether a tokenizer is one for a model with `rows` tokens: all that it has beyond them are added tokens.
/// Errors: `invalid` with both numbers.
Status check_tokenizer_rows(const Tokenizer& tokenizer, std::int64_t rows);

/// Whether a model with `rows` tokens has a row for each of `ids`. Errors: `invalid` with the first token
/// that it has none for, its text and both numbers.
Status check_token_rows(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::int64_t rows);
/// The same for all tokens of a cache.
Status check_token_rows(const Tokenizer& tokenizer, const TokenCache& cache, std::int64_t rows);

}  // namespace strata
