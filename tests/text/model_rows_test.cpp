#include <strata/text/model_rows.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/memory_io.h>

namespace strata {
namespace {

using ::testing::HasSubstr;

/// 257 tokens of bytes and text, and a padding token that is added behind them.
Tokenizer padded(bool special = true) {
  TokenizerSpec spec = must(Tokenizer::train({}, 257)).spec();
  spec.tokens.emplace_back("[PAD]");
  spec.added.push_back({.id = 257, .content = "[PAD]", .special = special});
  return must(Tokenizer::create(spec));
}

TEST(ModelRowsTest, OnlyAddedTokensMayBeBeyondTheRowsOfAModel) {
  EXPECT_TRUE(check_tokenizer_rows(padded(), 257).is_ok());
  EXPECT_TRUE(check_tokenizer_rows(padded(), 300).is_ok());
  const Status refused = check_tokenizer_rows(padded(), 200);
  EXPECT_EQ(refused.code(), Code::invalid);
  EXPECT_EQ(std::string(refused.message()), "the tokenizer has 258 tokens, but model.vocab is 200");
}

TEST(ModelRowsTest, ATokenWithoutARowIsRefusedByItsNameAndBothNumbers) {
  const std::int32_t ids[] = {1, 257};
  EXPECT_TRUE(check_token_rows(padded(), ids, 258).is_ok());
  EXPECT_THAT(
      std::string(check_token_rows(padded(), ids, 257).message()),
      HasSubstr("token 257 ('[PAD]') has no row in the model, which has 257 tokens (model.vocab), while the "
                "tokenizer has 258"));
}

TEST(ModelRowsTest, ATextIsRefusedIfItHasSuchAToken) {
  MemoryIo io({.descriptors = true});
  io.put("plain.txt", "tea");
  io.put("pad.txt", "tea [PAD]");
  const Tokenizer tokenizer = padded(false);  // recognized in every text
  const auto plain = must(TokenCache::open_or_build(io, tokenizer, {"plain.txt"}, "a"));
  const auto pad = must(TokenCache::open_or_build(io, tokenizer, {"pad.txt"}, "b"));
  EXPECT_TRUE(check_token_rows(tokenizer, *plain, 257).is_ok());
  EXPECT_EQ(check_token_rows(tokenizer, *pad, 257).code(), Code::invalid);
}

}  // namespace
}  // namespace strata
