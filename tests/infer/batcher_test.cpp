// Sequences that join a batch and leave it have the texts that they have alone.
#include <strata/infer/batcher.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/cached_model.h"

namespace strata {
namespace {

using test::CachedModel;
using test::RecordingReceiver;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr BatchLimits kLimits{.context = 16, .vocab = 50};

BatchSequence sequence(std::vector<std::int32_t> prompt, std::int64_t max_tokens = 6,
                       double temperature = 0) {
  BatchSequence made;
  made.prompt = std::move(prompt);
  made.max_tokens = max_tokens;
  made.sampling.temperature = temperature;
  made.seed = 3;
  return made;
}

/// Prompts of different lengths, with and without sampling.
std::vector<BatchSequence> six_sequences() {
  return {sequence({1, 2, 3}),
          sequence({4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, 5),
          sequence({15}, 9, 1.0),
          sequence({16, 17, 18, 19, 20, 21, 22}, 3),
          sequence({23, 24, 25, 26, 27}, 9, 0.7),
          sequence({28, 29}, 7)};
}

void step_to_end(Batcher& batcher) {
  while (batcher.n_active() > 0) must(batcher.step());
}

std::vector<std::int32_t> alone(const std::string& family, const BatchSequence& sequence) {
  CachedModel model(test::tiny_of_family(family), {.sequences = 1, .prefill_rows = 4});
  Batcher batcher(*model.run.engine, kLimits);
  const auto receiver = std::make_shared<RecordingReceiver>();
  must(batcher.add(sequence, receiver));
  step_to_end(batcher);
  EXPECT_EQ(receiver->ends, 1);
  return receiver->ids;
}

class BatcherFamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(BatcherFamilyTest, SequencesThatJoinAndLeaveHaveTheirTextsAlone) {
  CachedModel model(test::tiny_of_family(GetParam()), {.sequences = 3, .prefill_rows = 5});
  Batcher batcher(*model.run.engine, kLimits);
  const std::vector<BatchSequence> sequences = six_sequences();
  std::vector<std::shared_ptr<RecordingReceiver>> receivers;
  std::size_t most = 0;
  for (int pass = 0; receivers.size() < sequences.size() || batcher.n_active() > 0; ++pass) {
    if (receivers.size() < sequences.size() && batcher.n_active() < batcher.n_places() && pass % 2 == 0) {
      receivers.push_back(std::make_shared<RecordingReceiver>());
      must(batcher.add(sequences[receivers.size() - 1], receivers.back()));
    }
    most = std::max(most, batcher.n_active());
    must(batcher.step());
  }
  EXPECT_EQ(most, 3U) << "they were there at the same time";
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_THAT(receivers[i]->ids, SizeIs(static_cast<std::size_t>(sequences[i].max_tokens)));
    EXPECT_EQ(receivers[i]->ids, alone(GetParam(), sequences[i])) << i;
    EXPECT_EQ(receivers[i]->reason, FinishReason::max_tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, BatcherFamilyTest,
                         ::testing::Values("gpt2", "llama", "gemma2", "qwen3", "qwen2_moe", "gpt_oss"),
                         [](const auto& param) { return param.param; });

TEST(BatcherTest, APassTakesATokenOfEachTextAndFillsUpWithPrompts) {
  CachedModel model(test::tiny_of_family("llama"), {.sequences = 3, .prefill_rows = 8});
  Batcher batcher(*model.run.engine, kLimits);
  const auto first = std::make_shared<RecordingReceiver>(), second = std::make_shared<RecordingReceiver>();
  must(batcher.add(sequence({1, 2, 3}, 4), first));
  must(batcher.step());
  EXPECT_THAT(first->ids, SizeIs(1));
  must(batcher.add(sequence({4, 5, 6, 7, 8, 9, 10, 11}, 2), second));
  must(batcher.step());
  EXPECT_THAT(first->ids, SizeIs(2)) << "it does not wait for the prompt";
  EXPECT_EQ(batcher.stats().prompt_tokens, 3U + 7U);
  must(batcher.step());
  EXPECT_THAT(second->ids, SizeIs(1));
  step_to_end(batcher);
  EXPECT_EQ(batcher.stats().passes, 4U);
  EXPECT_EQ(batcher.stats().tokens, 6U);
  EXPECT_EQ(batcher.stats().decode_tokens, 2U) << "the last pass had no prompt";
}

TEST(BatcherTest, PenaltiesCountTheTokensOfTheirOwnSequence) {
  CachedModel model(test::tiny_of_family("llama"), {.sequences = 2});
  Batcher batcher(*model.run.engine, kLimits);
  const auto penalized = std::make_shared<RecordingReceiver>(), other = std::make_shared<RecordingReceiver>();
  BatchSequence once = sequence({1, 2, 3}, 12);
  once.sampling.presence_penalty = once.sampling.frequency_penalty = 2;
  once.sampling.repetition_penalty = 100;
  must(batcher.add(once, penalized));
  must(batcher.add(sequence({1, 2, 3}, 12), other));
  step_to_end(batcher);
  std::vector<std::int32_t> seen = {1, 2, 3};
  for (const std::int32_t id : penalized->ids) {
    EXPECT_EQ(std::count(seen.begin(), seen.end(), id), 0) << id;
    seen.push_back(id);
  }
  EXPECT_EQ(other->ids, alone("llama", sequence({1, 2, 3}, 12)));
  once.sampling.logit_bias = {{50, 1}};
  EXPECT_EQ(batcher.add(once, other).message(),
            "the logits have a bias for token 50, but the vocabulary has 50 tokens");
}

TEST(BatcherTest, ACancelledSequenceFreesItsPlaceBeforeTheNextPass) {
  CachedModel model(test::tiny_of_family("llama"), {.sequences = 2});
  Batcher batcher(*model.run.engine, kLimits);
  const auto left = std::make_shared<RecordingReceiver>(), stays = std::make_shared<RecordingReceiver>();
  must(batcher.add(sequence({1, 2, 3}, 9), left));
  must(batcher.add(six_sequences()[5], stays));
  must(batcher.step());
  left->cancelled = true;
  EXPECT_EQ(batcher.add(sequence({1}), stays).message(), "all 2 places of the KV cache are taken");
  must(batcher.step());
  EXPECT_THAT(left->ids, SizeIs(1));
  EXPECT_EQ(left->status.code(), Code::cancelled);
  EXPECT_EQ(batcher.n_active(), 1U);
  const auto next = std::make_shared<RecordingReceiver>();
  must(batcher.add(six_sequences()[0], next));
  step_to_end(batcher);
  EXPECT_EQ(next->ids, alone("llama", six_sequences()[0])) << "nothing of the one before is left";
  EXPECT_EQ(stays->ids, alone("llama", six_sequences()[5]));
}

TEST(BatcherTest, AReceiverThatFailsOrHasEnoughEndsItsOwnSequenceOnly) {
  CachedModel model(test::tiny_of_family("llama"), {.sequences = 3});
  Batcher batcher(*model.run.engine, kLimits);
  std::vector<std::shared_ptr<RecordingReceiver>> receivers;
  for (int i = 0; i < 3; ++i) {
    receivers.push_back(std::make_shared<RecordingReceiver>());
    must(batcher.add(sequence({1, 2, 3}, 5), receivers.back()));
  }
  receivers[0]->fails = true;
  receivers[1]->stop_after = 2;
  step_to_end(batcher);
  EXPECT_EQ(receivers[0]->status.message(), "nobody reads");
  EXPECT_EQ(receivers[1]->reason, FinishReason::stopped);
  EXPECT_THAT(receivers[1]->ids, SizeIs(2));
  EXPECT_THAT(receivers[2]->ids, SizeIs(5));
}

TEST(BatcherTest, TheLogitsOfAPromptAreThoseOfItsTokensWhateverAPassHasRoomFor) {
  const std::vector<std::int32_t> prompt = {4, 5, 6, 7, 8, 9, 10};
  std::vector<std::vector<std::pair<std::size_t, std::vector<float>>>> found;
  for (const std::int64_t logits : {2, 8}) {
    CachedModel model(test::tiny_of_family("llama"),
                      {.sequences = 2, .prefill_rows = 8, .prefill_logits = logits});
    Batcher batcher(*model.run.engine, kLimits);
    const auto scored = std::make_shared<RecordingReceiver>(), other = std::make_shared<RecordingReceiver>();
    BatchSequence one = sequence(prompt, 0);
    one.scores_prompt = true;
    must(batcher.add(sequence({1, 2, 3}), other));
    must(batcher.add(one, scored));
    step_to_end(batcher);
    EXPECT_TRUE(scored->ids.empty());
    EXPECT_EQ(scored->reason, FinishReason::max_tokens);
    EXPECT_EQ(other->ids, alone("llama", sequence({1, 2, 3})));
    found.push_back(scored->prompt_logits);
  }
  ASSERT_EQ(found[0].size(), prompt.size() - 1);
  EXPECT_EQ(found[0], found[1]);
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    const std::vector<float>& logits = found[0][i - 1].second;
    const BatchSequence begin =
        sequence({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(i)}, 1);
    EXPECT_EQ(found[0][i - 1].first, i);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), alone("llama", begin)[0]);
  }
}

TEST(BatcherTest, WhatCannotBeContinuedIsRefusedWithBothNumbers) {
  CachedModel model(test::tiny_of_family("llama"), {.sequences = 1});
  Batcher batcher(*model.run.engine, kLimits);
  const auto why = [&](const BatchSequence& bad) {
    return std::string(batcher.add(bad, std::make_shared<RecordingReceiver>()).message());
  };
  EXPECT_THAT(why(sequence(std::vector<std::int32_t>(17))),
              HasSubstr("has 17 tokens; a sequence has 1 to 16"));
  EXPECT_THAT(why(sequence({})), HasSubstr("has 0 tokens"));
  EXPECT_THAT(why(sequence({1}, 1, -1)), HasSubstr("the temperature is -1"));
  BatchSequence cached = sequence({1, 2});
  cached.cached = 2;
  EXPECT_THAT(why(cached), HasSubstr("has 2 tokens, of which 2"));
  EXPECT_EQ(batcher.n_active(), 0U);
}

TEST(BatcherTest, ATokenOutsideOfTheModelIsRefusedAlone) {
  CachedModel model(test::tiny_of_family("llama"), {.sequences = 2});
  Batcher batcher(*model.run.engine, kLimits);
  const auto good = std::make_shared<RecordingReceiver>();
  must(batcher.add(sequence({1, 2}), good));
  EXPECT_THAT(std::string(batcher.add(sequence({1, 5000}), std::make_shared<RecordingReceiver>()).message()),
              HasSubstr("token 5000, but the model has 50 tokens"));
  step_to_end(batcher);
  EXPECT_TRUE(good->status.is_ok());
}

TEST(BatcherTest, AnErrorOfTheEngineEndsAllSequences) {
  CachedModel model(test::tiny_of_family("llama"), {.sequences = 2, .context = 4});
  Batcher batcher(*model.run.engine, kLimits);  // which allow more than the cache holds
  const auto bad = std::make_shared<RecordingReceiver>(), good = std::make_shared<RecordingReceiver>();
  must(batcher.add(sequence({1, 2, 3, 4, 5, 6}), bad));
  must(batcher.add(sequence({1, 2}), good));
  const Status status = batcher.step();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_EQ(bad->status, status);
  EXPECT_EQ(good->status, status);
  EXPECT_EQ(batcher.n_active(), 0U);
}

}  // namespace
}  // namespace strata
