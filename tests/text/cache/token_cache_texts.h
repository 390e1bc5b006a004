#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/token_cache.h>

#include "support/memory_io.h"

namespace strata::test {

inline const std::string kFirst = "The family of Dashwood had long been settled in Sussex.\n";
inline const std::string kSecond = "Their estate was large, and their residence was at Norland Park.";

inline Tokenizer tokenizer_of(std::int32_t vocab_size) {
  const std::vector<std::string_view> texts = {kFirst, kSecond};
  return must(Tokenizer::train(texts, vocab_size));
}
inline std::unique_ptr<TokenCache> cached(Io& io, const Tokenizer& tokenizer) {
  return must(TokenCache::open_or_build(io, tokenizer, {"a.txt", "b.txt"}, "cache/tokens.bin"));
}
inline std::vector<std::int32_t> tokens_of(const TokenCache& cache) {
  std::vector<std::int32_t> out;
  for (std::uint64_t i = 0; i < cache.n_tokens(); ++i) out.push_back(cache.token(i));
  return out;
}

}  // namespace strata::test
