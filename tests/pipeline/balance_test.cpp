// Regions are cut into stages whose slowest takes as little as possible.
#include <limits>

#include <gmock/gmock.h>

#include <strata/graph/passes.h>
#include <strata/graph/pipeline.h>
#include <strata/model/decoder.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double slowest(const std::vector<double>& costs, const std::vector<std::int32_t>& stage,
               std::int32_t stages) {
  std::vector<double> sums(static_cast<std::size_t>(stages));
  for (std::size_t i = 0; i < costs.size(); ++i) sums[static_cast<std::size_t>(stage[i])] += costs[i];
  return *std::max_element(sums.begin(), sums.end());
}
/// The same of the best of all cuts of the items from `first` on.
double best(const std::vector<double>& costs, std::size_t first, std::int32_t stages) {
  double sum = 0, least = std::numeric_limits<double>::infinity();
  for (std::size_t end = first; end < costs.size(); ++end) {
    sum += costs[end];
    if (stages > 1) least = std::min(least, std::max(sum, best(costs, end + 1, stages - 1)));
  }
  return stages == 1 ? sum : least;
}

TEST(BalanceStages, TheSlowestStageIsAsFastAsInTheBestOfAllCuts) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Rng rng(seed, 5);
    std::vector<double> costs(6 + rng.below(0, 5));
    for (std::size_t i = 0; i < costs.size(); ++i) costs[i] = 1 + static_cast<double>(rng.below(1 + i, 9));
    for (const std::int32_t stages : {1, 2, 3, 5}) {
      const std::vector<std::int32_t> stage = must(balance_stages(costs, stages));
      EXPECT_TRUE(std::is_sorted(stage.begin(), stage.end()));
      EXPECT_EQ(stage.front(), 0);
      EXPECT_EQ(stage.back(), stages - 1);
      EXPECT_EQ(slowest(costs, stage, stages), best(costs, 0, stages)) << "seed " << seed;
    }
  }
}

TEST(BalanceStages, AHeadCostsLayers) {
  EXPECT_THAT(must(balance_stages(std::vector<double>{0, 0, 1, 1, 1, 1, 0, 2}, 2)),
              ElementsAre(0, 0, 0, 0, 0, 1, 1, 1));
  DecoderConfig config = decoder_for_family("gpt2").value();
  config.layers = 12;
  config.hidden = 768;
  config.heads = config.kv_heads = 12;
  config.ffn = 3072;
  config.vocab = 50257;
  config.seq = 1024;
  const Program program = must(derive_backward(must(record_decoder(config, 1, DecoderHead::loss)), "loss"));
  const std::vector<double> costs = region_flops(program);
  const std::vector<std::int32_t> stage = must(balance_stages(costs, 4));
  std::vector<int> layers(4);
  for (std::size_t r = 0; r < program.regions.size(); ++r)
    if (program.regions[r].name.rfind("layers.", 0) == 0) ++layers[static_cast<std::size_t>(stage[r])];
  EXPECT_LT(layers[3], 2);  // the head is as expensive as five layers
  EXPECT_GT(layers[0], 3);
}

TEST(BalanceStages, WhatCannotBeCutIsRefused) {
  const auto refusal = [](const std::vector<double>& costs, std::int32_t stages) {
    const auto cut = balance_stages(costs, stages);
    return cut.has_value() ? std::string() : cut.status().to_string();
  };
  EXPECT_THAT(refusal({1, 0, 1}, 3), HasSubstr("3 stages for 2 regions"));
  EXPECT_THAT(refusal({1, 1}, 0), HasSubstr("0 stages"));
  EXPECT_THAT(refusal({1, -1}, 1), HasSubstr("region 1 costs -1"));
  EXPECT_THAT(refusal({std::numeric_limits<double>::quiet_NaN()}, 1), HasSubstr("region 0 costs nan"));
}

}  // namespace
}  // namespace strata
