#include <strata/text/dataset.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <support/memory_io.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

/// Uses a cache of 27 tokens: the letters a to z and the end-of-text token.
struct DatasetTest : testing::Test {
  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = must(Tokenizer::train({}, 257));
  std::unique_ptr<TokenCache> cache = [this] {
    io.put("abc", "abcdefghijklmnopqrstuvwxyz");
    return must(TokenCache::open_or_build(io, tokenizer, {"abc"}, "c"));
  }();
  StreamDataset dataset(StreamOptions options) { return must(StreamDataset::create(*cache, options)); }
  std::string inputs_of(const StreamDataset& data, std::uint64_t k) {
    std::vector<std::int32_t> in(static_cast<std::size_t>(data.seq())), out(in.size());
    must(data.fill_batch(k, 1, {in, out}));
    return must(tokenizer.decode(in));
  }
};

TEST_F(DatasetTest, TargetsAreTheNextTokens) {
  std::vector<std::int32_t> inputs(10), targets(10);
  must(dataset({.seq = 5}).fill_batch(1, 2, {inputs, targets}));
  EXPECT_EQ(must(tokenizer.decode(inputs)), "fghijklmno");
  EXPECT_EQ(must(tokenizer.decode(targets)), "ghijklmnop");
}

TEST_F(DatasetTest, WindowsInOrderCoverTheDataOnce) {
  const StreamDataset data = dataset({.seq = 6});
  EXPECT_EQ(data.n_samples(), 4u);  // 27 tokens: 4 x 6 targets, and 2 that do not fill a row
  EXPECT_EQ(inputs_of(data, 0) + inputs_of(data, 1) + inputs_of(data, 2) + inputs_of(data, 3),
            "abcdefghijklmnopqrstuvwx");
}

TEST_F(DatasetTest, TheLastTokenCanBeATarget) {
  const StreamDataset data = dataset({.seq = 13});
  EXPECT_EQ(data.n_windows(), 2u);
  std::vector<std::int32_t> inputs(13), targets(13);
  must(data.fill_batch(1, 1, {inputs, targets}));
  EXPECT_EQ(targets.back(), tokenizer.markers().end);
}

TEST_F(DatasetTest, RowsBehindTheLastSampleHaveNoTargetAndAttendOnlyToThemselves) {
  const StreamDataset data = dataset({.seq = 6});
  std::vector<std::int32_t> inputs(12, 7), targets(12, 7), doc_start(12, 7), positions(12, 7);
  must(data.fill_padded_batch(3, 2, 1, {inputs, targets, doc_start, positions}));
  EXPECT_EQ(must(tokenizer.decode(std::span(inputs).first(6))), "stuvwx");
  EXPECT_EQ(std::vector(targets.begin() + 6, targets.end()), std::vector<std::int32_t>(6, kIgnoreIndex));
  EXPECT_EQ(std::vector(inputs.begin() + 6, inputs.end()), std::vector<std::int32_t>(6, 0));
  EXPECT_EQ(std::vector(doc_start.begin() + 6, doc_start.end()),
            (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(data.fill_padded_batch(3, 2, 2, {inputs, targets}).code(), Code::invalid);
}

TEST_F(DatasetTest, ARangeLimitsTheData) {
  const StreamDataset data = dataset({.seq = 3, .begin = 10, .end = 17});
  EXPECT_EQ(data.n_windows(), 2u);
  EXPECT_EQ(inputs_of(data, 0) + inputs_of(data, 1), "klmnop");
}

TEST_F(DatasetTest, TokensOfACacheThatIsOverwrittenWhileItIsReadAreRefused) {
  const test::TempDir dir;
  const std::string path = dir.file("c"), text(2000, 'x');
  must(write_text_atomically(posix_io(), dir.file("text"), text));
  const auto mapped = must(TokenCache::open_or_build(posix_io(), tokenizer, {dir.file("text")}, path));
  const StreamDataset data = must(StreamDataset::create(*mapped, {.seq = 5}));
  const auto file = must(posix_io().open(path, OpenMode::update));
  const std::vector<std::byte> ones(must(file->size()) / 2, std::byte{0xFF});
  must(write_all(*file, must(file->size()) - ones.size(), ones));
  std::vector<std::int32_t> inputs(5), targets(5);
  const Status status = data.fill_batch(data.n_windows() - 1, 1, {inputs, targets});
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_EQ(std::string(status.message()).substr(0, 36), "token 65535 in a vocabulary of 257: ");
}

TEST_F(DatasetTest, EachEpochVisitsEveryWindowInItsOwnOrder) {
  const StreamDataset data = dataset({.seq = 1, .order = SampleOrder::shuffled, .seed = 4});
  std::string first, second;
  for (std::uint64_t k = 0; k < 26; ++k) {
    first += inputs_of(data, k);
    second += inputs_of(data, 26 + k);
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<char>(first.begin(), first.end()).size(), 26u);
  EXPECT_EQ(std::set<char>(second.begin(), second.end()).size(), 26u);
}

TEST_F(DatasetTest, SampleKDependsOnSeedAndKAlone) {
  const StreamOptions options = {.seq = 2, .order = SampleOrder::shuffled, .seed = 9};
  const StreamDataset run = dataset(options);
  std::vector<std::int32_t> whole(40), part(20), targets(40);
  must(run.fill_batch(0, 20, {whole, targets}));
  must(dataset(options).fill_batch(10, 10, {part, std::span(targets).first(20)}));  // resumed at sample 10
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 20));
  StreamOptions other = options;
  other.seed = 10;
  must(dataset(other).fill_batch(10, 10, {part, std::span(targets).first(20)}));
  EXPECT_FALSE(std::equal(part.begin(), part.end(), whole.begin() + 20));
}

TEST_F(DatasetTest, FillingABatchAllocatesNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  const StreamDataset data = dataset({.seq = 5, .order = SampleOrder::shuffled});
  std::vector<std::int32_t> inputs(40), targets(40);
  const std::uint64_t before = AllocCounter::count();
  AllocCounter::set_armed(true);
  const bool ok = data.fill_batch(123, 8, {inputs, targets}).is_ok();
  AllocCounter::set_armed(false);
  EXPECT_TRUE(ok);
  EXPECT_EQ(AllocCounter::count(), before);
}

TEST_F(DatasetTest, TargetBytesAreTheSourceBytesOfTheTargets) {
  EXPECT_EQ(dataset({.seq = 6}).count_targets(0, 4).bytes, 24u);
  EXPECT_EQ(dataset({.seq = 13}).count_targets(1, 1).bytes,
            12u);  // its last target is the end-of-text token, which has no bytes
  EXPECT_EQ(dataset({.seq = 6}).count_targets(2, 0).bytes, 0u);
}

TEST_F(DatasetTest, ATokenOutsideTheLossIsNoTarget) {
  io.put("q.jsonl", R"({"prompt": "abc", "completion": "de"})");
  const auto records = must(TokenCache::open_or_build(io, tokenizer, {"q.jsonl"}, "q"));
  const StreamDataset data = must(StreamDataset::create(*records, {.seq = 5}));
  std::vector<std::int32_t> inputs(5), targets(5);
  must(data.fill_batch(0, 1, {inputs, targets}));
  EXPECT_EQ(must(tokenizer.decode(inputs)), "abcde");
  EXPECT_EQ(targets, (std::vector<std::int32_t>{-1, -1, 'd', 'e', tokenizer.markers().end}));
  EXPECT_EQ(data.count_targets(0, 1).tokens, 3u);
  EXPECT_EQ(data.count_targets(0, 1).bytes, 2u);
}

TEST_F(DatasetTest, AStreamIsOneDocumentARow) {
  std::vector<std::int32_t> inputs(6), targets(6), doc_start(6, 9), positions(6, 9);
  must(dataset({.seq = 3}).fill_batch(1, 2, {inputs, targets, doc_start, positions}));
  EXPECT_EQ(doc_start, std::vector<std::int32_t>(6, 0));
  EXPECT_EQ(positions, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2}));
}

TEST_F(DatasetTest, SequencesLongerThanTheDataAreRefusedWithBothNumbers) {
  EXPECT_EQ(StreamDataset::create(*cache, {.seq = 27}).status().message(),
            "sequences of 27 tokens need 27 + 1 tokens, but the data has 27");
  EXPECT_TRUE(StreamDataset::create(*cache, {.seq = 26}).has_value());
  EXPECT_FALSE(StreamDataset::create(*cache, {.seq = 0}).has_value());
  EXPECT_FALSE(StreamDataset::create(*cache, {.seq = 1, .begin = 30}).has_value());
}

TEST_F(DatasetTest, WrongSpansAndAbsentSamplesAreRefused) {
  const StreamDataset data = dataset({.seq = 5});
  std::vector<std::int32_t> ten(10), nine(9);
  EXPECT_EQ(data.fill_batch(0, 2, {ten, nine}).message(),
            "a batch of 2 x 5 tokens does not match spans of 10, 9, 0 and 0");
  EXPECT_EQ(data.fill_batch(4, 2, {ten, ten}).message(),
            "2 samples from index 4 were requested, but there are 5");
  EXPECT_EQ(data.fill_batch(0, 2, {ten, ten, nine}).message(),
            "a batch of 2 x 5 tokens does not match spans of 10, 10, 9 and 0");
  EXPECT_FALSE(data.fill_batch(0, -2, {ten, ten}).is_ok());
}

}  // namespace
}  // namespace strata
