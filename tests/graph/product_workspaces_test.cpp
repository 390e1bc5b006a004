#include <gtest/gtest.h>

#include <algorithm>

#include <strata/graph/ops.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "graph/arena_replay.h"
#include "graph/program_maker.h"

namespace strata {
namespace {

std::vector<const ValueInfo*> scratches(const Program& program, Op op) {
  std::vector<const ValueInfo*> found;
  for (const Instr& instr : program.code)
    if (instr.op == op && instr.attrs.gemm_workspace) found.push_back(&program.value(instr.out.back()));
  return found;
}

TEST(ProductWorkspacesTest, EveryProductHasScratchOfItsResultsSizeAndNothingElseHas) {
  const Program bare = test::decoder_program(test::decoder_of(2, 32), 2, Recompute::block);
  const Program given = give_product_workspaces(bare);
  ASSERT_TRUE(verify(given).is_ok()) << verify(given).message();
  std::size_t products = 0;
  for (std::size_t i = 0; i < bare.code.size(); ++i) {
    const Op op = bare.code[i].op;
    const bool is_product = op == Op::linear || op == Op::linear_backward_input ||
                            op == Op::linear_backward_weight || op == Op::linear_cross_entropy_backward;
    products += is_product;
    EXPECT_EQ(given.code[i].out.size(), bare.code[i].out.size() + is_product) << op_def(op).name;
    if (!is_product) continue;
    const ValueInfo& scratch = given.value(given.code[i].out.back());
    EXPECT_EQ(scratch.kind, ValueKind::workspace);
    if (op == Op::linear_cross_entropy_backward) {
      EXPECT_EQ(scratch.bytes(), kernels::linear_cross_entropy_gemm_workspace_bytes(32, 61, 32));
      continue;
    }
    const Shape& result = given.value(given.code[i].out.front()).shape;
    EXPECT_EQ(scratch.bytes(), kernels::gemm_workspace_bytes(result.dim(0), result.dim(1)));
  }
  EXPECT_GT(products, 20u);
}

TEST(ProductWorkspacesTest, TheFusedHeadOfAnEvaluationHasItToo) {
  const Program eval =
      give_product_workspaces(must(record_decoder(test::decoder_of(1, 32), 2, DecoderHead::loss)));
  EXPECT_EQ(scratches(eval, Op::linear_cross_entropy).size(), 1u);
}

TEST(ProductWorkspacesTest, TwiceChangesNothingMore) {
  const Program once = give_product_workspaces(test::decoder_program(test::decoder_of(1, 32), 2));
  EXPECT_EQ(to_string(give_product_workspaces(once)), to_string(once));
}

// Scratch lives for its instruction alone: many products cost the arena one.
TEST(ProductWorkspacesTest, TheArenaGrowsByOneScratchAtMost) {
  for (const Recompute recompute : kRecomputeModes) {
    const Program bare = test::decoder_program(test::decoder_of(5, 64), 2, recompute);
    const Program given = give_product_workspaces(bare);
    EXPECT_EQ(test::replay(given), "");
    std::size_t largest = 0;
    for (const Op op : {Op::linear, Op::linear_backward_input, Op::linear_backward_weight,
                        Op::linear_cross_entropy_backward})
      for (const ValueInfo* scratch : scratches(given, op)) largest = std::max(largest, scratch->bytes());
    EXPECT_LE(plan_memory(given).arena_bytes, plan_memory(bare).arena_bytes + largest + 4096);
  }
}

TEST(ProductWorkspacesTest, AScratchIsAFewResultsAndNeverMoreThan32MiB) {
  EXPECT_EQ(kernels::gemm_workspace_bytes(0, 7), 0u);
  EXPECT_EQ(kernels::gemm_workspace_bytes(3, 5), 3u * 5 * 4 * 8);
  EXPECT_EQ(kernels::gemm_workspace_bytes(1024, 1024), std::size_t{32} << 20);
  EXPECT_EQ(kernels::gemm_workspace_bytes(1 << 17, 1 << 17), std::size_t{32} << 20);
}

}  // namespace
}  // namespace strata
