// A KV cache of latent rows computes what one of keys and values does, in a fraction of its memory.
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/kernels/linear.h>
#include <strata/graph/passes.h>
#include <strata/model/adapter/weight_parts.h>

#include "engine/execute/first_gradients.h"
#include "engine/execute/row_adapters.h"
#include "engine/tiny_run.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::TinyRun;

constexpr std::int64_t kLatentContext = 64, kLatentRows = 64, kLatentSlots = 2;

std::vector<std::string> latent_families() {
  std::vector<std::string> names;
  for (const auto family : decoder_families())
    if (family_limits(family).latent) names.emplace_back(family);
  return names;
}

using LatentChange = std::function<Program(Program)>;

/// Prefill, which computes as many rows of logits as of tokens, decode, and the forward pass of training.
struct LatentRun : TinyRun {
  LatentRun(const DecoderConfig& config, bool latent, DType compute = DType::f32,
            const LatentChange& change = {})
      : TinyRun(must(Engine::plan(programs(config, latent, compute, change), {}))) {
    must(test::initialize_by_name(*engine));
  }
  static ProgramSet programs(const DecoderConfig& config, bool latent, DType compute,
                             const LatentChange& change) {
    const auto changed = [&](Program program) { return change ? change(std::move(program)) : program; };
    CacheShape shape{kLatentRows, kLatentSlots, kLatentContext, kLatentRows, 0, latent};
    ProgramSet set;
    set[ProgramRole::infer] =
        changed(must(record_decoder(config, 1, DecoderHead::logits, DecoderRows::whole, compute)));
    set[ProgramRole::prefill] = changed(must(record_cached_decoder(config, shape, compute)));
    shape.rows = shape.logit_rows = kLatentSlots;
    set[ProgramRole::decode] = changed(must(record_cached_decoder(config, shape, compute)));
    return set;
  }

  /// Adds a text to a slot in runs of these sizes, and returns the logits of all its tokens. Four runs or
  /// more tokens than decode has rows go through prefill.
  std::vector<float> logits(const std::vector<std::int32_t>& text, std::int32_t slot,
                            std::initializer_list<std::size_t> runs) {
    std::vector<float> all;
    std::size_t at = 0;
    for (const std::size_t n : runs) {
      std::vector<SequenceToken> tokens;
      std::vector<std::int32_t> wanted;
      for (std::size_t i = 0; i < n; ++i, ++at) {
        tokens.push_back({text[at], static_cast<std::int32_t>(at), slot});
        wanted.push_back(static_cast<std::int32_t>(i));
      }
      const auto rows = must(engine->extend(tokens, wanted));
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }
  std::vector<float> whole(const std::vector<std::int32_t>& text) {
    std::vector<float> all;
    for (std::size_t row = 0; row < text.size(); ++row) {
      const auto logits = must(engine->infer(text, static_cast<std::int64_t>(row)));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }
};

/// Bit by bit where a row of a GEMM does not depend on the others.
void expect_same(const std::vector<float>& got, const std::vector<float>& want, DType compute = DType::f32) {
  if (kernels::host_rows_are_exact())
    EXPECT_EQ(test::differing_bits(got, want), 0u) << to_string(compute);
  else
    EXPECT_LE(test::relative_error(got, want), compute == DType::f32 ? 1e-5 : 2e-2);
}

class LatentFamilyTest : public ::testing::TestWithParam<std::string> {
 protected:
  LatentFamilyTest() { config.seq = kLatentContext; }
  DecoderConfig config = test::tiny_of_family(GetParam());
  const std::vector<std::int32_t> text = test::Values(3).below(kLatentContext, 50),
                                  other = test::Values(4).below(30, 50);
};

TEST_P(LatentFamilyTest, LogitsHaveTheBitsOfACacheOfKeysAndValuesHoweverAPromptIsCut) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    LatentRun expanded(config, false, compute), latent(config, true, compute);
    expanded.logits(other, 0, {30});
    latent.logits(other, 0, {30});
    const std::vector<float> want = expanded.logits(text, 1, {64});
    EXPECT_EQ(test::differing_bits(latent.logits(text, 1, {64}), want), 0u) << to_string(compute);
    EXPECT_EQ(test::differing_bits(latent.logits(text, 0, {3, 40, 5, 16}), want), 0u) << to_string(compute);
    expect_same(want, latent.whole(text), compute);
  }
}

TEST_P(LatentFamilyTest, TokensOneByOneAgreeWithTheForwardPassOfTraining) {
  LatentRun latent(config, true);
  const std::vector<std::int32_t> short_text(text.begin(), text.begin() + 9);
  const std::vector<float> got = latent.logits(short_text, 1, {4, 1, 1, 1, 1, 1});
  std::vector<float> want = latent.whole(text);
  want.resize(got.size());
  expect_same(got, want);
}

TEST_P(LatentFamilyTest, AdaptersAndQuantizedMatricesOfKeysAndValuesApply) {
  const std::string up = "layers.0.kv_up.weight";
  const std::int64_t rows = with_derived_sizes(config).latent.plain * config.heads;
  const LatentChange adapted = [&](Program program) {
    return must(
        add_lora(std::move(program), group_lora_modules(std::vector<LoraModule>{{up, {0, rows, 2}, 3.0f}})));
  };
  const LatentChange quantized = [&](Program program) {
    for (ParamInfo& param : program.params) param.trainable = false;
    return must(quantize_weights(std::move(program), kernels::WeightFormat::nf4, weight_parts(config)));
  };
  std::vector<std::vector<float>> all;
  for (const LatentChange& change : {LatentChange{}, adapted, quantized}) {
    LatentRun expanded(config, false, DType::f32, change), latent(config, true, DType::f32, change);
    all.push_back(latent.logits(text, 0, {40, 24}));
    expect_same(all.back(), expanded.logits(text, 0, {40, 24}));
  }
  EXPECT_GT(test::relative_error(all[1], all[0]), 1e-3) << "the adapter changes nothing";
  EXPECT_GT(test::relative_error(all[2], all[0]), 1e-3) << "the format changes nothing";
}

TEST_P(LatentFamilyTest, ItTakesTheBytesOfItsLatentRowsAndTheRunThoseOfItsPlan) {
  const DecoderConfig c = with_derived_sizes(config);
  for (const DType compute : {DType::f32, DType::bf16}) {
    const CacheShape shape{kLatentRows, kLatentSlots, kLatentContext, kLatentRows, 0, true};
    const std::uint64_t row =
        static_cast<std::uint64_t>(c.latent.kv_rank + c.latent.rotated) * size_of(compute);
    EXPECT_EQ(cache_bytes(config, shape, compute),
              row * static_cast<std::uint64_t>(c.layers * kLatentSlots * kLatentContext));
    std::uint64_t of_states = 0;
    const Program program = must(record_cached_decoder(config, shape, compute));
    for (const ValueId id : program.states) of_states += program.value(id).bytes();
    EXPECT_EQ(of_states, cache_bytes(config, shape, compute));
    LatentRun run(config, true, compute);
    run.logits(text, 1, {64});
    EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
    EXPECT_FALSE(run.engine->keeps_snapshots());
    EXPECT_EQ(run.engine->continues_from(1, 20), 20) << "it can be cut back";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LatentFamilyTest, ::testing::ValuesIn(latent_families()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace strata
