#include <strata/infer/scorer.h>

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tiny_run.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::TinyRun;
using ::testing::HasSubstr;

constexpr std::int64_t kContext = 16;

double reference(std::span<const float> logits, std::size_t token) {
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit) - logits[token]);
  return -static_cast<double>(std::log(sum));
}

/// A tiny model with random weights, large enough that every input changes the logits.
struct Model {
  explicit Model(const std::string& family, std::int64_t slots)
      : run(must(Engine::plan(programs(test::tiny_of_family(family), slots), {}))),
        scorer(*run.engine, static_cast<std::int32_t>(slots)) {
    must(run.engine->fill(Payload::param, [](const StatePiece& piece, std::span<float> values) {
      const auto random = test::Values(std::hash<std::string_view>()(piece.name))
                              .floats(static_cast<std::int64_t>(values.size()), 0.5);
      std::copy(random.begin(), random.end(), values.begin());
      return Status::ok();
    }));
  }
  static ProgramSet programs(const DecoderConfig& config, std::int64_t slots) {
    ProgramSet set;
    for (const ProgramRole role : {ProgramRole::prefill, ProgramRole::decode})
      set[role] = must(record_cached_decoder(config, Scorer::shape(slots, kContext)));
    set[ProgramRole::infer] = must(record_decoder(config, 1, DecoderHead::logits));
    return set;
  }
  TinyRun run;
  Scorer scorer;
};

/// More sequences than slots, more tokens and more scored tokens than one pass takes, of all lengths.
std::vector<ScoreSequence> many_sequences() {
  std::vector<ScoreSequence> all;
  for (std::size_t n = 2; n <= kContext + 1; ++n)
    for (const std::size_t scored : {std::size_t{1}, (n + 1) / 2, n - 1}) {
      ScoreSequence& one = all.emplace_back();
      one.scored = scored;
      for (std::size_t i = 0; i < n; ++i)
        one.ids.push_back(static_cast<std::int32_t>((7 * n + 3 * i * i) % 50));
    }
  return all;
}

/// The score by the logits of whole forward passes.
SequenceScore by_inference(Engine& engine, const ScoreSequence& sequence) {
  SequenceScore score;
  for (std::size_t i = sequence.ids.size() - sequence.scored; i < sequence.ids.size(); ++i) {
    std::vector<std::int32_t> window(sequence.ids.begin(), sequence.ids.end() - 1);
    window.resize(kContext);
    const auto logits = must(engine.infer(window, static_cast<std::int64_t>(i) - 1));
    const auto token = static_cast<std::size_t>(sequence.ids[i]);
    score.logprob += reference(logits, token);
    score.greedy = score.greedy && logits[token] == *std::max_element(logits.begin(), logits.end());
  }
  return score;
}

TEST(LogSoftmaxTest, ItIsAccurateAlsoForManyAndForExtremeLogits) {
  std::vector<float> logits = test::Values(3).floats(200000, 5.0);
  logits[7] = 300;
  logits[9] = -4000;
  for (const std::int32_t token : {0, 7, 9, 199999}) {
    bool greedy = true;
    const double expected = reference(logits, static_cast<std::size_t>(token));
    EXPECT_NEAR(log_softmax_at(logits, token, greedy), expected, 3e-7 * (1 + std::abs(expected)));
    EXPECT_EQ(greedy, token == 7);
  }
  std::vector<float> flat(200000, 0.25F);
  bool greedy = true;
  EXPECT_NEAR(log_softmax_at(flat, 0, greedy), -std::log(200000.0), 2e-6);
  EXPECT_TRUE(greedy) << "the first of equals";
  EXPECT_NEAR(log_softmax_at(flat, 1, greedy), -std::log(200000.0), 2e-6);
  EXPECT_FALSE(greedy);
}

class ScorerFamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ScorerFamilyTest, ScoresAreThoseOfWholeForwardPasses) {
  Model model(GetParam(), 5);
  const std::vector<ScoreSequence> sequences = many_sequences();
  const std::vector<SequenceScore> scores = must(model.scorer.run(sequences));
  ASSERT_EQ(scores.size(), sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequenceScore expected = by_inference(*model.run.engine, sequences[i]);
    EXPECT_NEAR(scores[i].logprob, expected.logprob, 1e-4 * (1 - expected.logprob)) << i;
    EXPECT_EQ(scores[i].greedy, expected.greedy) << i;
  }
}

TEST_P(ScorerFamilyTest, NeitherSlotsNorOtherSequencesChangeABit) {
  const std::vector<ScoreSequence> sequences = many_sequences();
  const std::vector<SequenceScore> together = must(Model(GetParam(), 64).scorer.run(sequences));
  for (const std::int64_t slots : {1, 3}) {
    const std::vector<SequenceScore> other = must(Model(GetParam(), slots).scorer.run(sequences));
    for (std::size_t i = 0; i < sequences.size(); ++i) EXPECT_EQ(other[i].logprob, together[i].logprob) << i;
  }
  Model alone(GetParam(), 2);
  for (std::size_t i = 0; i < sequences.size(); ++i)
    EXPECT_EQ(must(alone.scorer.run({&sequences[i], 1}))[0].logprob, together[i].logprob) << i;
}

INSTANTIATE_TEST_SUITE_P(Families, ScorerFamilyTest,
                         ::testing::ValuesIn(std::vector<std::string>(test::kFamilyKinds.begin(),
                                                                      test::kFamilyKinds.end())),
                         [](const auto& param) { return param.param; });

TEST(ScorerTest, LogitsThatAreNotFiniteAreAnError) {
  Model model("llama", 2);
  must(model.run.engine->fill(Payload::param, [](const StatePiece&, std::span<float> values) {
    std::fill(values.begin(), values.end(), std::nanf(""));
    return Status::ok();
  }));
  const std::vector<ScoreSequence> sequences = {{{1, 2, 3}, 1}};
  const Status status = model.scorer.run(sequences).status();
  EXPECT_EQ(status.code(), Code::diverged);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sequence 0: the log-probability of token 3 is nan"));
}

TEST(ScorerTest, NoSequencesHaveNoScores) { EXPECT_TRUE(must(Model("gpt2", 1).scorer.run({})).empty()); }

}  // namespace
}  // namespace strata
