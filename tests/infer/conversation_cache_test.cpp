// Whatever of a conversation is computed already, its next answer is that of a fresh model.
#include <strata/infer/conversation_cache.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/cached_model.h"

namespace strata {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kTalkContext = 160;

DecoderConfig talking(const std::string& family) {
  DecoderConfig config = test::tiny_of_family(family);
  config.seq = kTalkContext;
  return config;
}

/// A conversation with a model that has room for so many snapshots.
struct Talk : test::CachedModel {
  explicit Talk(const std::string& family, std::int32_t snapshots = 2)
      : CachedModel(talking(family), {1, 16, kTalkContext, 0, snapshots}) {}

  struct Answer {
    Tokens ids;
    std::uint64_t computed = 0;  ///< tokens of the prompt
  };
  /// Continues a prompt by six tokens at most, until `stop` or after `cancelled_after` of them.
  Answer answer(const Tokens& prompt, std::int32_t keep_at = 0, const Tokens& stop = {},
                std::size_t cancelled_after = 99) {
    Generator generator(*run.engine, must(Sampler::create({.temperature = 0})),
                        {.max_tokens = 6, .context = kTalkContext, .vocab = 50});
    GenerationRequest request{.prompt = prompt, .stop_ids = stop, .keep_at = keep_at};
    request.cached = cache.begin(prompt);
    Answer answer;
    const auto done = generator.run({&request, 1}, [&](std::size_t, std::int32_t id) -> Status {
      cache.sampled(id);
      if (answer.ids.size() == cancelled_after) return Status::error(Code::cancelled, "stopped");
      answer.ids.push_back(id);
      return {};
    });
    if (done.has_value()) cache.ended(done->front().finish_reason);
    answer.computed = generator.stats().prompt_tokens;
    return answer;
  }
  ConversationCache cache{*run.engine, 0};
};

Tokens talk_text(std::uint64_t seed, std::int64_t n) { return test::Values(seed * 977).below(n, 50); }
Tokens all_of(std::initializer_list<Tokens> parts) {
  Tokens all;
  for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class ConversationCacheTest : public ::testing::TestWithParam<std::string> {
 protected:
  Tokens alone(const Tokens& prompt) const { return Talk(GetParam(), 0).answer(prompt).ids; }
  Talk talk{GetParam()};
  const Tokens first = talk_text(1, 70), question = talk_text(2, 9);
};

TEST_P(ConversationCacheTest, ATurnThatFollowsComputesItsOwnTokensAlone) {
  const Talk::Answer said = talk.answer(first);
  EXPECT_EQ(said.computed, 70u);
  const Tokens next = all_of({first, said.ids, question});
  const Talk::Answer then = talk.answer(next);
  EXPECT_EQ(then.computed, 10u) << "and the last token of the answer";
  EXPECT_EQ(then.ids, alone(next));
}

TEST_P(ConversationCacheTest, SoItIsBehindAnAnswerThatEndedByItself) {
  const Tokens ids = alone(first), stop = {ids.back()};
  const Tokens before(ids.begin(), std::find(ids.begin(), ids.end(), stop[0]));
  const Talk::Answer said = talk.answer(first, 0, stop);
  ASSERT_EQ(said.ids, before);
  const Tokens next = all_of({first, before, stop, question});
  const Talk::Answer then = talk.answer(next);
  EXPECT_EQ(then.computed, 10u) << "and the token that ended it";
  EXPECT_EQ(then.ids, alone(next));
}

TEST_P(ConversationCacheTest, SoItIsBehindOneThatWasStopped) {
  const Talk::Answer said = talk.answer(first, 0, {}, 3);
  ASSERT_EQ(said.ids.size(), 3u);
  const Tokens next = all_of({first, said.ids, question});
  const Talk::Answer then = talk.answer(next);
  EXPECT_EQ(then.computed, 9u);
  EXPECT_EQ(then.ids, alone(next));
}

TEST_P(ConversationCacheTest, AChangedHistoryComputesWhatFollowsTheSnapshotBeforeIt) {
  const bool has_states = talk.run.engine->keeps_snapshots();
  talk.answer(first, 66);
  const Tokens changed = all_of({first, {1, 2, 3}, question});
  const Talk::Answer then = talk.answer(changed, 80);
  EXPECT_EQ(then.computed, has_states ? 82u - 66u : 82u - 70u);
  EXPECT_EQ(then.ids, alone(changed));
  const Talk::Answer again = talk.answer(changed);  // as /retry asks for it
  EXPECT_EQ(again.computed, has_states ? 2u : 1u);
  EXPECT_EQ(again.ids, then.ids);
  const Tokens shorter = all_of({Tokens(first.begin(), first.begin() + 68), question});
  EXPECT_EQ(talk.answer(shorter).computed, has_states ? 77u - 66u : 77u - 68u)
      << "the first one is still there";
  EXPECT_EQ(talk.answer(question).ids, alone(question));
}

INSTANTIATE_TEST_SUITE_P(Families, ConversationCacheTest,
                         ::testing::Values("llama", "qwen3_5_text", "lfm2", "granitemoehybrid", "nemotron_h",
                                           "falcon_h1", "deepseek_v3"),
                         [](const auto& param) { return param.param; });

TEST(BatchSnapshotTest, APassEndsWhereASnapshotIsTakenAndOtherPromptsGoOn) {
  test::CachedModel model(talking("lfm2"), {2, 16, kTalkContext, 0, 1});
  Batcher batcher(*model.run.engine, {kTalkContext, 50});
  const auto receiver = std::make_shared<test::RecordingReceiver>();
  const auto add = [&](std::int32_t n, std::int32_t keep_at) {
    must(batcher.add(
        {.prompt = talk_text(3, n), .stop_ids = {}, .keep_at = keep_at, .max_tokens = 1, .sampling = {}},
        receiver));
  };
  add(10, 7);
  add(20, 0);
  must(batcher.step());
  EXPECT_EQ(batcher.stats().prompt_tokens, 16u) << "seven of the first prompt, nine of the second";
  EXPECT_EQ(model.run.engine->continues_from(0, 7), 7);
  must(batcher.step());
  EXPECT_EQ(model.run.engine->continues_from(0, 9), 7);
  EXPECT_EQ(model.run.engine->continues_from(1, 7), 0);
  while (batcher.n_active() > 0) must(batcher.step());
  EXPECT_THAT(
      std::string(batcher.check({.prompt = {1, 2}, .stop_ids = {}, .keep_at = 3, .sampling = {}}).message()),
      ::testing::HasSubstr("the prompt has 2 tokens, and a snapshot is asked for after 3"));
}

}  // namespace
}  // namespace strata
