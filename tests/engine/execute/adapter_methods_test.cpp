// Adapters other than LoRA: bottlenecks, and virtual tokens before each sequence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "engine/execute/central_differences.h"
#include "engine/execute/frozen_runs.h"
#include "engine/execute/method_programs.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::method_programs;
using test::other_methods;
using test::random_values;
using test::TinyRun;

using FamilyAndMethod = std::tuple<std::string_view, std::string>;

class AdapterMethodTest : public ::testing::TestWithParam<FamilyAndMethod> {
 protected:
  void SetUp() override {
    if (config.experts.n > 0 && std::holds_alternative<BottleneckSettings>(settings))
      GTEST_SKIP() << "is refused: AdapterFolderTest.WhatIsWrittenIsReadBackForEveryFamilyAndMethod";
  }
  const DecoderConfig config = test::tiny_for_virtual_tokens(std::get<0>(GetParam()));
  const AdapterSettings settings = other_methods().at(std::get<1>(GetParam()));
};

std::vector<std::string> names_of(const std::map<std::string, AdapterSettings>& methods) {
  std::vector<std::string> names;
  for (const auto& [name, settings] : methods) names.push_back(name);
  return names;
}

TEST_P(AdapterMethodTest, EveryGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const ProgramSet programs = method_programs(config, settings);
  const auto first = test::first_gradients(programs, random_values);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients, test::first_gradients(
                                   method_programs(config, settings, {.recompute = recompute}), random_values)
                                   .gradients)
        << to_string(recompute);
  std::size_t n = 0;
  for (const ParamInfo& param : programs[ProgramRole::train].params)
    n += test::is_of_other_method(param.name) ? 1 : 0;
  ASSERT_EQ(first.gradients.size(), n) << "the base has no gradient";
  ASSERT_GT(n, 0u);
  for (const auto& [name, gradient] : first.gradients) EXPECT_TRUE(test::is_of_other_method(name)) << name;
  test::expect_central_differences(test::forward_of_first_batch(programs[ProgramRole::eval]), first);
}

// Up starts with zeros, and a parameter behind the base's draws from a stream of its own. Virtual tokens
// start with random values.
TEST_P(AdapterMethodTest, ANewBottleneckChangesNoBitOfTheLoss) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const auto loss = [&](const ProgramSet& programs) {
      TinyRun run(must(Engine::plan(programs, {})));
      must(run.engine->initialize(5));
      return run.train(1)[0];
    };
    const float base = loss(test::tiny_programs(Recompute::none, 3, config, compute)),
                adapted = loss(method_programs(config, settings, {.compute = compute}));
    EXPECT_EQ(adapted == base, virtual_tokens(settings) == 0);
  }
}

TEST_P(AdapterMethodTest, AStepChangesEveryParameterOfTheAdapterAndLeavesTheBase) {
  TinyRun run(must(Engine::plan(method_programs(config, settings, {.recompute = Recompute::full}), {})));
  must(run.engine->initialize(5));
  const test::StateTensors before = test::states_of(*run.engine, Payload::param);
  run.train(2);  // Down has no gradient before Up has changed
  for (const auto& [name, values] : test::states_of(*run.engine, Payload::param))
    EXPECT_EQ(values == before.at(name), !test::is_of_other_method(name)) << name;
}

// --- with a KV cache ---

constexpr std::int64_t kSequences = 3;

// The virtual tokens are the first ones of a sequence of the cache, whatever their ids are.
TEST_P(AdapterMethodTest, AnySplitOfASequenceInTheCacheHasTheLogitsOfTheWholeContext) {
  const std::int64_t n = virtual_tokens(settings);
  ProgramSet set;
  const auto cached = [&](std::int64_t rows) {
    return test::with_method(
        must(record_cached_decoder(config, {rows, kSequences, config.seq + n, kSequences})), config,
        settings);
  };
  set[ProgramRole::infer] =
      test::with_method(must(record_decoder(config, 1, DecoderHead::logits)), config, settings);
  set[ProgramRole::prefill] = cached(5);
  set[ProgramRole::decode] = cached(kSequences);
  TinyRun run(must(Engine::plan(set, {})));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, random_values));
  const std::vector<std::int32_t> tokens = test::Values(8).below(config.seq, 50);
  std::int32_t slot = 0;
  for (const std::size_t at_once : {1, 4, 5}) {
    std::vector<SequenceToken> rows;
    for (std::int64_t i = 0; i < n + config.seq; ++i) {
      const std::int32_t id =
          i < n ? static_cast<std::int32_t>(7 * i + at_once) : tokens[static_cast<std::size_t>(i - n)];
      rows.push_back({id, static_cast<std::int32_t>(i), slot});
    }
    ++slot;
    for (std::size_t at = 0; at < rows.size(); at += at_once) {
      const std::size_t some = std::min(at_once, rows.size() - at);
      const auto logits = must(run.engine->extend(std::span(rows).subspan(at, some),
                                                  std::vector{static_cast<std::int32_t>(some) - 1}));
      const std::vector<float> got(logits.begin(), logits.end());
      const std::int64_t last = static_cast<std::int64_t>(at + some) - 1 - n;
      if (last < 0) continue;
      EXPECT_LE(test::relative_error(got, must(run.engine->infer(tokens, last))), 2e-5)
          << at_once << " at once, token " << last;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterMethodTest,
                         ::testing::Combine(::testing::ValuesIn(test::kFamilyKinds),
                                            ::testing::ValuesIn(names_of(other_methods()))),
                         [](const auto& each) {
                           return str(std::get<0>(each.param), "_", std::get<1>(each.param));
                         });

// --- virtual tokens ---

class VirtualTokensTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_for_virtual_tokens(GetParam());
};

// A prompt whose rows are embeddings of tokens is these tokens.
TEST_P(VirtualTokensTest, APromptOfTheEmbeddingsOfTokensIsThoseTokens) {
  constexpr std::int64_t n = 4;
  const std::vector<std::int32_t> tokens = test::Values(3).below(config.seq, 50);
  DecoderConfig shorter = config;
  shorter.seq = config.seq - n;
  ProgramSet whole, adapted;
  whole[ProgramRole::infer] = must(record_decoder(config, 1, DecoderHead::logits));
  adapted[ProgramRole::infer] =
      test::with_method(must(record_decoder(shorter, 1, DecoderHead::logits)), shorter, PromptSettings{n});
  TinyRun base(must(Engine::plan(whole, {}))), run(must(Engine::plan(adapted, {})));
  const float scale = embedding_scale(config);
  must(base.engine->initialize(1));
  must(base.engine->fill(Payload::param, random_values));
  const test::StateTensors states = test::states_of(*base.engine, Payload::param);
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, [&](const StatePiece& piece, std::span<float> values) {
    if (piece.name != "prompt.weight") return random_values(piece, values);
    const auto h = static_cast<std::size_t>(config.hidden);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(piece.offset) + i;
      values[i] = scale * states.at("tokens.weight")[static_cast<std::size_t>(tokens[at / h]) * h + at % h];
    }
    return Status::ok();
  }));
  const std::span<const std::int32_t> rest = std::span(tokens).subspan(n);
  for (std::int64_t i = 0; i < shorter.seq; ++i) {
    const auto logits = must(run.engine->infer(rest, i));
    const std::vector<float> got(logits.begin(), logits.end());
    EXPECT_LE(test::relative_error(got, must(base.engine->infer(tokens, n + i))), 1e-6) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VirtualTokensTest, ::testing::ValuesIn(test::kFamilyKinds),
                         [](const auto& each) { return std::string(each.param); });

// --- placements ---

// Methods x bases x step modes x placements x micro-batches.
class AdapterMethodStepTest : public ::testing::TestWithParam<std::string> {};

TEST_P(AdapterMethodStepTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  for (const std::int32_t grad_accum : {1, 3}) {
    SCOPED_TRACE(str(grad_accum, " micro-batches"));
    SessionOptions options;
    options.grad_accum = grad_accum;
    options.clip = 1e-4;
    const bool many = grad_accum > 1;
    const DecoderConfig config = test::tiny_for_virtual_tokens(many ? "gemma3_text" : "opt");
    test::frozen::expect_same_bits(
        method_programs(config, other_methods().at(GetParam()),
                        {.compute = many ? DType::bf16 : DType::f32,
                         .base = many ? kernels::WeightFormat::nf4_dq : kernels::WeightFormat::full}),
        options);
  }
}

TEST_P(AdapterMethodStepTest, InterleavedMicroBatchesGiveTheSameBits) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const auto record = [&](std::int32_t interleaved) {
      const DecoderConfig config = test::tiny_for_virtual_tokens("llama");
      SessionOptions options;
      options.grad_accum = 3;
      TinyRun run(must(Engine::plan(
          method_programs(config, other_methods().at(GetParam()),
                          {.recompute = Recompute::full, .compute = compute, .interleaved = interleaved}),
          options)));
      return test::frozen::record_run(run);
    };
    EXPECT_EQ(record(3), record(1)) << to_string(compute);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, AdapterMethodStepTest, ::testing::ValuesIn(names_of(other_methods())),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace strata
