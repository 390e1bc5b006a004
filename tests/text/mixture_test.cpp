#include "data/mixture.h"

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/text/dataset.h>
#include <support/memory_io.h>

namespace strata {
namespace {

using detail::Mixture;
using testing::HasSubstr;

std::string mixture_refusal(const std::vector<double>& weights) {
  return std::string(Mixture::create(weights, 1).status().message());
}

class MixtureTest : public testing::TestWithParam<std::vector<double>> {};

TEST_P(MixtureTest, EveryPrefixHoldsEachSourcesShareToWithinOne) {
  const std::vector<double>& weights = GetParam();
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const Mixture mixture = must(Mixture::create(weights, seed));
    std::vector<std::uint64_t> given(weights.size());
    for (std::uint64_t k = 0; k < 3 * mixture.period() + 100; ++k) {
      const Mixture::Pick pick = mixture.pick(k);
      ASSERT_EQ(pick.index, given[pick.source]) << "sample " << k;
      ++given[pick.source];
      for (std::size_t s = 0; s < weights.size(); ++s)
        ASSERT_LT(std::abs(static_cast<double>(given[s]) - weights[s] / sum * static_cast<double>(k + 1)), 1)
            << "source " << s << " after " << k + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, MixtureTest,
                         testing::Values(std::vector<double>{1}, std::vector<double>{0.5, 0.5},
                                         std::vector<double>{0.7, 0.3}, std::vector<double>{3, 1},
                                         std::vector<double>{0.999, 0.001},
                                         std::vector<double>{0.333, 0.333, 0.334},
                                         std::vector<double>{1, 1, 1, 1, 1}, std::vector<double>{1, 2, 4, 8},
                                         std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.0625},
                                         std::vector<double>{100, 1, 1, 1},
                                         std::vector<double>{0.9, 0.09, 0.009, 0.0009, 0.0001}));

TEST(MixtureTest, RandomWeightsKeepToTheirShares) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights(1 + random() % 8);
    double sum = 0;
    for (double& w : weights) sum += w = static_cast<double>(1 + random() % 300) / 100;
    const Mixture mixture = must(Mixture::create(weights, random()));
    std::vector<double> given(weights.size());
    for (std::uint64_t k = 0; k < mixture.period(); ++k) {
      ++given[mixture.pick(k).source];
      for (std::size_t s = 0; s < weights.size(); ++s)
        ASSERT_LT(std::abs(given[s] - weights[s] / sum * static_cast<double>(k + 1)), 1) << round;
    }
  }
}

TEST(MixtureTest, SharesDoNotDriftAtLargeIndices) {
  const Mixture mixture = must(Mixture::create(std::vector<double>{0.7, 0.2, 0.1}, 5));
  constexpr std::uint64_t kFar = 1'000'000'000'000'000;
  std::uint64_t whole = 0;
  for (std::uint64_t k = kFar; k < kFar + 10; ++k) {
    const Mixture::Pick pick = mixture.pick(k);
    if (pick.source == 0) {
      EXPECT_LT(std::abs(static_cast<long double>(pick.index) - 0.7L * static_cast<long double>(k)), 1);
      ++whole;
    }
  }
  EXPECT_EQ(whole, 7u);
}

TEST(MixtureTest, TheSeedBreaksTies) {
  std::vector<std::size_t> first;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    first.push_back(must(Mixture::create(std::vector<double>{1, 1}, seed)).pick(0).source);
  EXPECT_THAT(first, testing::Contains(0u));
  EXPECT_THAT(first, testing::Contains(1u));
}

TEST(MixtureTest, InvalidWeightsAreRefusedWithTheNumber) {
  EXPECT_THAT(mixture_refusal({}),
              HasSubstr("weights of 0 sources; the number must be at least 1 and at most 64"));
  EXPECT_THAT(mixture_refusal(std::vector<double>(65, 1)), HasSubstr("weights of 65 sources"));
  EXPECT_THAT(mixture_refusal({1, 0}), HasSubstr("a weight of 0; it must be above 0"));
  EXPECT_THAT(mixture_refusal({1, -2}), HasSubstr("a weight of -2"));
  EXPECT_THAT(mixture_refusal({1, std::nan("")}), HasSubstr("a weight of nan"));
  EXPECT_THAT(mixture_refusal({1, INFINITY}), HasSubstr("a weight of inf"));
  EXPECT_THAT(mixture_refusal({1, 1.0 / 3}), HasSubstr("more than 6 decimals"));
  EXPECT_THAT(mixture_refusal({1, 0.123457}),
              HasSubstr("sum to 1123457, the maximum is 1048576; round them"));
}

// --- Datasets ---

struct MixedDatasetTest : testing::Test {
  MixedDatasetTest() {
    io.put("a", std::string(101, 'a'));
    io.put("b", std::string(41, 'b'));
    for (const char* name : {"a", "b"}) {
      caches.push_back(must(TokenCache::open_or_build(io, tokenizer, {name}, std::string("c.") + name)));
      streams.push_back(must(StreamDataset::create(
          *caches.back(), {.seq = 4, .order = SampleOrder::shuffled, .seed = caches.size()})));
    }
  }
  MixedDataset mixed(double a, double b) {
    return must(MixedDataset::create({{"a", &streams[0], a}, {"b", &streams[1], b}}, 7));
  }
  static std::vector<std::int32_t> inputs(const Dataset& data, std::uint64_t k, std::int64_t n) {
    std::vector<std::int32_t> in(static_cast<std::size_t>(n * data.seq())), out(in.size());
    must(data.fill_batch(k, n, {in, out}));
    return in;
  }
  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = must(Tokenizer::train({}, 257));
  std::vector<std::unique_ptr<TokenCache>> caches;
  std::vector<StreamDataset> streams;
};

TEST_F(MixedDatasetTest, EachSourceContributesItsSamplesInOrder) {
  const MixedDataset data = mixed(3, 1);
  std::uint64_t given[2] = {};
  for (std::uint64_t k = 0; k < 100; ++k) {
    const MixedDataset::Pick pick = data.pick(k);
    EXPECT_EQ(pick.index, given[pick.source]++);
    EXPECT_EQ(inputs(data, k, 1), inputs(streams[pick.source], pick.index, 1));
    EXPECT_EQ(data.count_targets(k, 1).bytes, streams[pick.source].count_targets(pick.index, 1).bytes);
  }
  EXPECT_EQ(given[0], 75u);
}

TEST_F(MixedDatasetTest, ResumingAtKContinuesWithTheSameSamples) {
  const std::vector<std::int32_t> whole = inputs(mixed(2, 3), 0, 60);
  for (std::uint64_t k = 0; k < 60; k += 7)
    EXPECT_EQ(inputs(mixed(2, 3), k, 60 - static_cast<std::int64_t>(k)),
              std::vector<std::int32_t>(whole.begin() + static_cast<std::ptrdiff_t>(k * 4), whole.end()));
}

TEST_F(MixedDatasetTest, FiniteSourcesAndDifferentLengthsAreRefusedByName) {
  const StreamDataset ends = must(StreamDataset::create(*caches[1], {.seq = 4}));
  EXPECT_EQ(MixedDataset::create({{"a", &streams[0], 1}, {"b", &ends, 1}}, 1).status().message(),
            "b ends after 10 samples; the sources of a mixture must be shuffled, which makes them endless");
  const StreamDataset longer =
      must(StreamDataset::create(*caches[1], {.seq = 5, .order = SampleOrder::shuffled}));
  EXPECT_EQ(MixedDataset::create({{"a", &streams[0], 1}, {"b", &longer, 1}}, 1).status().message(),
            "b has sequences of 5 tokens, a of 4");
}

}  // namespace
}  // namespace strata
