// Continuing sequences in bf16 and f16, with keys and values in the same dtype.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/execute/row_adapters.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::RowAdapterPrograms;
using test::TinyRun;

using Logits = std::vector<std::vector<float>>;

struct Stored {
  std::string_view family;
  DType compute;
};

std::vector<Stored> stored_cases() {
  std::vector<Stored> cases;
  for (const std::string_view family : test::kFamilyKinds)
    for (const DType compute : {DType::bf16, DType::f16}) cases.push_back({family, compute});
  return cases;
}

Logits logits_of(const RowAdapterPrograms& programs, const SessionOptions& options = {}) {
  TinyRun run(must(Engine::plan(programs.set(), options)));
  must(run.engine->initialize(1));
  EXPECT_EQ(run.engine->peak_bytes()[0], run.plan->planned_peak[0]);
  return test::logits_of_sequences(*run.engine, {-1, -1, -1, -1});
}

std::vector<float> joined(const Logits& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

class Cached16BitTest : public ::testing::TestWithParam<Stored> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam().family);
  const RowAdapterPrograms programs{.config = config, .adapters = {}, .compute = GetParam().compute};
  /// The error if values are rounded to the dtype in each of the model's layers.
  double tolerance() const { return GetParam().compute == DType::bf16 ? 3e-2 : 4e-3; }
};

TEST_P(Cached16BitTest, LogitsAreThoseOfF32WithinTheErrorOfTheDtype) {
  const std::vector<float> got = joined(logits_of(programs)),
                           want = joined(logits_of({.config = config, .adapters = {}}));
  const double error = test::relative_error(got, test::widen(want));
  EXPECT_LE(error, tolerance());
  EXPECT_GT(error, 0) << "it computes in another dtype";
}

// The whole context goes through the program of the same dtype without a cache.
TEST_P(Cached16BitTest, CachedAndWholeContextsAgree) {
  ProgramSet set = programs.set();
  set[ProgramRole::infer] =
      must(record_decoder(config, 1, DecoderHead::logits, DecoderRows::whole, GetParam().compute));
  TinyRun run(must(Engine::plan(set, {})));
  must(run.engine->initialize(1));
  const std::vector<std::int32_t> tokens = test::Values(5).below(16, 50);
  for (std::int32_t i = 0; i < 16; i += 4) {
    std::vector<SequenceToken> rows;
    for (std::int32_t k = i; k < i + 4; ++k) rows.push_back({tokens[static_cast<std::size_t>(k)], k, 2});
    const auto logits = must(run.engine->extend(rows, std::vector<std::int32_t>{3}));
    const std::vector<float> got(logits.begin(), logits.end());
    const auto whole = must(run.engine->infer(tokens, i + 3));
    const std::vector<float> want(whole.begin(), whole.end());
    EXPECT_LE(test::relative_error(got, test::widen(want)), tolerance()) << "token " << i + 3;
  }
}

TEST_P(Cached16BitTest, ParametersAndTheCacheTakeHalfTheBytes) {
  const CacheShape shape{.rows = 7, .sequences = 4, .context = 16, .logit_rows = 4};
  EXPECT_EQ(2 * cache_bytes(config, shape, GetParam().compute), cache_bytes(config, shape));
  const auto plan_of = [&](DType compute, std::int64_t sequences) {
    SessionOptions options;
    options.frozen_masters = false;
    return must(Engine::plan(
        RowAdapterPrograms{.config = config, .adapters = {}, .compute = compute, .sequences = sequences}
            .set(),
        options));
  };
  const auto state_bytes = [&](DType compute) {
    std::uint64_t bytes = 0;
    const auto plan = plan_of(compute, 4);
    for (ChunkId chunk = 0; chunk < plan->layout.n_chunks(); ++chunk)
      for (const Payload payload : kPersistentPayloads) bytes += plan->layout.payload_bytes(chunk, payload);
    return bytes;
  };
  EXPECT_EQ(2 * state_bytes(GetParam().compute), state_bytes(DType::f32));
  // If two plans differ in their sequences alone, the one with more needs their keys and values.
  const auto cache_in_plan = [&](DType compute) {
    const auto states = [&](std::int64_t sequences) {
      std::uint64_t bytes = 0;
      const Program program =
          RowAdapterPrograms{.config = config, .adapters = {}, .compute = compute, .sequences = sequences}
              .record(1);
      for (const ValueId id : program.states) bytes += program.value(id).bytes();
      return bytes;
    };
    return states(5) - states(4);
  };
  EXPECT_EQ(2 * cache_in_plan(GetParam().compute), cache_in_plan(DType::f32));
  EXPECT_LT(plan_of(GetParam().compute, 4)->planned_peak[0], plan_of(DType::f32, 4)->planned_peak[0]);
}

INSTANTIATE_TEST_SUITE_P(Families, Cached16BitTest, ::testing::ValuesIn(stored_cases()),
                         [](const auto& test_case) {
                           return str(test_case.param.family, "_", to_string(test_case.param.compute));
                         });

TEST(Cached16BitPlacementTest, NoPlacementChangesABit) {
  const test::TempDir dir;
  SessionOptions options;
  options.nvme.dirs = {dir.path()};
  options.frozen_masters = false;
  for (const kernels::WeightFormat base : {kernels::WeightFormat::full, kernels::WeightFormat::nf4}) {
    const DecoderConfig config = test::tiny_of_family("qwen3");
    const RowAdapterPrograms programs{.config = config, .adapters = {}, .compute = DType::bf16, .base = base};
    const Logits want = logits_of(programs, options);
    for (const PlacementPolicy policy : {PlacementPolicy::pinned, PlacementPolicy::nvme}) {
      SessionOptions other = options;
      other.policy = policy;
      other.chunk_elems = 4096;
      EXPECT_EQ(logits_of(programs, other), want);
    }
  }
}

TEST(Cached16BitPlacementTest, ProgramsWhoseStatesHaveAnotherDtypeAreRefused) {
  const DecoderConfig config = test::tiny_of_family("llama");
  ProgramSet set;
  set[ProgramRole::prefill] = must(record_cached_decoder(config, {4, 2, 16, 1}, DType::bf16));
  set[ProgramRole::decode] = must(record_cached_decoder(config, {1, 2, 16, 1}));
  EXPECT_EQ(Engine::plan(set, {}).status().code(), Code::invalid);
}

}  // namespace
}  // namespace strata
