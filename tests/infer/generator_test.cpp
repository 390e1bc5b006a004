#include <strata/infer/generator.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/cached_model.h"

namespace strata {
namespace {

using test::TinyRun;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kCacheContext = 16;

struct GeneratedModel : test::CachedModel {
  GeneratedModel(const std::string& family, std::int64_t sequences, std::int64_t prefill_rows)
      : CachedModel(test::tiny_of_family(family), {sequences, prefill_rows, kCacheContext}) {}
  Result<std::vector<Completion>> generate(
      const std::vector<GenerationRequest>& requests, const GenerateOptions& options = standard(),
      const SamplingOptions& sampling = {.temperature = 1.0},
      const Generator::OnToken& on_token = [](std::size_t, std::int32_t) { return Status::ok(); }) {
    return Generator(*run.engine, must(Sampler::create(sampling)), options).run(requests, on_token);
  }
  static GenerateOptions standard() {
    return {.max_tokens = 8, .context = kCacheContext, .vocab = 50, .seed = 3};
  }
};

std::vector<GenerationRequest> three_requests() {
  return {{0, {1, 2, 3}, {}}, {1, {4, 5, 6, 7, 8, 9, 10}, {}}, {2, {11}, {}}};
}
std::vector<std::vector<std::int32_t>> ids_of(const std::vector<Completion>& all) {
  std::vector<std::vector<std::int32_t>> out;
  for (const Completion& one : all) out.push_back(one.ids);
  return out;
}

class GeneratorFamilyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GeneratorFamilyTest, NeitherOtherPromptsNorTheirSplitChangeASequence) {
  const std::vector<GenerationRequest> requests = three_requests();
  const auto together = ids_of(must(GeneratedModel(GetParam(), 3, 16).generate(requests)));
  EXPECT_THAT(together[1], SizeIs(8));
  EXPECT_NE(together[0], together[1]);
  EXPECT_EQ(ids_of(must(GeneratedModel(GetParam(), 3, 4).generate(requests))), together)
      << "prompts cut anew";
  EXPECT_EQ(ids_of(must(GeneratedModel(GetParam(), 4, 3).generate({requests[2], requests[0], requests[1]}))),
            (std::vector{together[2], together[0], together[1]}))
      << "other slots and a free one";
  for (const GenerationRequest& request : requests)
    EXPECT_THAT(ids_of(must(GeneratedModel(GetParam(), 1, 2).generate({request}))),
                ElementsAre(together[request.index]))
        << "alone";
}

INSTANTIATE_TEST_SUITE_P(Families, GeneratorFamilyTest,
                         ::testing::ValuesIn(std::vector<std::string>(test::kFamilyKinds.begin(),
                                                                      test::kFamilyKinds.end())),
                         [](const auto& param) { return param.param; });

TEST(GeneratorTest, GreedyTokensAreTheMostLikelyOnesOfAFullForward) {
  ProgramSet set = GeneratedModel::programs(test::tiny_of_family("llama"), {1, 4, kCacheContext});
  set[ProgramRole::infer] = must(record_decoder(test::tiny_of_family("llama"), 1, DecoderHead::logits));
  TinyRun run(must(Engine::plan(set, {})));
  must(run.engine->initialize(5));
  Generator generator(*run.engine, must(Sampler::create({.temperature = 0})), GeneratedModel::standard());
  const std::vector<GenerationRequest> requests = {{0, {7, 8, 9, 10, 11}, {}}};
  const std::vector<std::int32_t> got =
      must(generator.run(requests, [](std::size_t, std::int32_t) { return Status::ok(); }))[0].ids;
  std::vector<std::int32_t> text = requests[0].prompt;
  for (const std::int32_t id : got) {
    std::vector<std::int32_t> window = text;
    window.resize(kCacheContext);
    const auto logits = must(run.engine->infer(window, static_cast<std::int64_t>(text.size()) - 1));
    EXPECT_EQ(id, std::max_element(logits.begin(), logits.end()) - logits.begin());
    text.push_back(id);
  }
}

TEST(GeneratorTest, ASequenceReportsItsFinishReason) {
  GeneratedModel model("gpt2", 2, 8);
  GenerateOptions options = GeneratedModel::standard();
  options.max_tokens = 100;
  const auto full = must(model.generate({three_requests()[0]}, options))[0];
  EXPECT_EQ(full.finish_reason, FinishReason::context_full);
  EXPECT_THAT(full.ids, SizeIs(kCacheContext - 3 + 1)) << "the last one needs no place";
  options.max_tokens = 5;
  const auto counted = must(model.generate({three_requests()[0]}, options))[0];
  EXPECT_EQ(counted.finish_reason, FinishReason::max_tokens);
  EXPECT_EQ(counted.ids, std::vector<std::int32_t>(full.ids.begin(), full.ids.begin() + 5));
  GenerationRequest ending = three_requests()[0];
  ending.stop_ids = {full.ids[3]};
  const auto ended = must(model.generate({ending, three_requests()[1]}, options));
  EXPECT_EQ(ended[0].finish_reason, FinishReason::end_of_text);
  EXPECT_LE(ended[0].ids.size(), 3u);
  EXPECT_EQ(std::count(ended[0].ids.begin(), ended[0].ids.end(), full.ids[3]), 0);
  EXPECT_EQ(ended[1].finish_reason, FinishReason::max_tokens) << "the other one goes on";
}

TEST(GeneratorTest, TokensArriveAsTheyAreSampledAndTheCallbackMayStop) {
  GeneratedModel model("llama", 3, 8);
  std::vector<std::vector<std::int32_t>> seen(3);
  const auto all = must(model.generate(three_requests(), GeneratedModel::standard(), {.temperature = 1.0},
                                       [&](std::size_t request, std::int32_t id) {
                                         seen[request].push_back(id);
                                         return Status::ok();
                                       }));
  EXPECT_EQ(seen, ids_of(all));
  const auto stopped =
      model.generate(three_requests(), GeneratedModel::standard(), {},
                     [](std::size_t, std::int32_t) { return Status::error(Code::io_error, "enough"); });
  EXPECT_EQ(stopped.status().message(), "enough");
}

TEST(GeneratorTest, BadPromptsAndLogitsAreNamed) {
  GeneratedModel model("llama", 1, 8);
  EXPECT_THAT(std::string(model.generate({{4, std::vector<std::int32_t>(17), {}}}).status().message()),
              HasSubstr("prompt 5: the prompt has 17 tokens; a sequence has 1 to 16"));
  EXPECT_EQ(model.generate({{0, {}, {}}}).status().code(), Code::invalid);
  must(model.run.engine->fill(Payload::param, [](const StatePiece&, std::span<float> values) {
    std::fill(values.begin(), values.end(), std::nanf(""));
    return Status::ok();
  }));
  const Status status = model.generate({{1, {1, 2}, {}}}).status();
  EXPECT_EQ(status.code(), Code::diverged);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("prompt 2: token 1 of the completion: the logit of token 0 of 50 is NaN"));
}

}  // namespace
}  // namespace strata
