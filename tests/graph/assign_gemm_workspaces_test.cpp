#include <gtest/gtest.h>

#include <algorithm>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "graph/arena_replay.h"
#include "graph/program_maker.h"

namespace strata {
namespace {

std::vector<const ValueInfo*> workspaces_of(const Program& program, Op op) {
  std::vector<const ValueInfo*> found;
  for (const Instr& instr : program.code)
    if (instr.op == op && instr.attrs.has_gemm_workspace()) found.push_back(&program.value(instr.out.back()));
  return found;
}

TEST(AssignGemmWorkspacesTest, EveryGemmGetsAWorkspaceForItsOutputAndNothingElseDoes) {
  const Program bare = test::decoder_program(test::make_decoder_config(2, 32), 2, Recompute::full);
  const Program given = assign_gemm_workspaces(bare);
  ASSERT_TRUE(verify(given).is_ok()) << verify(given).message();
  std::size_t gemms = 0;
  for (std::size_t i = 0; i < bare.code.size(); ++i) {
    const Op op = bare.code[i].op;
    const bool is_gemm = op == Op::linear || op == Op::linear_backward_input ||
                         op == Op::linear_backward_weight || op == Op::linear_cross_entropy_backward;
    gemms += is_gemm;
    EXPECT_EQ(given.code[i].out.size(), bare.code[i].out.size() + is_gemm) << op_name(op);
    if (!is_gemm) continue;
    const ValueInfo& workspace = given.value(given.code[i].out.back());
    EXPECT_EQ(workspace.kind, ValueKind::workspace);
    if (op == Op::linear_cross_entropy_backward) {
      EXPECT_EQ(workspace.bytes(), kernels::linear_cross_entropy_gemm_workspace_bytes(32, 61, 32));
      continue;
    }
    const Shape& result = given.value(given.code[i].out.front()).shape;
    EXPECT_EQ(workspace.bytes(), kernels::gemm_workspace_bytes(result.dim(0), result.dim(1)));
  }
  EXPECT_GT(gemms, 20u);
}

TEST(AssignGemmWorkspacesTest, TheFusedLossOfAnEvaluationGetsOneToo) {
  const Program eval =
      assign_gemm_workspaces(must(record_decoder(test::make_decoder_config(1, 32), 2, DecoderHead::loss)));
  EXPECT_EQ(workspaces_of(eval, Op::linear_cross_entropy).size(), 1u);
}

TEST(AssignGemmWorkspacesTest, BlocksOfLogitsAreThoseOfAGpu) {
  DecoderConfig config = test::make_decoder_config(1, 32);
  config.vocab = 50257;
  config.seq = 2048;
  const Program bare = must(record_decoder(config, 2, DecoderHead::loss)),
                given = assign_gemm_workspaces(bare);
  const auto block_bytes = [](const Program& program) {
    for (const Instr& instr : program.code)
      if (instr.op == Op::linear_cross_entropy) return program.value(instr.out[2]).bytes();
    return std::size_t{0};
  };
  EXPECT_EQ(block_bytes(bare), kernels::linear_cross_entropy_workspace_bytes(4096, 50257, DType::f32));
  EXPECT_EQ(block_bytes(given), kernels::linear_cross_entropy_workspace_bytes(4096, 50257, DType::f32,
                                                                              kernels::HeadBlocks::device));
  EXPECT_GE(block_bytes(given), 7 * block_bytes(bare));
}

TEST(AssignGemmWorkspacesTest, IsIdempotent) {
  const Program once = assign_gemm_workspaces(test::decoder_program(test::make_decoder_config(1, 32), 2));
  EXPECT_EQ(to_string(assign_gemm_workspaces(once)), to_string(once));
}

// A workspace lives only during its instruction, so many GEMMs cost the arena no more than one workspace.
TEST(AssignGemmWorkspacesTest, TheArenaGrowsByOneWorkspaceAtMost) {
  for (const Recompute recompute : kRecomputeModes) {
    const Program bare = test::decoder_program(test::make_decoder_config(5, 64), 2, recompute);
    const Program given = assign_gemm_workspaces(bare);
    EXPECT_EQ(test::replay(given), "");
    std::size_t largest = 0;
    for (const Op op : {Op::linear, Op::linear_backward_input, Op::linear_backward_weight,
                        Op::linear_cross_entropy_backward})
      for (const ValueInfo* workspace : workspaces_of(given, op))
        largest = std::max(largest, workspace->bytes());
    EXPECT_LE(plan_memory(given).arena_bytes, plan_memory(bare).arena_bytes + largest + 4096);
  }
}

TEST(AssignGemmWorkspacesTest, AWorkspaceIsAFewOutputsAndAtMost32MiB) {
  EXPECT_EQ(kernels::gemm_workspace_bytes(0, 7), 0u);
  EXPECT_EQ(kernels::gemm_workspace_bytes(3, 5), 3u * 5 * 4 * 8);
  EXPECT_EQ(kernels::gemm_workspace_bytes(1024, 1024), std::size_t{32} << 20);
  EXPECT_EQ(kernels::gemm_workspace_bytes(1 << 17, 1 << 17), std::size_t{32} << 20);
}

}  // namespace
}  // namespace strata
