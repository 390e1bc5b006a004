#include <strata/text/model_rows.h>

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata {
namespace {

Status no_row(const Tokenizer& tokenizer, std::int32_t id, std::int64_t rows) {
  const bool named = id < tokenizer.vocab_size();
  return Status::error(
      Code::invalid,
      str("token ", id, named ? str(" ('", tokenizer.token(id), "')") : "",
          " has no row in the model, which has ", rows, " tokens (model.vocab), while the tokenizer has ",
          tokenizer.vocab_size(),
          ": take it out of the text, or give the model a row for it (resize_token_embeddings)"));
}

}  // namespace

Status check_tokenizer_rows(const Tokenizer& tokenizer, std::int64_t rows) {
  const std::int64_t n = tokenizer.vocab_size();
  const auto& added = tokenizer.spec().added;
  const auto beyond =
      std::count_if(added.begin(), added.end(), [&](const AddedToken& token) { return token.id >= rows; });
  if (n - beyond <= rows) return {};
  return Status::error(Code::invalid, str("the tokenizer has ", n, " tokens, but model.vocab is ", rows));
}

Status check_token_rows(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::int64_t rows) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= rows; });
  return bad == ids.end() ? Status::ok() : no_row(tokenizer, *bad, rows);
}

Status check_token_rows(const Tokenizer& tokenizer, const TokenCache& cache, std::int64_t rows) {
  if (tokenizer.vocab_size() <= rows) return {};  // the cache has been checked against it
  for (std::uint64_t i = 0; i < cache.n_tokens(); ++i)
    if (cache.token(i) >= rows) return no_row(tokenizer, cache.token(i), rows);
  return {};
}

}  // namespace strata
