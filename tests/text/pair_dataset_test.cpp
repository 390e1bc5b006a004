#include <strata/text/pair_dataset.h>

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/str.h>
#include <support/memory_io.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Segments = PairOptions::Segments;
using Ints = std::vector<std::int32_t>;

struct FilledPairs {
  Ints inputs, targets, doc_start, segments;
  std::vector<float> weights;
};

FilledPairs fill_pairs(const PairDataset& data, std::uint64_t k) {
  const auto n = static_cast<std::size_t>(data.options().rows * data.options().seq);
  FilledPairs f{Ints(n, 7), Ints(n, 7), Ints(n, 7), Ints(n, 7),
                std::vector<float>(static_cast<std::size_t>(data.options().max_pairs), 7)};
  must(data.fill(k, {f.inputs, f.targets, f.doc_start, f.segments, f.weights}));
  return f;
}

std::string pair_line(const std::string& prompt, const std::string& chosen, const std::string& rejected) {
  return str("{\"prompt\": \"", prompt, "\", \"chosen\": \"", chosen, "\", \"rejected\": \"", rejected,
             "\"}\n");
}

struct PairDatasetTest : testing::Test {
  const TokenCache& cache_of(const std::string& text) {
    io.put("d.jsonl", text);
    io.remove_all("c").is_ok();
    cache = must(TokenCache::open_or_build(io, tokenizer, {"d.jsonl"}, "c", chat, RecordUse::pairs));
    return *cache;
  }
  PairDataset packed(PairOptions options) { return must(PairDataset::create(*cache, options)); }
  std::string refusal(PairOptions options) {
    return std::string(PairDataset::create(*cache, options).status().message());
  }

  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = must(Tokenizer::train({}, 257));  // one byte per token
  Result<ChatTemplate> chat = ChatTemplate{};
  std::int32_t end = tokenizer.markers().end;
  std::unique_ptr<TokenCache> cache;
};

TEST_F(PairDatasetTest, BothAnswersShareARowAndTheirTargetsAreSegments) {
  cache_of(pair_line("ab", "c", "de"));
  const PairDataset data = packed({.seq = 8, .max_pairs = 2});
  const FilledPairs row = fill_pairs(data, 0);
  EXPECT_EQ(row.inputs, (Ints{'a', 'b', 'c', 'a', 'b', 'd', 'e', 0}));
  EXPECT_EQ(row.targets, (Ints{-1, 'c', end, -1, 'd', 'e', end, -1}));
  EXPECT_EQ(row.doc_start, (Ints{0, 0, 0, 3, 3, 3, 3, 7}));
  EXPECT_EQ(row.segments, (Ints{-1, 0, 0, -1, 1, 1, 1, -1}));
  EXPECT_THAT(row.weights, ElementsAre(1.0f, 0.0f));
  EXPECT_THAT(data.pairs_of(0), ElementsAre(0u));
  EXPECT_EQ(data.stats().n_packed_tokens, 7u);
  EXPECT_GE(data.memory_bytes(),
            4u + 2 * 24 + 2 * 8);  // a pair, its documents, and where micro-batches begin
}

TEST_F(PairDatasetTest, TheLastTokenIsScoredButNotTheEndOfText) {
  cache_of(pair_line("ab", "c", "de"));
  PairOptions options{.seq = 8, .segments = Segments::last_token, .end_of_text = end};
  const FilledPairs row = fill_pairs(packed(options), 0);
  EXPECT_EQ(row.inputs, (Ints{'a', 'b', 'c', 'a', 'b', 'd', 'e', 0}));
  EXPECT_EQ(row.segments, (Ints{-1, -1, 0, -1, -1, -1, 1, -1}));
  EXPECT_EQ(row.doc_start, (Ints{0, 0, 0, 3, 3, 3, 3, 7}));
  options.seq = 9;
  options.end_of_text = -1;  // the last token is then as any other
  const FilledPairs with_end = fill_pairs(packed(options), 0);
  EXPECT_EQ(with_end.inputs, (Ints{'a', 'b', 'c', end, 'a', 'b', 'd', 'e', end}));
  EXPECT_EQ(with_end.segments, (Ints{-1, -1, -1, 0, -1, -1, -1, -1, 1}));
}

TEST_F(PairDatasetTest, APairIsNeverDividedAmongMicroBatches) {
  cache_of(pair_line("a", "bcd", "ef") + pair_line("g", "h", "i") + pair_line("j", "kl", "m"));
  const PairDataset data = packed({.seq = 7, .rows = 2, .max_pairs = 2});
  ASSERT_EQ(data.stats().n_batches, 2u);
  EXPECT_THAT(data.pairs_of(0), ElementsAre(0u, 1u));
  EXPECT_THAT(data.pairs_of(1), ElementsAre(2u));
  const FilledPairs first = fill_pairs(data, 0);
  // Row 0 has 4 and 3 inputs; the second pair's documents are in row 1.
  EXPECT_EQ(first.segments, (Ints{0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, -1, -1, -1}));
  EXPECT_EQ(first.doc_start, (Ints{0, 0, 0, 0, 4, 4, 4, 0, 0, 2, 2, 4, 5, 6}));
  EXPECT_EQ(packed({.seq = 7, .rows = 2, .max_pairs = 1}).stats().n_batches, 3u);
}

TEST_F(PairDatasetTest, LongPromptsLoseTheirFrontAndThenAnswersTheirEnd) {
  cache_of(pair_line("abcdef", "gh", "i"));
  const PairDataset data = packed({.seq = 4, .rows = 2});
  const FilledPairs row = fill_pairs(data, 0);
  EXPECT_EQ(row.inputs, (Ints{'e', 'f', 'g', 'h', 'e', 'f', 'i', 0}));  // the same prompt on both sides
  EXPECT_EQ(row.targets, (Ints{-1, 'g', 'h', end, -1, 'i', end, -1}));
  EXPECT_EQ(data.stats().n_cut, 1u);
  cache_of(pair_line("ab", "cdefgh", "i"));
  EXPECT_EQ(fill_pairs(packed({.seq = 3, .rows = 2}), 0).inputs, (Ints{'b', 'c', 'd', 'b', 'i', 0}));
}

TEST_F(PairDatasetTest, EveryEpochHasEachPairOnceInAnOrderOfItsOwn) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += pair_line(str("p", i), std::string(static_cast<std::size_t>(1 + i % 5), 'x'), "y");
  cache_of(text);
  const PairOptions options{.seq = 32, .rows = 2, .max_pairs = 4, .order = SampleOrder::shuffled, .seed = 3};
  const PairDataset data = packed(options);
  std::vector<std::vector<std::uint32_t>> epochs(2);
  for (std::uint64_t k = 0; k < 2 * data.stats().n_batches; ++k)
    for (const std::uint32_t p : data.pairs_of(k)) epochs[k / data.stats().n_batches].push_back(p);
  for (const auto& epoch : epochs) {
    EXPECT_EQ(epoch.size(), 40u);
    EXPECT_EQ(std::set<std::uint32_t>(epoch.begin(), epoch.end()).size(), 40u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  PairOptions other = options;
  other.seed = 4;
  const PairDataset of_other = packed(other);
  const auto first = of_other.pairs_of(0), same = data.pairs_of(0);
  EXPECT_FALSE(std::equal(first.begin(), first.end(), same.begin(), same.end()));
}

TEST_F(PairDatasetTest, FillDoesNotAllocate) {
  cache_of(pair_line("ab", "c", "de"));
  const PairDataset data = packed({.seq = 8, .max_pairs = 2});
  FilledPairs f = fill_pairs(data, 0);
  ASSERT_TRUE(AllocCounter::hooked());
  const std::uint64_t before = AllocCounter::count();
  AllocCounter::set_armed(true);
  must(data.fill(0, {f.inputs, f.targets, f.doc_start, f.segments, f.weights}));
  AllocCounter::set_armed(false);
  EXPECT_EQ(AllocCounter::count(), before);
}

TEST_F(PairDatasetTest, WhatCannotBePackedIsRefusedWithBothNumbers) {
  cache_of(pair_line("ab", "cd", "ef"));
  EXPECT_THAT(refusal({.seq = 6}),
              HasSubstr("a pair of 4 and 4 tokens does not fit into a micro-batch of 1 x 6"));
  EXPECT_THAT(refusal({.seq = 1}), HasSubstr("rows of 1 tokens for pairs"));
  EXPECT_THAT(refusal({.seq = 8, .max_pairs = 0}), HasSubstr("0 pairs"));
}

}  // namespace
}  // namespace strata
