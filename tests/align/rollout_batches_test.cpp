#include <strata/align/rollout_batches.h>
#include <strata/align/rollout_file.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Rollout rollout(std::int32_t first, std::uint32_t n_prompt, std::size_t n, std::int32_t stop = -1) {
  Rollout made{.prompt = 7, .n_prompt = n_prompt, .stop = stop, .ids = {}};
  for (std::size_t i = 0; i < n; ++i) made.ids.push_back(first + static_cast<std::int32_t>(i));
  return made;
}

/// Inputs of a micro-batch of 2 x 6.
struct Filled {
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(12), targets = tokens, doc_start = tokens;
  std::vector<std::int32_t> advantages = tokens, weights = tokens;
  std::vector<float> floats(const std::vector<std::int32_t>& bits) const {
    const auto* const values = reinterpret_cast<const float*>(bits.data());
    return {values, values + bits.size()};
  }
};
Filled fill(RolloutBatches& batches, std::int64_t index) {
  Filled filled;
  const BatchInput inputs[] = {{"tokens", filled.tokens},
                               {"targets", filled.targets},
                               {"doc_start", filled.doc_start},
                               {"advantages", filled.advantages},
                               {"weights", filled.weights}};
  must(batches.fill(index, {inputs}));
  return filled;
}

RolloutBatches two_steps() {
  RolloutBatches batches({.steps = 2, .micro_batches = 3, .rows = 2, .seq = 6});
  must(batches.set({rollout(10, 1, 3, 2), rollout(20, 2, 3), rollout(30, 1, 4), rollout(40, 3, 6, 2)}));
  return batches;
}

TEST(RolloutBatchesTest, RolloutsArePackedAndWhatIsNotNeededIsInFront) {
  RolloutBatches batches = two_steps();
  EXPECT_EQ(batches.n_empty(0, 3), 2);  // two of three tokens share a row
  EXPECT_EQ(batches.n_empty(3, 3), 2);
  EXPECT_EQ(batches.n_empty(6, 3), 2);  // the next epoch is the same
  EXPECT_EQ(batches.n_positions(), 24);
  EXPECT_EQ(batches.n_inputs(), 16);
  const Filled first = fill(batches, 2);
  EXPECT_THAT(first.tokens, ElementsAre(10, 11, 12, 20, 21, 22, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(first.targets, ElementsAre(11, 12, 2, -1, 22, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(first.doc_start, ElementsAre(0, 0, 0, 3, 3, 3, 0, 1, 2, 3, 4, 5));
  const Filled second = fill(batches, 5);
  EXPECT_THAT(second.tokens, ElementsAre(30, 31, 32, 33, 0, 0, 40, 41, 42, 43, 44, 45));
  EXPECT_THAT(second.targets, ElementsAre(31, 32, 33, -1, -1, -1, -1, -1, 43, 44, 45, 2));
  EXPECT_EQ(fill(batches, 11).tokens, second.tokens);
}

TEST(RolloutBatchesTest, ValuesOfTokensAreWhereTheirTargetsAre) {
  RolloutBatches batches = two_steps();
  ASSERT_EQ(batches.n_tokens(), 3u + 1u + 3u + 4u);
  for (std::size_t i = 0; i < 11; ++i) {
    batches.values(TokenValue::advantage)[i] = static_cast<float>(i + 1);
    batches.values(TokenValue::weight)[i] = 0.5f;
  }
  const Filled first = fill(batches, 2), second = fill(batches, 5);
  EXPECT_THAT(first.floats(first.advantages), ElementsAre(1, 2, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(second.floats(second.advantages), ElementsAre(5, 6, 7, 0, 0, 0, 0, 0, 8, 9, 10, 11));
  EXPECT_THAT(first.floats(first.weights), ElementsAre(0.5f, 0.5f, 0.5f, 0, 0.5f, 0, 0, 0, 0, 0, 0, 0));
}

TEST(RolloutBatchesTest, WhatAProgramSaysIsTakenForTheTokens) {
  RolloutBatches batches = two_steps();
  std::vector<float> of_position(12), of_token(11);
  for (std::size_t i = 0; i < 12; ++i) of_position[i] = static_cast<float>(i);
  batches.take(2, of_position, of_token);
  batches.take(5, of_position, of_token);
  EXPECT_THAT(of_token, ElementsAre(0, 1, 2, 4, 0, 1, 2, 8, 9, 10, 11));
  std::vector<double> last(4);
  batches.take_last(2, of_position, last);
  batches.take_last(5, of_position, last);
  EXPECT_THAT(last, ElementsAre(2, 5, 3, 11));
}

TEST(RolloutBatchesTest, ALossCountsRolloutsOrTokens) {
  RolloutBatches batches = two_steps();
  EXPECT_EQ(batches.n_counted(0, 3), 2);
  EXPECT_EQ(batches.n_counted(3, 3), 2);
  RolloutBatches tokens({.steps = 1, .micro_batches = 3, .rows = 2, .seq = 6, .counts_tokens = true});
  must(tokens.set({rollout(10, 1, 3, 2), rollout(20, 2, 3)}));
  EXPECT_EQ(tokens.n_counted(0, 3), 4);
}

TEST(RolloutBatchesTest, WhatDoesNotFitIsRefusedWithBothNumbers) {
  RolloutBatches batches({.steps = 2, .micro_batches = 1, .rows = 1, .seq = 6});
  const auto refused = [&](std::vector<Rollout> rollouts) {
    return std::string(batches.set(std::move(rollouts)).message());
  };
  EXPECT_THAT(refused({rollout(1, 1, 2)}), HasSubstr("1 rollouts are not divided equally among 2 steps"));
  EXPECT_THAT(refused({rollout(1, 1, 7), rollout(1, 1, 2)}), HasSubstr("7 tokens, but a row has 6"));
  EXPECT_THAT(refused({rollout(1, 1, 4), rollout(1, 1, 3), rollout(1, 1, 2), rollout(1, 1, 2)}),
              HasSubstr("2 rollouts need 2 micro-batches of 1 x 6 tokens, but a step has 1"));
}

TEST(RolloutFileTest, TheBytesHaveWhatAResumedRunNeeds) {
  RolloutBatches written = two_steps();
  written.rollouts()[2].reward = 0.1;
  for (const TokenValue what : kAllTokenValues)
    for (std::size_t i = 0; i < written.n_tokens(); ++i)
      written.values(what)[i] = static_cast<float>(i) / 3 + static_cast<float>(what);
  std::string bytes = rollouts_bytes(12, written);
  RolloutBatches read({.steps = 2, .micro_batches = 3, .rows = 2, .seq = 6});
  must(set_rollouts(bytes, 12, read));
  for (const TokenValue what : kAllTokenValues) EXPECT_EQ(read.values(what), written.values(what));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read.rollouts()[i].ids, written.rollouts()[i].ids);
    EXPECT_EQ(read.rollouts()[i].stop, written.rollouts()[i].stop);
    EXPECT_EQ(read.rollouts()[i].reward, written.rollouts()[i].reward);
  }
  EXPECT_EQ(fill(read, 5).targets, fill(written, 5).targets);
  EXPECT_THAT(std::string(set_rollouts(bytes, 13, read).message()),
              HasSubstr("these are the answers of iteration 13, but the checkpoint is in iteration 14"));
  bytes[100] ^= 1;
  EXPECT_EQ(set_rollouts(bytes, 12, read).code(), Code::corrupt);
}

}  // namespace
}  // namespace strata
