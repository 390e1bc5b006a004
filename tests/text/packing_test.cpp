#include "data/packing.h"

#include <algorithm>
#include <random>
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

struct Filled {
  std::vector<std::int32_t> inputs, targets, doc_start, positions;
};
Filled fill(const Dataset& data, std::uint64_t k0, std::int64_t n) {
  const auto size = static_cast<std::size_t>(n * data.seq());
  Filled f{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size), std::vector<std::int32_t>(size),
           std::vector<std::int32_t>(size)};
  must(data.fill_batch(k0, n, {f.inputs, f.targets, f.doc_start, f.positions}));
  return f;
}

struct PackingTest : testing::Test {
  const TokenCache& cache_of(const std::string& text, const std::string& name = "d.jsonl") {
    io.put(name, text);
    io.remove_all("c").is_ok();
    cache = must(TokenCache::open_or_build(io, tokenizer, {name}, "c"));
    return *cache;
  }
  static std::string texts(const std::vector<std::string>& all) {
    std::string lines;
    for (const std::string& text : all) lines += str("{\"text\": \"", text, "\"}\n");
    return lines;
  }
  PackedDataset packed(PackOptions options) { return must(PackedDataset::create(*cache, options)); }

  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = must(Tokenizer::train({}, 257));  // one byte per token
  std::int32_t end = tokenizer.markers().end;
  std::unique_ptr<TokenCache> cache;
};

TEST_F(PackingTest, DocumentsShareARowAndEachEndsInItsEndOfText) {
  cache_of(texts({"abc", "xy"}));
  const Filled row = fill(packed({.seq = 6}), 0, 1);
  EXPECT_EQ(row.inputs, (std::vector<std::int32_t>{'a', 'b', 'c', 'x', 'y', 0}));
  EXPECT_EQ(row.targets, (std::vector<std::int32_t>{'b', 'c', end, 'y', end, -1}));
  EXPECT_EQ(row.doc_start, (std::vector<std::int32_t>{0, 0, 0, 3, 3, 5}));
  EXPECT_EQ(row.positions, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 0}));
}

TEST_F(PackingTest, OnlyTheCompletionIsATarget) {
  cache_of(R"({"prompt": "ab", "completion": "c"})");
  const Filled row = fill(packed({.seq = 4}), 0, 1);
  EXPECT_EQ(row.inputs, (std::vector<std::int32_t>{'a', 'b', 'c', 0}));
  EXPECT_EQ(row.targets, (std::vector<std::int32_t>{-1, 'c', end, -1}));
  EXPECT_EQ(packed({.seq = 4}).count_targets(0, 1).tokens, 2u);
  EXPECT_EQ(packed({.seq = 4}).count_targets(0, 1).bytes, 1u);
}

TEST_F(PackingTest, ALongDocumentIsSplitWithoutLoss) {
  cache_of(texts({"abcdefgh"}));
  const PackedDataset data = packed({.seq = 3});
  const Filled rows = fill(data, 0, 3);
  EXPECT_EQ(must(tokenizer.decode(std::span(rows.inputs).first(8))), "abcdefgh");
  EXPECT_EQ(rows.targets, (std::vector<std::int32_t>{'b', 'c', 'd', 'e', 'f', 'g', 'h', end, -1}));
  EXPECT_EQ(rows.positions, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(data.stats().n_split, 1u);
}

TEST_F(PackingTest, ASpanWithoutLossTokensIsInNoRow) {
  cache_of(R"({"prompt": "abcdefgh", "completion": "z"})");
  const PackedDataset data = packed({.seq = 4});
  EXPECT_EQ(data.stats().n_dropped, 1u);
  EXPECT_EQ(data.stats().n_rows, 2u);  // "efgh" -> z, and z -> end of text
}

TEST_F(PackingTest, NoTargetsIsRefusedWithTheNumbers) {
  Tokenizer endless = must(Tokenizer::create(
      [] {
        std::vector<std::string> bytes;
        for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
        return bytes;
      }(),
      {}, {}));
  io.put("d.jsonl", texts({"a", "b"}));
  const auto single = must(TokenCache::open_or_build(io, endless, {"d.jsonl"}, "s"));
  EXPECT_EQ(PackedDataset::create(*single, {.seq = 4}).status().message(),
            "no targets in 2 documents of 2 tokens, 2 of them in the loss: a document needs a token in "
            "the loss after its first token");
  EXPECT_FALSE(PackedDataset::create(*single, {.seq = 0}).has_value());
}

TEST_F(PackingTest, RowsAreNearlyFull) {
  std::mt19937 random(5);
  std::vector<std::string> all;
  for (int i = 0; i < 2000; ++i) all.emplace_back(1 + random() % 100, 'x');
  cache_of(texts(all));
  const PackingStats stats = packed({.seq = 128}).stats();
  EXPECT_GT(static_cast<double>(stats.n_packed_tokens), 0.98 * 128 * static_cast<double>(stats.n_rows));
}

TEST_F(PackingTest, SampleKDependsOnSeedAndKAlone) {
  std::vector<std::string> all;
  for (int i = 0; i < 50; ++i) all.push_back(std::string(1 + i % 7, static_cast<char>('a' + i % 26)));
  cache_of(texts(all));
  const PackOptions options = {.seq = 16, .order = SampleOrder::shuffled, .seed = 3};
  const PackedDataset run = packed(options);
  const std::uint64_t epoch = run.stats().n_rows;
  for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, epoch - 1, epoch, 3 * epoch + 2}) {
    const PackedDataset resumed = packed(options);
    EXPECT_EQ(fill(resumed, k, 2).inputs, fill(run, k, 2).inputs) << k;
    EXPECT_EQ(fill(resumed, k, 2).targets, fill(run, k, 2).targets) << k;
  }
  const auto n = static_cast<std::int64_t>(epoch);
  EXPECT_NE(fill(run, 0, n).inputs, fill(run, epoch, n).inputs);  // a different order
  EXPECT_NE(fill(run, 0, n).inputs,
            fill(packed({.seq = 16, .order = SampleOrder::shuffled, .seed = 4}), 0, n).inputs);
}

TEST_F(PackingTest, FillingABatchAllocatesNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  cache_of(texts({"abc", "xy", "q"}));
  const PackedDataset data = packed({.seq = 8, .order = SampleOrder::shuffled});
  std::vector<std::int32_t> inputs(32), targets(32);
  const std::uint64_t before = AllocCounter::count();
  AllocCounter::set_armed(true);
  const bool ok = data.fill_batch(77, 4, {inputs, targets}).is_ok();
  AllocCounter::set_armed(false);
  EXPECT_TRUE(ok);
  EXPECT_EQ(AllocCounter::count(), before);
}

// --- Properties of packing, on random documents ---

class PackingProperty : public PackingTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  PackingProperty() : random_(GetParam()) {}
  std::string letters(std::size_t most) {
    std::string text(1 + random_() % most, ' ');
    for (char& c : text) c = static_cast<char>('a' + random_() % 26);
    return text;
  }
  std::string random_records(int n, bool masked) {
    std::string lines;
    for (int i = 0; i < n; ++i) {
      const std::size_t most = random_() % 10 == 0 ? 200 : 30;
      lines += masked
                   ? str("{\"prompt\": \"", letters(most), "\", \"completion\": \"", letters(most), "\"}\n")
                   : str("{\"text\": \"", letters(most), "\"}\n");
    }
    return lines;
  }
  /// Counts how often each token is a target; checks that each span is inside its document and each row fits.
  std::vector<int> times_a_target(const detail::Packing& packing, std::int64_t seq) {
    std::vector<int> times(cache->n_tokens());
    for (std::size_t r = 0; r + 1 < packing.row_first.size(); ++r) {
      std::int64_t length = 0;
      for (std::uint64_t p = packing.row_first[r]; p < packing.row_first[r + 1]; ++p) {
        const detail::DocumentSpan& document_span = packing.spans[p];
        length += document_span.length;
        for (std::uint64_t i = document_span.begin + 1; i <= document_span.begin + document_span.length; ++i)
          ++times[i];
        EXPECT_LT(document_span.begin + document_span.length, document_end_of(document_span.begin));
      }
      EXPECT_LE(length, seq);
      EXPECT_GT(length, 0);
    }
    return times;
  }
  std::uint64_t document_end_of(std::uint64_t token) const {
    std::uint64_t d = 0;
    while (cache->document_end(d) <= token) ++d;
    return cache->document_end(d);
  }
  std::mt19937 random_;
};

TEST_P(PackingProperty, EveryTokenOfATextIsATargetOncePerEpochButTheFirstOfADocument) {
  cache_of(random_records(60, false));
  for (const std::int64_t seq : {1, 7, 32, 500})
    for (const SampleOrder order : {SampleOrder::sequential, SampleOrder::shuffled}) {
      std::vector<int> want(cache->n_tokens(), 1);
      for (std::uint64_t d = 0; d < cache->n_documents(); ++d) want[cache->document_begin(d)] = 0;
      const auto packing = detail::pack_documents(*cache, {.seq = seq, .order = order, .seed = GetParam()});
      EXPECT_EQ(times_a_target(packing, seq), want) << seq;
      EXPECT_EQ(packing.stats.n_dropped, 0u);
    }
}

TEST_P(PackingProperty, EveryLossTokenIsATargetOncePerEpoch) {
  cache_of(random_records(60, true));
  for (const std::int64_t seq : {1, 7, 32, 500}) {
    const std::vector<int> times = times_a_target(
        detail::pack_documents(*cache, {.seq = seq, .order = SampleOrder::shuffled, .seed = GetParam()}),
        seq);
    for (std::uint64_t i = 0; i < cache->n_tokens(); ++i) {
      ASSERT_LE(times[i], 1) << "token " << i << ", seq " << seq;
      ASSERT_TRUE(times[i] == 1 || !cache->loss_mask(i)) << "token " << i << ", seq " << seq;
    }
  }
}

TEST_P(PackingProperty, ABatchIsTheSpansOfItsRowsAndNoTargetIsOfAnotherDocument) {
  cache_of(random_records(60, true));
  const PackOptions options = {.seq = 40, .order = SampleOrder::shuffled, .seed = GetParam()};
  const auto packing = detail::pack_documents(*cache, options);
  const PackedDataset data = packed(options);
  std::set<std::uint64_t> rows;
  for (std::uint64_t k = 0; k < packing.stats.n_rows; ++k) {
    const Filled f = fill(data, k, 1);
    const std::uint64_t r = data.row_of(k);
    EXPECT_TRUE(rows.insert(r).second);
    std::size_t t = 0;
    std::uint64_t counted = 0;
    for (std::uint64_t p = packing.row_first[r]; p < packing.row_first[r + 1]; ++p) {
      const std::size_t start = t;
      for (std::uint64_t i = packing.spans[p].begin; i < packing.spans[p].begin + packing.spans[p].length;
           ++i, ++t) {
        ASSERT_EQ(f.inputs[t], cache->token(i));
        ASSERT_EQ(f.targets[t], cache->loss_mask(i + 1) ? cache->token(i + 1) : kIgnoreIndex);
        ASSERT_EQ(f.doc_start[t], static_cast<std::int32_t>(start));
        ASSERT_EQ(f.positions[t], static_cast<std::int32_t>(t - start));
        counted += f.targets[t] >= 0 ? 1u : 0u;
      }
    }
    for (; t < f.inputs.size(); ++t) {
      ASSERT_EQ(f.targets[t], kIgnoreIndex);
      ASSERT_EQ(f.doc_start[t], static_cast<std::int32_t>(t));
      ASSERT_EQ(f.positions[t], 0);
    }
    EXPECT_EQ(data.count_targets(k, 1).tokens, counted);
    EXPECT_GT(counted, 0u);
  }
  EXPECT_EQ(rows.size(), packing.stats.n_rows);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PackingProperty, testing::Range(1u, 9u));

TEST_F(PackingTest, MoreDocumentsThanAWindowAreAllPacked) {
  std::string lines;
  constexpr std::size_t kDocuments = detail::kPackingWindow + 5000;
  for (std::size_t i = 0; i < kDocuments; ++i)
    lines += i % 2 == 0 ? "{\"text\":\"a\"}\n" : "{\"text\":\"bcd\"}\n";
  cache_of(lines);
  const auto packing = detail::pack_documents(*cache, {.seq = 8, .order = SampleOrder::shuffled, .seed = 1});
  EXPECT_EQ(packing.stats.n_spans, kDocuments);
  EXPECT_EQ(packing.stats.n_packed_tokens, kDocuments / 2 * 4);
  EXPECT_LE(packing.stats.n_rows, kDocuments / 2 * 4 / 8 * 101 / 100);
}

}  // namespace
}  // namespace strata
