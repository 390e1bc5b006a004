#include <strata/model/sampling.h>

#include <cmath>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/rng.h>

#include "support/numeric.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<TokenProbability> candidates(const SamplingOptions& options, const std::vector<float>& logits) {
  Sampler sampler = must(Sampler::create(options));
  const auto found = must(sampler.candidates(logits));
  return {found.begin(), found.end()};
}
std::vector<std::int32_t> ids(const SamplingOptions& options, const std::vector<float>& logits) {
  std::vector<std::int32_t> out;
  for (const TokenProbability& candidate : candidates(options, logits)) out.push_back(candidate.id);
  return out;
}
std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(SamplingTest, WithoutLimitsTheProbabilitiesAreTheSoftmax) {
  const std::vector<double> p = {0.1, 0.4, 0.2, 0.3};
  for (const TokenProbability& candidate : candidates({}, logs(p)))
    EXPECT_NEAR(candidate.p, p[static_cast<std::size_t>(candidate.id)], 1e-7);
  EXPECT_THAT(ids({}, logs(p)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids({.top_k = 4}, logs(p)), ElementsAre(1, 3, 2, 0));
}

TEST(SamplingTest, TheTemperatureIsAPowerOfTheProbabilities) {
  const auto got = candidates({.temperature = 0.5}, logs({0.2, 0.8}));
  EXPECT_NEAR(got[1].p, 0.64 / 0.68, 1e-7);
  EXPECT_NEAR(candidates({.temperature = 1e6}, logs({0.2, 0.8}))[0].p, 0.5, 1e-5);
  EXPECT_THAT(ids({.temperature = 0}, logs({0.2, 0.8})), ElementsAre(1));
}

TEST(SamplingTest, TopKKeepsExactlyKAndTheLowerIdsOnTies) {
  const std::vector<float> logits = {1, 3, 2, 3, 2, 2};
  EXPECT_THAT(ids({.top_k = 1}, logits), ElementsAre(1));
  EXPECT_THAT(ids({.top_k = 4}, logits), ElementsAre(1, 3, 2, 4));
  EXPECT_EQ(ids({.top_k = 100}, logits).size(), 6u);
  EXPECT_THAT(ids({.temperature = 0, .top_k = 4}, logits), ElementsAre(1));
}

TEST(SamplingTest, TopPKeepsTheFewestWhoseProbabilitiesReachIt) {
  const std::vector<float> logits = logs({0.05, 0.5, 0.15, 0.3});
  EXPECT_THAT(ids({.top_p = 0.49}, logits), ElementsAre(1));
  EXPECT_THAT(ids({.top_p = 0.51}, logits), ElementsAre(1, 3));
  EXPECT_THAT(ids({.top_p = 0.79}, logits), ElementsAre(1, 3));
  EXPECT_THAT(ids({.top_p = 0.81}, logits), ElementsAre(1, 3, 2));
  EXPECT_THAT(ids({.top_p = 1e-9}, logits), ElementsAre(1));
  const auto got = candidates({.top_p = 0.6}, logits);
  EXPECT_NEAR(got[0].p, 0.5 / 0.8, 1e-7);
}

TEST(SamplingTest, TopPUsesTheProbabilitiesAfterTopK) {
  // After top-k the probabilities are 4/7 and 3/7.
  EXPECT_THAT(ids({.top_k = 2, .top_p = 0.55}, logs({0.4, 0.3, 0.2, 0.1})), ElementsAre(0));
  EXPECT_THAT(ids({.top_k = 2, .top_p = 0.58}, logs({0.4, 0.3, 0.2, 0.1})), ElementsAre(0, 1));
}

TEST(SamplingTest, TopPKeepsTheSmallestSetThatReachesP) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const std::int64_t vocab = seed % 2 == 0 ? 40 : 5000;  // the larger one needs thousands
    const std::vector<float> logits = test::Values(seed).floats(vocab, 3.0);
    const auto all = candidates({.top_k = vocab}, logits);
    const std::size_t n = ids({.top_p = 0.7}, logits).size();
    double mass = 0;
    for (std::size_t i = 0; i < n; ++i) mass += all[i].p;
    const std::vector<std::int32_t> found = ids({.top_p = 0.7}, logits);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(found[i], all[i].id) << "seed " << seed << ", place " << i;
    EXPECT_GE(mass, 0.7) << "seed " << seed;
    EXPECT_LT(mass - all[n - 1].p, 0.7) << "seed " << seed;
  }
}

TEST(SamplingTest, SamplesFollowTheProbabilities) {
  Sampler sampler = must(Sampler::create({.top_k = 3}));
  const std::vector<float> logits = logs({0.1, 0.4, 0.2, 0.3});
  const Rng rng(11, 5);
  std::map<std::int32_t, int> drawn;
  constexpr int kDraws = 20000;
  for (std::uint64_t i = 0; i < kDraws; ++i)
    ++drawn[must(sampler.sample(logits, static_cast<double>(rng.uniform(i))))];
  EXPECT_EQ(drawn.count(0), 0u);
  // Four standard deviations of a frequency are at most 4 * sqrt(0.25 / 20000) = 0.0142.
  EXPECT_NEAR(drawn[1], kDraws * 0.4 / 0.9, kDraws * 0.0142);
  EXPECT_NEAR(drawn[2], kDraws * 0.2 / 0.9, kDraws * 0.0142);
  EXPECT_NEAR(drawn[3], kDraws * 0.3 / 0.9, kDraws * 0.0142);
}

TEST(SamplingTest, EveryNumberBelowOneSelectsACandidate) {
  Sampler sampler = must(Sampler::create({}));
  const std::vector<float> logits = test::Values(3).floats(1000, 5.0);
  EXPECT_EQ(must(sampler.sample(logits, 0.0)), 0);
  EXPECT_GE(must(sampler.sample(logits, std::nextafter(1.0, 0.0))), 0);
}

TEST(SamplingTest, NonFiniteLogitsAreNamed) {
  Sampler sampler = must(Sampler::create({.temperature = 0}));
  const float inf = std::numeric_limits<float>::infinity();
  const auto refusal = [&](const std::vector<float>& logits) {
    const Status status = sampler.candidates(logits).status();
    EXPECT_EQ(status.code(), Code::diverged);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({1, 2, std::nanf(""), 4}), HasSubstr("token 2 of 4 is NaN"));
  EXPECT_THAT(refusal({1, inf}), HasSubstr("token 1 of 2 is infinite"));
  EXPECT_THAT(refusal({-inf, -inf}), HasSubstr("all 2 logits are -infinity"));
  EXPECT_THAT(ids({}, {-inf, 0.0f, -inf}), ElementsAre(1)) << "what cannot be drawn is no candidate";
}

TEST(SamplingTest, AllBadOptionsAreReportedAtOnce) {
  const Status status = Sampler::create({.temperature = -1, .top_k = -2, .top_p = 0}).status();
  EXPECT_EQ(status.code(), Code::invalid);
  for (const char* part : {"temperature is -1", "top-k is -2", "top-p is 0"})
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_FALSE(Sampler::create({.temperature = std::nan("")}).has_value());
}

}  // namespace
}  // namespace strata
