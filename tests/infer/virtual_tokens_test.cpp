// Text is continued and scored behind virtual tokens, which take no place of the context.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/infer/generator.h>
#include <strata/infer/scorer.h>

#include "engine/execute/first_gradients.h"
#include "engine/execute/method_programs.h"

namespace strata {
namespace {

using test::TinyRun;
using ::testing::SizeIs;

constexpr std::int32_t kTokens = 16;

class BehindVirtualTokensTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Programs with a KV cache of `shape`, with the virtual tokens behind its context, and without one.
  std::unique_ptr<TinyRun> run_with(CacheShape shape, std::int64_t prefill_rows) const {
    shape.context += virtual_tokens(settings);
    CacheShape prefill = shape;
    prefill.rows = prefill_rows;
    const auto adapted = [&](Program program) {
      return test::with_method(std::move(program), config, settings);
    };
    ProgramSet set;
    set[ProgramRole::prefill] = adapted(must(record_cached_decoder(config, prefill)));
    set[ProgramRole::decode] = adapted(must(record_cached_decoder(config, shape)));
    set[ProgramRole::infer] = adapted(must(record_decoder(config, 1, DecoderHead::logits)));
    auto run = std::make_unique<TinyRun>(must(Engine::plan(set, {})));
    must(run->engine->initialize(1));
    must(run->engine->fill(Payload::param, test::random_values));
    return run;
  }
  static std::vector<float> logits_behind(Engine& engine, std::vector<std::int32_t> text) {
    const auto last = static_cast<std::int64_t>(text.size()) - 1;
    text.resize(kTokens);
    const auto logits = must(engine.infer(text, last));
    return {logits.begin(), logits.end()};
  }

  const AdapterSettings settings = test::other_methods().at(GetParam());
  const std::int32_t n_virtual = static_cast<std::int32_t>(virtual_tokens(settings));
  const DecoderConfig config = test::tiny_for_virtual_tokens("qwen3");
};

TEST_P(BehindVirtualTokensTest, GreedyTokensAreTheMostLikelyOnesOfAFullForward) {
  const auto run = run_with({2, 2, kTokens, 2}, 4);
  Generator generator(
      *run->engine, must(Sampler::create({.temperature = 0})),
      {.max_tokens = 100, .context = kTokens, .vocab = 50, .seed = 3, .virtual_tokens = n_virtual});
  const std::vector<GenerationRequest> requests = {{0, {7, 8, 9, 10, 11}, {}}, {1, {3}, {}}};
  const std::vector<Completion> got =
      must(generator.run(requests, [](std::size_t, std::int32_t) { return Status::ok(); }));
  for (const GenerationRequest& request : requests) {
    const Completion& completion = got[request.index];
    EXPECT_EQ(completion.finish_reason, FinishReason::context_full);
    EXPECT_THAT(completion.ids, SizeIs(static_cast<std::size_t>(kTokens) - request.prompt.size() + 1));
    std::vector<std::int32_t> text = request.prompt;
    for (const std::int32_t id : completion.ids) {
      const std::vector<float> logits = logits_behind(*run->engine, text);
      EXPECT_EQ(id, std::max_element(logits.begin(), logits.end()) - logits.begin());
      text.push_back(id);
    }
  }
}

TEST_P(BehindVirtualTokensTest, ScoresAreThoseOfWholeForwardPasses) {
  const CacheShape shape = Scorer::shape(3, kTokens);
  const auto run = run_with(shape, shape.rows);
  std::vector<ScoreSequence> sequences;
  for (std::size_t n = 2; n <= kTokens + 1; ++n) {
    sequences.push_back({.ids = {}, .scored = (n + 1) / 2});
    for (std::size_t i = 0; i < n; ++i)
      sequences.back().ids.push_back(static_cast<std::int32_t>((7 * n + 3 * i * i) % 50));
  }
  const auto scores = must(Scorer(*run->engine, 3, n_virtual).run(sequences));
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::vector<std::int32_t>& ids = sequences[s].ids;
    double want = 0;
    for (std::size_t i = ids.size() - sequences[s].scored; i < ids.size(); ++i) {
      bool greedy = true;
      want += log_softmax_at(
          logits_behind(*run->engine, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i)}), ids[i],
          greedy);
    }
    EXPECT_NEAR(scores[s].logprob, want, 1e-4 * (1 - want)) << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, BehindVirtualTokensTest, ::testing::Values("prompt", "p_tuning", "prefix"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace strata
