#include <strata/text/data_summary.h>

#include <string>

#include <gtest/gtest.h>

#include <support/memory_io.h>

namespace strata {
namespace {

struct DataSummaryTest : testing::Test {
  const TokenCache& cache_of(const std::string& name, const std::string& text) {
    io.put(name, text);
    cache = must(TokenCache::open_or_build(io, tokenizer, {name}, "c." + name));
    return *cache;
  }
  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = must(Tokenizer::train({}, 257));  // one byte per token
  std::unique_ptr<TokenCache> cache;
};

TEST_F(DataSummaryTest, LengthsAreCountedInPowersOfTwoWithoutGaps) {
  // Lengths including end-of-text tokens: 2, 3, 3 and 17.
  const DataSummary s = must(summarize(cache_of("a.jsonl", R"({"text": "a"})"
                                                           "\n"
                                                           R"({"text": "bc"})"
                                                           "\n"
                                                           R"({"text": "de"})"
                                                           "\n"
                                                           R"({"text": "0123456789abcdef"})"),
                                       8));
  EXPECT_EQ(s.shortest, 2u);
  EXPECT_EQ(s.longest, 17u);
  ASSERT_EQ(s.lengths.size(), 4u);
  EXPECT_EQ(s.lengths[0].from, 2u);
  EXPECT_EQ(s.lengths[0].to, 3u);
  EXPECT_EQ(s.lengths[0].n, 3u);
  EXPECT_EQ(s.lengths[1].n, 0u);
  EXPECT_EQ(s.lengths[3].from, 16u);
  EXPECT_EQ(s.lengths[3].n, 1u);
}

TEST_F(DataSummaryTest, PackingStatisticsAreCounted) {
  const DataSummary s = must(summarize(cache_of("a.jsonl", R"({"prompt": "abcdefgh", "completion": "z"})"
                                                           "\n"
                                                           R"({"prompt": "", "completion": "y"})"),
                                       4));
  EXPECT_EQ(s.n_tokens, 12u);
  EXPECT_EQ(s.n_loss_tokens, 4u);
  EXPECT_EQ(s.stream_rows, 2u);
  EXPECT_EQ(s.packing.n_dropped, 1u);
  EXPECT_EQ(s.packing.n_rows, 2u);
  EXPECT_DOUBLE_EQ(s.packing_efficiency(), 6.0 / 8);
}

TEST_F(DataSummaryTest, TooLittleForARowIsNoErrorAndASeqOutOfRangeIs) {
  const TokenCache& small = cache_of("a.txt", "abc");
  EXPECT_EQ(must(summarize(small, 100)).stream_rows, 0u);
  EXPECT_EQ(must(summarize(small, 100)).packing.n_rows, 1u);
  EXPECT_EQ(summarize(small, 0).status().message(),
            "sequences of 0 tokens; the length must be at least 1 and at most 1048576");
}

TEST_F(DataSummaryTest, ADecodedSampleShowsEachDocumentAndItsLossMask) {
  cache_of("a.jsonl", R"({"prompt": "ab", "completion": "c"})"
                      "\n"
                      R"({"prompt": "", "completion": "de"})");
  const PackedDataset data = must(PackedDataset::create(*cache, {.seq = 8}));
  const DecodedSample sample = must(decode_sample(data, tokenizer, 0));
  ASSERT_EQ(sample.documents.size(), 2u);
  ASSERT_EQ(sample.documents[0].runs.size(), 2u);
  EXPECT_FALSE(sample.documents[0].runs[0].loss_mask);
  EXPECT_EQ(sample.documents[0].runs[0].text, "ab");
  EXPECT_EQ(sample.documents[0].runs[1].text, "c<|endoftext|>");
  EXPECT_EQ(sample.documents[1].first, 3);
  EXPECT_EQ(sample.documents[1].last, 4);
  EXPECT_EQ(sample.documents[1].runs[0].text, "d");  // the first token is no target
  EXPECT_EQ(sample.documents[1].runs[1].text, "e<|endoftext|>");
  EXPECT_EQ(sample.padding, 3);
  EXPECT_EQ(decode_sample(data, tokenizer, 1).status().message(),
            "1 samples from index 1 were requested, but there are 1");
}

}  // namespace
}  // namespace strata
