// Rows of a batch that go each through an adapter of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/execute/row_adapters.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::named_adapters;
using test::RowAdapterPrograms;
using test::TinyRun;
using ::testing::HasSubstr;

using Logits = std::vector<std::vector<float>>;

Logits run_rows(const RowAdapterPrograms& programs, const std::vector<std::int32_t>& chosen,
                const SessionOptions& options = {}) {
  TinyRun run(must(Engine::plan(programs.set(), options)));
  must(test::initialize_by_name(*run.engine));
  Logits logits = test::logits_of_sequences(*run.engine, chosen);
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  return logits;
}

class LoraRowsFamilyTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

void expect_rows_alone(RowAdapterPrograms programs, const std::vector<std::int32_t>& chosen) {
  programs.sequences = std::ssize(chosen);
  const std::vector<NamedLora> all = programs.adapters;
  const Logits mixed = run_rows(programs, chosen);
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    programs.adapters.clear();
    if (chosen[s] >= 0) programs.adapters.push_back(all[static_cast<std::size_t>(chosen[s])]);
    const Logits alone =
        run_rows(programs, std::vector<std::int32_t>(chosen.size(), chosen[s] >= 0 ? 0 : -1));
    EXPECT_EQ(test::differing_bits(mixed[s], alone[s]), 0u) << "sequence " << s;
  }
}

TEST_P(LoraRowsFamilyTest, EachRowHasTheBitsOfTheSameBatchUnderItsAdapterAlone) {
  for (const DType compute : {DType::f32, DType::bf16})
    expect_rows_alone({.config = config, .adapters = named_adapters(config, 3), .compute = compute},
                      {2, -1, 0, 1});
}

TEST_P(LoraRowsFamilyTest, AnAdapterOfRowsIsTheAdapterOfTheModel) {
  const std::vector<NamedLora> adapters = named_adapters(config, 2);
  const Logits got = run_rows({.config = config, .adapters = adapters}, {1, 0, -1, 1});
  // The model with its own adapter, whose parameters have no name behind them.
  for (std::size_t k = 0; k < 2; ++k) {
    const auto record = [&](std::int64_t rows) {
      return must(add_lora(must(record_cached_decoder(config, {rows, 4, 16, 4})), adapters[k].groups));
    };
    ProgramSet set;
    set[ProgramRole::prefill] = record(7);
    set[ProgramRole::decode] = record(4);
    TinyRun run(must(Engine::plan(set, {})));
    must(run.engine->initialize(1, [&](const StatePiece& piece, std::span<float> values) -> Result<bool> {
      const bool is_adapter = piece.name.find(".lora_") != std::string_view::npos;
      const std::string name = is_adapter ? str(piece.name, '@', adapters[k].name) : std::string(piece.name);
      StatePiece named = piece;
      named.name = name;
      STRATA_TRY(test::random_values(named, values));
      return true;
    }));
    const Logits want = test::logits_of_sequences(*run.engine, {-1, -1, -1, -1});
    for (const std::size_t s : {0u, 1u, 3u})
      if ((s == 1 ? 0u : 1u) == k) {
        EXPECT_LE(test::relative_error(got[s], test::widen(want[s])), 1e-5) << "sequence " << s;
        EXPECT_GT(test::relative_error(got[s], test::widen(want[2])), 1e-2);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LoraRowsFamilyTest, ::testing::ValuesIn(test::kFamilyKinds),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(LoraRowsTest, EightAdaptersInOneBatchOverAQuantizedBase) {
  for (const kernels::WeightFormat base : {kernels::WeightFormat::full, kernels::WeightFormat::nf4_dq}) {
    DecoderConfig config = test::tiny_of_family("llama");
    config.seq = 32;
    expect_rows_alone({.config = config, .adapters = named_adapters(config, 8), .base = base, .context = 32},
                      {7, 6, 5, 4, 3, 2, 1, 0, -1});
  }
}

TEST(LoraRowsTest, NoPlacementChangesABitAndAdaptersAreInThePlan) {
  const test::TempDir dir;
  const DecoderConfig config = test::tiny_of_family("qwen3");
  const RowAdapterPrograms programs{.config = config, .adapters = named_adapters(config, 3)};
  SessionOptions options;
  options.nvme.dirs = {dir.path()};
  const Logits want = run_rows(programs, {0, 1, 2, -1}, options);
  for (const PlacementPolicy policy : {PlacementPolicy::pinned, PlacementPolicy::nvme}) {
    SessionOptions other = options;
    other.policy = policy;
    other.chunk_elems = 4096;
    EXPECT_EQ(run_rows(programs, {0, 1, 2, -1}, other), want);
  }
  const auto params = [&](std::size_t n) {
    const RowAdapterPrograms some{.config = config, .adapters = named_adapters(config, n)};
    return must(Engine::plan(some.set(), {}))->n_params(false);
  };
  std::int64_t elems = 0;
  const Program base = must(record_cached_decoder(config, {4, 4, 16, 4}));
  for (const LoraGroup& group : programs.adapters[2].groups)
    for (const ParamInfo& param : base.params)
      if (param.name == group.weight) elems += group.ranks() * param.shape.dim(1) + group.elems();
  EXPECT_GT(elems, 0);
  EXPECT_EQ(params(3) - params(2), elems);
}

TEST(LoraRowsTest, TheAdapterOfASequenceIsOneOfTheProgramAndStays) {
  const DecoderConfig config = test::tiny_config();
  TinyRun run(must(
      Engine::plan(RowAdapterPrograms{.config = config, .adapters = named_adapters(config, 2)}.set(), {})));
  must(test::initialize_by_name(*run.engine));
  const auto refusal = [&](const std::vector<SequenceToken>& tokens) {
    const Status status = run.engine->extend(tokens, {}).status();
    EXPECT_EQ(status.code(), Code::invalid);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({{1, 0, 3, 2}}),
              HasSubstr("adapter 2 of sequence 3 is out of range; adapters of the program: 2"));
  EXPECT_THAT(refusal({{1, 0, 3, -2}}), HasSubstr("adapter -2 of sequence 3 is out of range"));
  must(run.engine->extend(std::vector<SequenceToken>{{1, 0, 0, 1}, {1, 0, 1, 0}}, {}));
  EXPECT_THAT(refusal({{1, 1, 1, 0}, {1, 1, 0, 0}}),
              HasSubstr("position 1 of sequence 0 has adapter 0, but the tokens before it have adapter 1"));
  must(run.engine->extend(std::vector<SequenceToken>{{1, 1, 0, 1}, {1, 0, 1, -1}, {2, 1, 1, -1}}, {}));
}

TEST(AddLoraRowsTest, AllProblemsAreReportedAtOnce) {
  const Program program = must(record_cached_decoder(test::tiny_config(), {5, 2, 16, 2}));
  const auto of = [](const LoraModule& module) {
    return group_lora_modules(std::vector<LoraModule>{module});
  };
  const std::vector<NamedLora> adapters = {{"one", of({"layers.0.qkv.weight", {0, 32, 65537}, 1})},
                                           {"two", of({"layers.9.qkv.weight", {0, 32, 2}, 1})},
                                           {"one", of({"layers.0.attn_norm.weight", {0, 32, 2}, 1})},
                                           {"head", of({"tokens.weight", {0, 50, 2}, 1})}};
  const Status status = add_lora_rows(program, adapters, 5).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::AllOf(
          HasSubstr(
              "adapter one:\n  layers.0.qkv.weight, rows 0 to 32: the rank is 65537; it must be from 1 to "
              "65536"),
          HasSubstr("adapter two:\n  layers.9.qkv.weight is no parameter"),
          HasSubstr("adapter one:\n  the name is taken by another adapter\n  layers.0.attn_norm.weight [32] "
                    "is not the matrix of a linear layer"),
          HasSubstr("tokens.weight is multiplied with 2 rows; the program has 5 tokens")));
}

TEST(AddLoraRowsTest, ParametersComeLastAreFrozenAndHaveTheNameOfTheirAdapter) {
  const Program plain = must(record_cached_decoder(test::tiny_config(), {5, 2, 16, 2}));
  const auto groups = group_lora_modules(std::vector<LoraModule>{{"layers.1.qkv.weight", {64, 32, 3}, 2}});
  const Program program = must(add_lora_rows(plain, std::vector<NamedLora>{{"law", groups}}, 5));
  ASSERT_EQ(program.params.size(), plain.params.size() + 2);
  const ParamInfo &a = program.params[plain.params.size()], &b = program.params.back();
  EXPECT_EQ(a.name, "layers.1.qkv.lora_A@law");
  EXPECT_EQ(a.shape, Shape({3, 32}));
  EXPECT_EQ(b.name, "layers.1.qkv.lora_B@law");
  EXPECT_EQ(b.shape, Shape({96}));
  EXPECT_FALSE(a.trainable || b.trainable);
  EXPECT_EQ(program.value(program.inputs.back()).name, "adapters");
  EXPECT_EQ(program.code.size(), plain.code.size() + 1);
}

}  // namespace
}  // namespace strata
