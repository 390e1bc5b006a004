// Biases of routers move by the rate towards an even load.
#include <strata/train/router_bias.h>

#include <gmock/gmock.h>

#include <strata/config/load_config.h>
#include <strata/plan/expert_rows.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Each of four experts gets 6 of 24 rows if the load is even.
const std::vector<double> kOffsets = {0, 6, 12, 23, 24};

TEST(RouterBiasTest, AnExpertWithFewerRowsThanTheMeanGainsTheRateAndOneWithMoreLosesIt) {
  std::vector<float> bias = {0.5f, 0, 1, -1};
  balance_choice(bias, 0, kOffsets, 0.25f);
  EXPECT_THAT(bias, ElementsAre(0.5f, 0, 0.75f, -0.75f));
  std::vector<float> part = {0, 0};
  balance_choice(part, 2, kOffsets, 0.25f);
  EXPECT_THAT(part, ElementsAre(-0.25f, 0.25f)) << "of a rank that holds the last two";
}

TEST(RouterBiasTest, AMeanThatIsNoIntegerIsMissedByEveryExpert) {
  std::vector<float> bias(3);
  balance_choice(bias, 0, std::vector<double>{0, 1e9, 2e9, 3e9 + 1}, 1);
  EXPECT_THAT(bias, ElementsAre(1, 1, -1));
}

std::string problem_of(const std::string& family, std::vector<std::string> assignments) {
  for (const std::string& each : {"model.family=" + family, std::string("model.experts=8"),
                                  std::string("train.router_bias_rate=0.001")})
    assignments.push_back(each);
  const auto loaded = load_config({.items = assignments});
  return loaded.has_value() ? "" : std::string(loaded.status().message());
}

TEST(RouterBiasTest, RunsWithoutSuchBiasesAreRefusedByName) {
  EXPECT_EQ(problem_of("glm4_moe", {}), "");
  EXPECT_THAT(
      problem_of("qwen3_moe", {}),
      HasSubstr("train.router_bias_rate = 0.001, but the model has no routers with a bias for the choice: "
                "model.family is qwen3_moe"));
  EXPECT_THAT(problem_of("glm4_moe", {"adapter.method=lora"}),
              HasSubstr("train.router_bias_rate = 0.001, but adapter.method is lora"));
  EXPECT_THAT(problem_of("glm4_moe", {"train.objective=dpo"}),
              HasSubstr("train.router_bias_rate = 0.001, but train.objective is dpo"));
  EXPECT_THAT(problem_of("glm4_moe", {"parallel.tp=2"}),
              HasSubstr("train.router_bias_rate = 0.001, but ranks share the model (tp 2)"));
}

TEST(RouterBiasTest, OnlyRunsThatBalanceChangeBiasesAndAllCountRows) {
  const auto config_of = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"model.family=glm4_moe", "model.layers=3", "model.experts=8"});
    return must(load_config({.items = more})).config;
  };
  EXPECT_THAT(balanced_biases(config_of({})), IsEmpty());
  EXPECT_THAT(balanced_biases(config_of({"train.router_bias_rate=0.001"})),
              ElementsAre("layers.1.router.choice_bias", "layers.2.router.choice_bias"));
  const std::vector<StepSum> sums = expert_sums(config_of({}));
  ASSERT_EQ(sums.size(), 2u) << "the first layer is dense";
  EXPECT_EQ(sums[1].output, "expert_rows.1");
  EXPECT_EQ(sums[1].n, 9);
  EXPECT_THAT(expert_sums(config_of({"parallel.ranks=2", "train.grad_accum=2"})).size(), 2u);
  EXPECT_THAT(expert_sums(config_of({"parallel.tp=2"})), IsEmpty());
}

}  // namespace
}  // namespace strata
