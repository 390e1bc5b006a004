#include <strata/align/advantages.h>

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/rng.h>

namespace strata {
namespace {

std::vector<double> of_groups(const std::vector<double>& rewards, std::size_t size, bool by_deviation) {
  std::vector<double> advantages(rewards.size());
  group_advantages(rewards, size, by_deviation, advantages);
  return advantages;
}

TEST(AdvantagesTest, OfAGroupAreDistancesFromItsMeanInDeviations) {
  const std::vector<double> advantages = of_groups({1, 3, 10, 10, 20, 30}, 2, true);
  const double one = 1 / (std::sqrt(2.0) + 1e-4);
  EXPECT_DOUBLE_EQ(advantages[0], -one);
  EXPECT_DOUBLE_EQ(advantages[1], one);
  EXPECT_EQ(advantages[2], 0);  // equal rewards say nothing
  EXPECT_EQ(advantages[3], 0);
  EXPECT_DOUBLE_EQ(advantages[5], 5 / (std::sqrt(50.0) + 1e-4));
}

TEST(AdvantagesTest, WithoutTheDeviationTheyKeepTheirSize) {
  EXPECT_EQ(of_groups({1, 3, 5, 10, 20, 30}, 3, false), (std::vector<double>{-2, 0, 2, -10, 0, 10}));
}

// Computes advantages by their definition: the sum over later differences, discounted.
double by_definition(const std::vector<double>& rewards, const std::vector<float>& values,
                     const GaeOptions& options, std::size_t t) {
  double sum = 0;
  for (std::size_t l = 0; t + l < rewards.size(); ++l) {
    const double next = t + l + 1 < values.size() ? static_cast<double>(values[t + l + 1]) : 0;
    const double delta = rewards[t + l] + options.gamma * next - static_cast<double>(values[t + l]);
    sum += std::pow(options.gamma * options.lambda, static_cast<double>(l)) * delta;
  }
  return sum;
}

TEST(AdvantagesTest, GeneralizedOnesAreDiscountedSumsOfDifferences) {
  const Rng rng(5, 0);
  std::vector<double> rewards(9), advantages(9), returns(9);
  std::vector<float> values(9);
  for (std::size_t t = 0; t < 9; ++t) {
    rewards[t] = static_cast<double>(rng.normal(t));
    values[t] = rng.normal(100 + t);
  }
  for (const GaeOptions options : {GaeOptions{1, 0.95}, GaeOptions{0.9, 1}, GaeOptions{0.9, 0}}) {
    generalized_advantages(rewards, values, options, advantages, returns);
    for (std::size_t t = 0; t < 9; ++t) {
      EXPECT_NEAR(advantages[t], by_definition(rewards, values, options, t), 1e-12);
      EXPECT_DOUBLE_EQ(returns[t], advantages[t] + static_cast<double>(values[t]));
    }
  }
}

TEST(AdvantagesTest, WhitenedValuesHaveMeanZeroAndDeviationOne) {
  std::vector<double> values = {4, 8, 6, 5, 3, 7};
  whiten(values);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), 0, 1e-12);
  EXPECT_NEAR(std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / 5, 1, 1e-7);
  std::vector<double> one = {4};
  whiten(one);
  EXPECT_EQ(one[0], 0);
}

TEST(AdvantagesTest, TheKlCoefficientFollowsItsTargetWithinBounds) {
  const KlControl control{6, 10000};
  EXPECT_DOUBLE_EQ(control.after(0.2, 6, 100), 0.2);
  EXPECT_DOUBLE_EQ(control.after(0.2, 6.6, 100), 0.2 * (1 + 0.1 * 100 / 10000));
  EXPECT_DOUBLE_EQ(control.after(0.2, 60, 100), 0.2 * (1 + 0.2 * 100 / 10000));
  EXPECT_DOUBLE_EQ(control.after(0.2, 0, 100), 0.2 * (1 - 0.2 * 100 / 10000));
  EXPECT_DOUBLE_EQ((KlControl{6, 10}.after(0.2, 0, 100)), 0.2 * 0.8);  // never negative
  EXPECT_EQ((KlControl{0, 10000}.after(0.2, 60, 100)), 0.2);
}

}  // namespace
}  // namespace strata
