#include <map>
#include <set>

#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using test::decoder_program;
using test::make_decoder_config;
using test::make_realistic_config;

constexpr std::int64_t kSequences = 4;

// Prints an instruction without the marks of clones.
std::string line_of(const Program& program, const Instr& instr) {
  Program one = program;
  one.code = {instr};
  std::string text = to_string(one);
  std::erase(text, '\'');
  const auto* attention = instr.attrs.get_if<AttentionAttrs>();
  const auto* norm = instr.attrs.get_if<LayernormAttrs>();
  return str(text, " ", instr.region, " ", attention == nullptr ? 0 : attention->seq, " ",
             attention == nullptr ? 0 : attention->heads, " ", norm == nullptr ? 0 : norm->eps, " ",
             instr.accumulate);
}
bool is_clone(const Program& program, const Instr& instr) {
  return program.value(instr.out[0]).name.ends_with('\'');
}
// The forward values that backward reads, which must be stored, each with the instruction that produces it.
std::map<ValueId, const Instr*> saved_by(const Program& program) {
  std::map<ValueId, const Instr*> made, kept;
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.backward ? instr.in : instr.out)
      if (!instr.backward)
        made[id] = &instr;
      else if (made.count(id) != 0 && !is_clone(program, *made[id]))
        kept[id] = made[id];
  return kept;
}
std::multiset<std::string> ops_of_clones(const Program& program, std::int32_t region) {
  std::multiset<std::string> ops;
  for (const Instr& instr : program.code)
    if (is_clone(program, instr) && instr.region == region) ops.insert(op_name(instr.op));
  return ops;
}
double total_flops(const Program& program) {
  double work = 0;
  for (const Instr& instr : program.code) work += flops(program, instr);
  return work;
}

class RecomputeModeTest : public ::testing::TestWithParam<Recompute> {};

TEST_P(RecomputeModeTest, RemovingItsClonesGivesTheInputProgram) {
  const Program before = decoder_program(make_decoder_config(3, 8), 2),
                after = decoder_program(make_decoder_config(3, 8), 2, GetParam());
  std::vector<std::string> want, got;
  for (const Instr& instr : before.code) want.push_back(line_of(before, instr));
  for (const Instr& instr : after.code)
    if (!is_clone(after, instr)) got.push_back(line_of(after, instr));
  EXPECT_EQ(got, want);
}

TEST_P(RecomputeModeTest, EveryCloneIsTheSameInstructionOfAMarkedRegionOnceEach) {
  const Program program = decoder_program(make_decoder_config(3, 8), 2, GetParam());
  std::vector<std::string> forward;
  for (const Instr& instr : program.code)
    if (!instr.backward) forward.push_back(line_of(program, instr));
  std::vector<std::string> copies;
  for (const Instr& instr : program.code) {
    if (!is_clone(program, instr)) continue;
    EXPECT_TRUE(instr.backward);
    EXPECT_TRUE(program.regions[static_cast<std::size_t>(instr.region)].recompute);
    copies.push_back(line_of(program, instr));
    EXPECT_EQ(std::count(forward.begin(), forward.end(), copies.back()), 1) << copies.back();
    EXPECT_EQ(std::count(copies.begin(), copies.end(), copies.back()), 1);
  }
  EXPECT_EQ(copies.size() % 3, 0u);  // the same in each of three blocks
  EXPECT_GE(copies.size(), 3u * 3u);
}

TEST_P(RecomputeModeTest, ACloneIsFollowedByItsFirstReaderOrByAnotherOperandOfIt) {
  const Program program = decoder_program(make_realistic_config("glm4"), 1, GetParam());
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    if (!is_clone(program, program.code[i])) continue;
    const auto reads = [&](const Instr& instr) {
      return std::any_of(instr.in.begin(), instr.in.end(), [&](ValueId id) {
        const auto& made = program.code[i].out;
        return std::find(made.begin(), made.end(), id) != made.end();
      });
    };
    std::size_t next = i + 1;
    while (is_clone(program, program.code[next]) && !reads(program.code[next])) ++next;
    EXPECT_TRUE(reads(program.code[next])) << program.value(program.code[i].out[0]).name;
  }
}

TEST_P(RecomputeModeTest, ProgramsWithoutMarkedRegionsOrWithoutBackwardStayAsTheyAre) {
  Program unmarked = decoder_program(make_decoder_config(2, 8), 1);
  for (Region& region : unmarked.regions) region.recompute = false;
  EXPECT_EQ(to_string(recompute_regions(unmarked, GetParam())), to_string(unmarked));
  const Program forward = must(record_decoder(make_decoder_config(2, 8), 1, DecoderHead::loss));
  EXPECT_EQ(to_string(recompute_regions(forward, GetParam())), to_string(forward));
}

TEST_P(RecomputeModeTest, IsIdempotent) {
  for (const std::string_view family : decoder_families()) {
    const Program once = decoder_program(make_realistic_config(family), 1, GetParam());
    EXPECT_EQ(to_string(recompute_regions(once, GetParam())), to_string(once)) << family;
  }
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Program both = must(derive_backward(test::random_program(seed), "loss"));
    const Program once = recompute_regions(both, GetParam());
    ASSERT_EQ(to_string(recompute_regions(once, GetParam())), to_string(once)) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, RecomputeModeTest,
                         ::testing::Values(Recompute::selective, Recompute::full, Recompute::halves),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(RecomputeTest, NoneChangesNothing) {
  const Program program = decoder_program(make_decoder_config(2, 8), 1);
  EXPECT_EQ(to_string(recompute_regions(program, Recompute::none)), to_string(program));
}

TEST(RecomputeTest, BackwardOfABlockReadsNoForwardValueOfItsOwn) {
  const Program program = decoder_program(make_decoder_config(2, 8), 2, Recompute::full);
  std::map<ValueId, const Instr*> kept = saved_by(program);
  EXPECT_FALSE(kept.empty());
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.in)
      EXPECT_FALSE(instr.backward && kept.count(id) != 0 && kept[id]->region == instr.region &&
                   program.regions[static_cast<std::size_t>(instr.region)].recompute)
          << program.value(id).name;
}

TEST(RecomputeTest, SelectiveStoresGemmsAttentionAndTheResidualStream) {
  const Program program = decoder_program(make_realistic_config("gpt2"), kSequences, Recompute::selective);
  const std::int32_t layer = 5;
  std::multiset<std::string> kept;
  for (const auto& [id, maker] : saved_by(program))
    if (maker->region == layer) kept.insert(op_name(maker->op));
  // Saved: qkv; the output of attention and its lse; the residual stream in the middle and at the end of the
  // block; mlp_in.
  EXPECT_EQ(kept, (std::multiset<std::string>{"linear", "attention", "attention", "add", "add", "linear"}));
  EXPECT_EQ(ops_of_clones(program, layer), (std::multiset<std::string>{"layernorm", "layernorm", "gelu"}));
}

TEST(RecomputeTest, HalvesStoreOneMoreValueOfALayerBetweenAttentionAndTheMlp) {
  for (const std::string_view family : {"gpt2", "llama", "qwen3", "gemma2"}) {
    const Program full = decoder_program(make_realistic_config(family), kSequences, Recompute::full),
                  halves = decoder_program(make_realistic_config(family), kSequences, Recompute::halves);
    const std::int32_t layer = 5;
    std::map<ValueId, const Instr*> kept = saved_by(halves);
    for (const auto& [id, maker] : saved_by(full)) kept.erase(id);
    std::erase_if(kept, [&](const auto& one) { return one.second->region != layer; });
    ASSERT_EQ(kept.size(), 1u) << family;
    const std::multiset<std::string> once = ops_of_clones(full, layer), twice = ops_of_clones(halves, layer);
    EXPECT_TRUE(std::includes(once.begin(), once.end(), twice.begin(), twice.end())) << family;
    EXPECT_LE(total_flops(halves), total_flops(full)) << family;
    // Attention is repeated when the MLP's gradient is complete: when its input's is there, which is read
    // from the stored value or from what is computed from it.
    std::size_t attention = 0, last_of_mlp = 0;
    for (std::size_t i = 0; i < halves.code.size(); ++i) {
      const Instr& instr = halves.code[i];
      if (instr.region != layer || !instr.backward) continue;
      if (instr.op == Op::attention) attention = i;
      for (const ValueId id : instr.in)
        if (id != kNoValue && halves.value(id).kind == ValueKind::param &&
            halves.value(id).name.find("mlp") != std::string::npos)
          last_of_mlp = i;
    }
    EXPECT_GT(last_of_mlp, 0u) << family;
    EXPECT_GT(attention, last_of_mlp) << family;
  }
}

// Attention's output is stored in the middle, and with it the log-sum-exp, without which attention would be
// repeated.
TEST(RecomputeTest, HalvesOfAdaptedLayersRepeatNothingThatIsStored) {
  const DecoderConfig config = make_realistic_config("gpt2");
  Program forward = freeze_trainable(must(record_decoder(config, kSequences, DecoderHead::loss)));
  std::vector<LoraModule> modules;
  for (const ParamInfo& param : forward.params)
    if (param.name.ends_with("qkv.weight"))
      for (const std::int64_t first : {0, 2 * 768}) modules.push_back({param.name, {first, 768, 8}});
  ASSERT_EQ(modules.size(), 24u);
  forward = must(add_lora(std::move(forward), group_lora_modules(modules)));
  const Program both = must(derive_backward(std::move(forward), "loss")),
                full = recompute_regions(both, Recompute::full),
                halves = recompute_regions(both, Recompute::halves);
  const auto stored = saved_by(full);
  std::size_t more = 0;
  for (const auto& [id, maker] : saved_by(halves)) {
    if (stored.count(id) != 0 || maker->region != 5) continue;
    ++more;
    EXPECT_EQ(ops_of_clones(halves, 5).count(std::string(op_name(maker->op))), 0u) << halves.value(id).name;
  }
  EXPECT_GT(more, 0u);
  EXPECT_LT(total_flops(halves), total_flops(full));
}

TEST(RecomputeTest, SelectiveRecomputesChainsOfCheapOps) {
  const Program qwen3 = decoder_program(make_realistic_config("qwen3"), kSequences, Recompute::selective);
  EXPECT_EQ(ops_of_clones(qwen3, 5),
            (std::multiset<std::string>{"rmsnorm", "rmsnorm", "swiglu", "qk_norm", "rope"}));
  // The summand after a post-norm is recomputed from the GEMM output before it, which the norm's backward
  // reads anyway.
  const Program glm4 = decoder_program(make_realistic_config("glm4"), kSequences, Recompute::selective);
  EXPECT_EQ(ops_of_clones(glm4, 5),
            (std::multiset<std::string>{"rmsnorm", "rmsnorm", "rmsnorm", "add", "swiglu"}));
}

TEST(RecomputeTest, SelectiveSavesNothingThatNoneWouldNotSave) {
  const auto expect_subset = [](const Program& none, const std::string& which) {
    const std::map<ValueId, const Instr*> before = saved_by(none);
    const Program selective = recompute_regions(none, Recompute::selective);
    for (const auto& [id, maker] : saved_by(selective))
      EXPECT_EQ(before.count(id), 1u) << which << ": " << selective.value(id).name;
  };
  for (const std::string_view family : decoder_families())
    expect_subset(decoder_program(make_realistic_config(family), 1), std::string(family));
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    expect_subset(must(derive_backward(test::random_program(seed), "loss")), str("seed ", seed));
}

TEST(RecomputeTest, StatisticsAloneAreNotWorthRecomputing) {
  Builder b;
  const Value tokens = b.input("tokens", {64}, DType::i32), targets = b.input("targets", {64}, DType::i32);
  const Value x = b.embedding(tokens, b.param("table", {100, 256}, {}));
  b.region("frozen", true);  // backward reads mean and rstd of the norm, but not its output
  const Value y = b.layernorm(x, b.param("scale", {256}, {.trainable = false}),
                              b.param("shift", {256}, {.trainable = false}), 1e-5f);
  const Value logits = b.linear(y, b.param("w", {100, 256}, {.trainable = false}));
  b.region("head", false);
  const Program both =
      must(derive_backward(must(b.finish({{"loss", b.cross_entropy(logits, targets)}})), "loss"));
  EXPECT_EQ(to_string(recompute_regions(both, Recompute::selective)), to_string(both));
  EXPECT_NE(to_string(recompute_regions(both, Recompute::full)), to_string(both));
  // To store the norm's output would take more than what is then not recomputed with it.
  EXPECT_EQ(to_string(recompute_regions(both, Recompute::halves)),
            to_string(recompute_regions(both, Recompute::full)));
}

class RecomputeFamilyTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(RecomputeFamilyTest, TheArenaShrinksFromModeToMode) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    std::array<double, kRecomputeModes.size()> arena{};
    for (const Recompute mode : kRecomputeModes)
      arena[static_cast<std::size_t>(mode)] = static_cast<double>(
          plan_memory(decoder_program(make_realistic_config(GetParam()), kSequences, mode, compute))
              .arena_bytes);
    EXPECT_LT(arena[1], 0.8 * arena[0]) << to_string(compute);
    EXPECT_LT(arena[2], 0.5 * arena[1]) << to_string(compute);
  }
}

TEST_P(RecomputeFamilyTest, SelectiveAddsLessThanATwentiethToTheWorkAndFullAnEighthAtLeast) {
  const auto work = [](Recompute mode, DType compute) {
    return total_flops(decoder_program(make_realistic_config(GetParam()), kSequences, mode, compute));
  };
  for (const DType compute : {DType::f32, DType::bf16}) {
    const double none = work(Recompute::none, compute);
    EXPECT_GT(work(Recompute::selective, compute), none);
    EXPECT_LT(work(Recompute::selective, compute), 1.05 * none);
    EXPECT_GT(work(Recompute::full, compute), 1.125 * none);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RecomputeFamilyTest, ::testing::ValuesIn(decoder_families()),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace strata
