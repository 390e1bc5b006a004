#include <strata/model/sampling.h>

#include <cmath>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>
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

TEST(SamplingTest, MinPDropsWhatIsFarLessLikelyThanTheMostLikelyToken) {
  const std::vector<float> logits = logs({0.05, 0.5, 0.15, 0.3});
  EXPECT_THAT(ids({.min_p = 0.09}, logits), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ids({.min_p = 0.11}, logits), ElementsAre(1, 2, 3));
  EXPECT_THAT(ids({.min_p = 0.59}, logits), ElementsAre(1, 3));
  EXPECT_THAT(ids({.min_p = 1}, logits), ElementsAre(1));
  EXPECT_NEAR(candidates({.min_p = 0.59}, logits)[0].p, 0.5 / 0.8, 1e-7);
}

TEST(SamplingTest, MinPComesAfterTheTemperatureAndBeforeTopP) {
  // At the temperature 0.5 they are as 0.25, 0.0625 and 0.0125: 0.25 times the most likely one is left.
  EXPECT_THAT(ids({.temperature = 0.5, .min_p = 0.2}, logs({0.5, 0.25, 0.1118})), ElementsAre(0, 1));
  // The first of the two that are left, 0.5 and 0.3, has 0.625.
  EXPECT_THAT(ids({.top_p = 0.62, .min_p = 0.4}, logs({0.5, 0.3, 0.1, 0.1})), ElementsAre(0));
  EXPECT_THAT(ids({.top_p = 0.63, .min_p = 0.4}, logs({0.5, 0.3, 0.1, 0.1})), ElementsAre(0, 1));
  EXPECT_THAT(ids({.top_k = 3, .min_p = 0.4}, logs({0.5, 0.3, 0.1, 0.1})), ElementsAre(0, 1));
}

/// Token 1 is in the prompt, 2 was generated twice, 3 once after it was in the prompt.
TokenCounts some_counts() {
  TokenCounts counts;
  const std::vector<std::int32_t> prompt = {1, 3, 1, 900};
  counts.add_prompt(prompt);
  for (const std::int32_t id : {2, 2, 3}) counts.add_generated(id);
  return counts;
}

TEST(SamplingTest, PenaltiesAndBiasChangeTheLogitsAsTheirDefinitionsSay) {
  const std::vector<float> logits = {1.0F, 1.0F, 0.5F, -0.5F};
  const auto expect_logits = [&](const SamplingOptions& options, const std::vector<double>& wanted) {
    Sampler sampler = must(Sampler::create(options));
    const auto got = must(sampler.candidates(logits, some_counts()));
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 1; i < wanted.size(); ++i)
      EXPECT_NEAR(std::log(got[i].p / got[0].p), wanted[i] - wanted[0], 1e-6) << "token " << i;
  };
  expect_logits({.presence_penalty = 0.75}, {1, 1, -0.25, -1.25});
  expect_logits({.frequency_penalty = 0.75}, {1, 1, -1, -1.25});
  expect_logits({.frequency_penalty = -2}, {1, 1, 4.5, 1.5});
  expect_logits({.repetition_penalty = 2}, {1, 0.5, 0.25, -1});
  expect_logits({.presence_penalty = 1, .frequency_penalty = 0.5, .repetition_penalty = 2},
                {1, 0.5, 0.25 - 1 - 1, -1 - 0.5 - 1});
  expect_logits({.logit_bias = {{0, -3.5}, {3, 2}, {4, 9}}}, {-2.5, 1, 0.5, 1.5});
  // The bias comes before the penalty, and the temperature after both.
  expect_logits({.temperature = 0.5, .repetition_penalty = 2, .logit_bias = {{3, 2.5}}}, {2, 1, 0.5, 2});
}

TEST(SamplingTest, TheMostLikelyTokenIsThatAfterBiasAndPenalties) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F};
  EXPECT_THAT(ids({.temperature = 0, .logit_bias = {{0, 5}}}, logits), ElementsAre(0));
  EXPECT_THAT(ids({.temperature = 0, .logit_bias = {{1, -100}}}, logits), ElementsAre(2));
  Sampler sampler = must(Sampler::create({.temperature = 0, .repetition_penalty = 4}));
  TokenCounts counts;
  counts.add_generated(1);
  EXPECT_EQ(must(sampler.sample(logits, 0.5, counts)), 2);
}

TEST(SamplingTest, PenaltiesKeepLogitsFinite) {
  const float most = std::numeric_limits<float>::max(), inf = std::numeric_limits<float>::infinity();
  TokenCounts counts;
  for (const std::int32_t id : {0, 1, 2}) counts.add_generated(id);
  Sampler sampler = must(Sampler::create({.repetition_penalty = 1e-300}));
  const auto got = must(sampler.candidates(std::vector<float>{most, 1.0F, -inf}, counts));
  ASSERT_EQ(got.size(), 2U) << "what cannot be drawn stays so";
  EXPECT_DOUBLE_EQ(got[0].p, 0.5) << "both are as large as can be";
}

TEST(SamplingTest, CountsMatterOnlyToPenalties) {
  const std::vector<float> logits = test::Values(5).floats(500, 3.0);
  Sampler sampler = must(Sampler::create({.temperature = 0.7, .top_k = 50, .top_p = 0.9}));
  TokenCounts counts;
  for (std::int32_t id = 0; id < 500; ++id) counts.add_generated(id);
  for (double uniform = 0; uniform < 1; uniform += 0.01)
    EXPECT_EQ(must(sampler.sample(logits, uniform, counts)), must(sampler.sample(logits, uniform)));
}

TEST(SamplingTest, ATokenTakesNoMemoryOnceTheBuffersAreThere) {
  if (!AllocCounter::hooked()) GTEST_SKIP() << "allocations are not counted";
  const std::vector<float> logits = test::Values(5).floats(500, 3.0);
  const TokenCounts counts = some_counts();
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.7, .top_k = 50, .top_p = 0.9, .min_p = 0.01},
        SamplingOptions{.presence_penalty = 1, .logit_bias = {{3, 1}}}}) {
    Sampler sampler = must(Sampler::create(options));
    (void)must(sampler.sample(logits, 0.5, counts));
    const std::uint64_t before = AllocCounter::thread_count();
    must(sampler.set_options(options));
    (void)must(sampler.sample(logits, 0.25, counts));
    EXPECT_EQ(AllocCounter::thread_count(), before);
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
  const Status penalties = Sampler::create({.min_p = 1.5,
                                            .presence_penalty = -2.5,
                                            .frequency_penalty = std::nan(""),
                                            .repetition_penalty = 0,
                                            .logit_bias = {{7, 101}, {-1, 0}}})
                               .status();
  for (const char* part :
       {"min-p is 1.5; it must be from 0 to 1", "presence penalty is -2.5; it must be from -2 to 2",
        "frequency penalty is nan", "repetition penalty is 0; it must be above 0 and at most 100",
        "bias of token 7 is 101", "bias of token -1 is 0"})
    EXPECT_THAT(std::string(penalties.message()), HasSubstr(part));
}

}  // namespace
}  // namespace strata
