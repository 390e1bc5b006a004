#include <gtest/gtest.h>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/rng.h>

#include "graph/program_maker.h"
#include "graph/program_run.h"

namespace strata {
namespace {

constexpr std::int64_t kExperts = 6;

DecoderConfig small_mixture(const char* family) {
  DecoderConfig config = decoder_for_family(family).value();
  config.layers = 2;
  config.hidden = 8;
  config.heads = config.kv_heads = 2;
  config.ffn = 24;
  config.vocab = 61;
  config.seq = 16;
  test::set_tiny_experts(config);
  return config;
}

/// Runs a training program on the same random values.
class MixtureRun {
 public:
  explicit MixtureRun(const Program& program) : program_(program), run_(program) {
    const Rng rng(3, 0);
    std::uint64_t draws = 0;
    for (const ParamInfo& param : program.params) {
      std::vector<float> values(static_cast<std::size_t>(param.shape.n_elems()));
      for (float& value : values) value = 0.3f * rng.normal(draws++);
      run_.set(param.name, values);
    }
    for (const char* name : {"tokens", "targets"})
      for (std::int32_t k = 0; k < program.micro_batches; ++k) {
        std::vector<std::int32_t> ids(16);
        for (std::int32_t& id : ids) id = static_cast<std::int32_t>(rng.below(draws++, 61));
        run_.set(name_in_micro_batch(name, k), ids);
      }
    for (std::int32_t k = 0; k < program.micro_batches; ++k)
      run_.set(name_in_micro_batch("divisor", k), std::vector<float>{16});
    run_.run();
  }
  /// The losses, and the gradients of all parameters.
  std::vector<std::vector<float>> results() {
    std::vector<std::vector<float>> all;
    for (std::int32_t k = 0; k < program_.micro_batches; ++k)
      all.push_back(run_.values(name_in_micro_batch("loss", k)));
    for (const ParamInfo& param : program_.params) all.push_back(run_.gradient(param.name));
    return all;
  }

 private:
  const Program program_;
  test::ProgramRun run_;
};

TEST(SplitExpertsTest, BlocksHaveTheBitsOfTheWhole) {
  for (const char* family : {"qwen2_moe", "mixtral"})
    for (const Recompute mode : {Recompute::none, Recompute::full})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Program whole = test::decoder_program(small_mixture(family), 1, mode, dtype);
        for (const std::int32_t micro_batches : {1, 3}) {
          const auto expected = MixtureRun(interleave_micro_batches(whole, micro_batches)).results();
          for (const std::int64_t experts : {1, 2, 4, 5}) {
            const Program split =
                interleave_micro_batches(split_experts(whole, {.experts = experts}), micro_batches);
            ASSERT_TRUE(verify(split).is_ok()) << verify(split).message();
            EXPECT_EQ(MixtureRun(split).results(), expected)
                << family << ", blocks of " << experts << ", " << micro_batches << " micro-batches";
          }
        }
      }
}

TEST(SplitExpertsTest, NoInstructionHasMoreThanABlock) {
  const Program whole = test::decoder_program(small_mixture("qwen2_moe"), 1, Recompute::full);
  const Program split = split_experts(whole, {.experts = 4});
  EXPECT_EQ(test::count(split)[Op::expert_linear], 2 * test::count(whole)[Op::expert_linear]);
  for (const Instr& instr : split.code)
    for (const auto* operands : {&instr.in, &instr.out})
      for (const ValueId id : *operands) {
        const ValueInfo* const value = id == kNoValue ? nullptr : &split.value(id);
        if (value == nullptr || value->param < 0) continue;
        const ParamInfo& param = split.params[static_cast<std::size_t>(value->param)];
        if (param.block_elems == 0) continue;
        EXPECT_EQ(param.block_elems, 4 * param.shape.n_elems() / kExperts);
        EXPECT_LE(value->shape.dim(0), 4) << value->name;
        EXPECT_EQ(value->first % param.block_elems, 0) << value->name;
      }
  EXPECT_EQ(to_string(split_experts(split, {.experts = 4})), to_string(split)) << "idempotent";
}

TEST(SplitExpertsTest, TheBlockIsTheLargestThatFitsAndEndsWhereASliceMay) {
  const Program whole = test::decoder_program(small_mixture("mixtral"), 1);
  const auto block_of = [&](const ExpertBlocks& blocks) {
    for (const ParamInfo& param : split_experts(whole, blocks).params)
      if (param.name == "layers.1.experts_in.weight")
        return param.block_elems * kExperts / param.shape.n_elems();
    return std::int64_t{-1};
  };
  const std::int64_t each = 2 * 24 * 8;  // elements of an expert
  EXPECT_EQ(block_of({.bytes = 1}), 1);
  EXPECT_EQ(block_of({.bytes = 4 * each - 1}), 1) << "bytes are those of f32";
  EXPECT_EQ(block_of({.bytes = 8 * each}), 2);
  EXPECT_EQ(block_of({.bytes = 23 * each}), 4);
  EXPECT_EQ(block_of({.bytes = 64 * each}), 0) << "one block is none";
  EXPECT_EQ(block_of({.bytes = 1, .align_elems = 3 * each}), 3);
  EXPECT_EQ(block_of({.experts = 2, .align_elems = 7 * each}), 0) << "only all experts end there";
}

}  // namespace
}  // namespace strata
