#include <strata/text/tokenizer.h>

#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/rng.h>
#include <support/corpus.h>

namespace strata {
namespace {

using testing::ElementsAre;

Tokenizer trained_on(std::string_view text, std::int32_t vocab_size) {
  const std::vector<std::string_view> texts = {text};
  return must(Tokenizer::train(texts, vocab_size));
}
Tokenizer train_on_two_novels() {
  const std::string a = austen("pride_and_prejudice");
  const std::string b = austen("sense_and_sensibility");
  const std::vector<std::string_view> texts = {a, b};
  return must(Tokenizer::train(texts, 1024));
}
const Tokenizer& austen_tokenizer() {
  static const Tokenizer tokenizer = train_on_two_novels();
  return tokenizer;
}
double cpu_seconds_of(const auto& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(TokenizerTest, TheMostFrequentPairIsMergedFirst) {
  const Tokenizer tokenizer = trained_on("low low low lower newest newest", 259);
  ASSERT_EQ(tokenizer.merges().size(), 2u);
  EXPECT_EQ(tokenizer.token(256), "lo");  // occurs 4 times, like "ow"; 'l' is the lower byte
  EXPECT_EQ(tokenizer.token(257), "low");
  EXPECT_EQ(tokenizer.token(258), "<|endoftext|>");
}

TEST(TokenizerTest, OverlappingPairsAreCountedAsTheyMerge) {
  const Tokenizer tokenizer = trained_on("aaaaaaaa aaaaaaaa", 260);
  EXPECT_EQ(tokenizer.token(256), "aa");
  EXPECT_EQ(tokenizer.token(257), "aaaa");
  EXPECT_EQ(tokenizer.token(258), "aaaaaaaa");
}

TEST(TokenizerTest, TrainingStopsWhereNoPairOccursTwice) {
  EXPECT_EQ(trained_on("abcdef", 1000).vocab_size(), 257);
  EXPECT_EQ(trained_on("", 1000).vocab_size(), 257);
}

TEST(TokenizerTest, TrainingIsDeterministic) {
  const std::string text = austen("persuasion").substr(0, 50000);
  EXPECT_EQ(trained_on(text, 600).digest(), trained_on(text, 600).digest());
}

TEST(TokenizerTest, VocabularyOutsideTheLimitsIsRefusedWithTheNumbers) {
  EXPECT_EQ(Tokenizer::train({}, 256).status().message(),
            "a vocabulary of 256 tokens; allowed are 257 to 1048576");
  EXPECT_FALSE(Tokenizer::train({}, (1 << 20) + 1).has_value());
}

TEST(TokenizerTest, EqualRanksMergeFromTheLeft) {
  const Tokenizer tokenizer = trained_on("aa aa", 258);
  EXPECT_THAT(tokenizer.encode("aaa"), ElementsAre(256, 'a'));
}

/// Applies the merges in order over the whole pre-token, as in the paper's algorithm.
std::vector<std::int32_t> naive_encode(const Tokenizer& tokenizer, std::string_view piece) {
  std::vector<std::int32_t> ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (const Merge& merge : tokenizer.merges())
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      if (ids[i] == merge.left && ids[i + 1] == merge.right) {
        ids[i] = merge.result;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
  return ids;
}

TEST(TokenizerTest, EncodingEqualsTheMergesAppliedInOrder) {
  const Tokenizer tokenizer = trained_on("abab abba baba aabb bbaa abcabc cabcab", 280);
  const Rng rng(7, 0);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::string word;
    for (std::uint64_t j = 0; j < rng.below(100 * i, 90); ++j)
      word += static_cast<char>('a' + rng.below(100 * i + j + 1, 3));
    ASSERT_EQ(tokenizer.encode(word), naive_encode(tokenizer, word)) << word;
  }
}

TEST(TokenizerTest, AnyBytesRoundTrip) {
  const Tokenizer& tokenizer = austen_tokenizer();
  const Rng rng(11, 0);
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::string text;
    for (std::uint64_t j = 0; j < i; ++j) text += static_cast<char>(rng.u32(1000 * i + j) >> (i % 2));
    ASSERT_EQ(must(tokenizer.decode(tokenizer.encode(text))), text) << "length " << i;
  }
}

TEST(TokenizerTest, EndOfTextIsPlainTextByDefault) {
  const Tokenizer& tokenizer = austen_tokenizer();
  const std::string text = "One.<|endoftext|>Two.";
  const auto as_text = tokenizer.encode(text);
  EXPECT_THAT(as_text, testing::Not(testing::Contains(tokenizer.markers().end)));
  const auto recognised = tokenizer.encode(text, SpecialTokens::recognised);
  EXPECT_EQ(std::count(recognised.begin(), recognised.end(), tokenizer.markers().end), 1);
  EXPECT_EQ(must(tokenizer.decode(as_text)), text);
  EXPECT_EQ(must(tokenizer.decode(recognised)), text);
}

TEST(TokenizerTest, TokenBytesSumToTheText) {
  const Tokenizer& tokenizer = austen_tokenizer();
  const std::string text = austen("persuasion").substr(0, 12345);
  std::size_t bytes = tokenizer.token_bytes(tokenizer.markers().end);
  for (const std::int32_t id : tokenizer.encode(text)) bytes += tokenizer.token_bytes(id);
  EXPECT_EQ(bytes, text.size());
}

TEST(TokenizerTest, DecodingAnUnknownIdNamesItAndTheVocabulary) {
  EXPECT_EQ(austen_tokenizer().decode(std::vector{1024}).status().message(),
            "token id 1024 in a vocabulary of 1024");
  EXPECT_FALSE(austen_tokenizer().decode(std::vector{-1}).has_value());
}

TEST(TokenizerTest, OneLetterAMillionTimesIsEncodedInNearLinearTime) {
  const Tokenizer tokenizer = trained_on(std::string(64, 'a') + " " + std::string(64, 'a'), 270);
  const double small = cpu_seconds_of([&] { (void)tokenizer.encode(std::string(1 << 16, 'a')); });
  const double large = cpu_seconds_of([&] { (void)tokenizer.encode(std::string(1 << 20, 'a')); });
  EXPECT_LT(large, 100 * small) << "16 times the letters";  // quadratic would be 256
}

TEST(TokenizerTest, TwoNovelsTrainAVocabularyThatFitsTheThird) {
  const double seconds = cpu_seconds_of([] { train_on_two_novels(); });
  const std::string text = austen("persuasion");
  std::vector<std::int32_t> ids;
  const double encode_seconds = cpu_seconds_of([&] { ids = austen_tokenizer().encode(text); });
  const double bytes_per_token = static_cast<double>(text.size()) / static_cast<double>(ids.size());
  std::cout << "trained in " << seconds << " s, encoded " << text.size() << " bytes in " << encode_seconds
            << " s to " << ids.size() << " tokens, " << bytes_per_token << " bytes per token\n";
  EXPECT_EQ(austen_tokenizer().vocab_size(), 1024);
  EXPECT_GT(bytes_per_token, 2.5);
  EXPECT_EQ(must(austen_tokenizer().decode(ids)), text);
}

}  // namespace
}  // namespace strata
