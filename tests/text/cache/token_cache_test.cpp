#include <strata/text/token_cache.h>

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <support/corpus.h>
#include <support/memory_io.h>

#include "text/cache/token_cache_texts.h"

namespace strata {
namespace {

using test::cached;
using test::kFirst;
using test::kSecond;
using test::tokenizer_of;
using test::tokens_of;

struct TokenCacheTest : testing::Test {
  TokenCacheTest() {
    io.put("a.txt", kFirst);
    io.put("b.txt", kSecond);
  }
  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = tokenizer_of(270);
};

TEST_F(TokenCacheTest, EachSourceIsFollowedByAnEndOfText) {
  std::vector<std::int32_t> expected = tokenizer.encode(kFirst);
  expected.push_back(tokenizer.markers().end);
  for (const std::int32_t id : tokenizer.encode(kSecond)) expected.push_back(id);
  expected.push_back(tokenizer.markers().end);
  const auto cache = cached(io, tokenizer);
  EXPECT_EQ(tokens_of(*cache), expected);
  EXPECT_EQ(cache->rebuild_reason(), "no cache yet");
}

TEST_F(TokenCacheTest, AByteOrderMarkIsNoPartOfAText) {
  const std::vector<std::int32_t> plain = tokens_of(*cached(io, tokenizer));
  io.put("a.txt", "\xEF\xBB\xBF" + kFirst);
  EXPECT_EQ(tokens_of(*cached(io, tokenizer)), plain);
  EXPECT_EQ(cached(io, tokenizer)->rebuild_reason(), "");
}

TEST_F(TokenCacheTest, SourceBytesEqualTheFileSizes) {
  const auto cache = cached(io, tokenizer);
  EXPECT_EQ(cache->source_bytes(), kFirst.size() + kSecond.size());
  EXPECT_EQ(cache->source_bytes(0, cache->n_tokens()), cache->source_bytes());
  EXPECT_EQ(cache->source_bytes(0, 1), tokenizer.token(cache->token(0)).size());
}

TEST_F(TokenCacheTest, ASecondOpenUsesTheExistingFile) {
  const auto built = cached(io, tokenizer);
  const std::string bytes = io.get("cache/tokens.bin");
  const auto taken = cached(io, tokenizer);
  EXPECT_EQ(taken->rebuild_reason(), "");
  EXPECT_EQ(tokens_of(*taken), tokens_of(*built));
  EXPECT_EQ(io.get("cache/tokens.bin"), bytes);
}

TEST_F(TokenCacheTest, AnIoWithoutDescriptorsReadsTheSame) {
  MemoryIo plain({.max_transfer_bytes = 5});
  plain.put("a.txt", kFirst);
  plain.put("b.txt", kSecond);
  EXPECT_EQ(tokens_of(*cached(plain, tokenizer)), tokens_of(*cached(io, tokenizer)));
}

TEST_F(TokenCacheTest, ChangedTextIsEncodedAgain) {
  cached(io, tokenizer);
  io.put("b.txt", "Other text.");
  const auto cache = cached(io, tokenizer);
  EXPECT_EQ(cache->rebuild_reason(), "built from other text");
  EXPECT_EQ(cache->source_bytes(), kFirst.size() + 11);
}

TEST_F(TokenCacheTest, TextMovedBetweenFilesIsEncodedAgain) {
  cached(io, tokenizer);
  io.put("a.txt", kFirst + kSecond);
  io.put("b.txt", "");
  EXPECT_EQ(cached(io, tokenizer)->rebuild_reason(), "built from other text");
}

TEST_F(TokenCacheTest, AnotherTokenizerEncodesAgain) {
  cached(io, tokenizer);
  const auto cache = cached(io, tokenizer_of(264));
  EXPECT_TRUE(cache->rebuild_reason().starts_with("cache/tokens.bin: built with tokenizer "))
      << cache->rebuild_reason();
}

TEST_F(TokenCacheTest, EveryFlippedBitIsDetectedAndTheCacheRebuilt) {
  const std::vector<std::int32_t> tokens = tokens_of(*cached(io, tokenizer));
  const std::size_t size = io.get("cache/tokens.bin").size();
  for (std::size_t at = 0; at < size; ++at) {
    io.flip("cache/tokens.bin", at);
    ASSERT_FALSE(TokenCache::open(io, tokenizer, "cache/tokens.bin").has_value()) << "byte " << at;
    const auto cache = cached(io, tokenizer);
    ASSERT_NE(cache->rebuild_reason(), "") << "byte " << at;
    ASSERT_EQ(tokens_of(*cache), tokens);
  }
}

TEST_F(TokenCacheTest, ATruncatedFileIsCorrupt) {
  cached(io, tokenizer);
  const std::string whole = io.get("cache/tokens.bin");
  for (std::size_t n = 0; n < whole.size(); n += 3) {
    io.put("cut", whole.substr(0, n));
    ASSERT_EQ(TokenCache::open(io, tokenizer, "cut").status().code(), Code::corrupt) << n << " bytes";
  }
}

TEST_F(TokenCacheTest, AVocabularyPast65536TakesFourBytesAToken) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (int i = 0; tokens.size() < 65537; ++i) tokens.push_back(str("#", i, "#"));
  tokens.push_back("Th");
  const Tokenizer large = must(Tokenizer::create(std::move(tokens), {{'T', 'h', 0}}, {}));
  const auto cache = cached(io, large);
  EXPECT_EQ(cache->token(0), 65537);
  EXPECT_EQ(cache->n_tokens(),
            kFirst.size() + kSecond.size() - 2);  // two merges to "Th"; no end-of-text token
}

TEST_F(TokenCacheTest, BlocksChangeNoToken) {
  std::string text;
  while (text.size() < (9u << 20)) text += austen("persuasion");
  io.put("a.txt", text);
  io.put("b.txt", "");
  std::vector<std::int32_t> expected = tokenizer.encode(text);
  expected.insert(expected.end(), 2, tokenizer.markers().end);
  EXPECT_EQ(tokens_of(*cached(io, tokenizer)), expected);
}

TEST_F(TokenCacheTest, EveryTokenOfTextIsInTheLossAndEachFileIsADocument) {
  const auto cache = cached(io, tokenizer);
  ASSERT_EQ(cache->n_documents(), 2u);
  EXPECT_EQ(cache->document_end(0), tokenizer.encode(kFirst).size() + 1);
  EXPECT_EQ(cache->document_begin(1), cache->document_end(0));
  EXPECT_EQ(cache->document_end(1), cache->n_tokens());
  EXPECT_EQ(cache->n_loss_tokens(), cache->n_tokens());
  EXPECT_TRUE(cache->loss_mask(0) && cache->loss_mask(cache->n_tokens() - 1));
}

TEST_F(TokenCacheTest, AnEmptyCorpusIsRefused) {
  io.put("a.txt", "");
  io.put("b.txt", "");
  const Status status = TokenCache::open_or_build(io, tokenizer, {"a.txt", "b.txt"}, "c").status();
  EXPECT_EQ(status.message(), "building c: the corpus is empty: 2 empty files; the first is a.txt");
  EXPECT_EQ(TokenCache::open_or_build(io, tokenizer, {}, "c").status().code(), Code::invalid);
  EXPECT_FALSE(io.exists("c"));
}

TEST_F(TokenCacheTest, AMissingSourceIsNamedAndLeavesNothingBehind) {
  const Status status = TokenCache::open_or_build(io, tokenizer, {"a.txt", "gone.txt"}, "d/c").status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_NE(status.message().find("gone.txt"), std::string_view::npos);
  EXPECT_TRUE(must(io.list("d")).empty());
}

TEST_F(TokenCacheTest, AFullDiskKeepsTheOldCache) {
  MemoryIo small({.capacity_bytes = 700});
  small.put("a.txt", kFirst);
  small.put("b.txt", kSecond);
  cached(small, tokenizer);
  const std::string old = small.get("cache/tokens.bin");
  small.put("b.txt", kSecond + kSecond);
  EXPECT_EQ(
      TokenCache::open_or_build(small, tokenizer, {"a.txt", "b.txt"}, "cache/tokens.bin").status().code(),
      Code::no_space);
  EXPECT_EQ(small.get("cache/tokens.bin"), old);
}

}  // namespace
}  // namespace strata
