#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/arena_replay.h"
#include "graph/program_maker.h"

namespace strata {
namespace {

using test::count;

Program training(std::string_view family, DType compute) {
  return test::decoder_program(test::make_realistic_config(family), 1, Recompute::none, compute);
}

TEST(UseFp8Test, ReplacesAllGemmsOfBlocksAndNoOthers) {
  for (const char* family : {"gpt2", "llama", "qwen3"}) {
    const Program before = training(family, DType::bf16), after = use_fp8(before);
    ASSERT_TRUE(verify(after).is_ok()) << verify(after).message();
    std::map<Op, int> was = count(before), is = count(after);
    const int products = was[Op::linear] + was[Op::linear_backward_input] + was[Op::linear_backward_weight];
    EXPECT_EQ(products, 12 * 4 * 3);
    EXPECT_EQ(is[Op::fp8_gemm], products);
    EXPECT_EQ(is[Op::linear] + is[Op::linear_backward_input] + is[Op::linear_backward_weight], 0);
    // Each layer casts its input once, its weight in forward and again in backward, and its output's gradient
    // once.
    EXPECT_EQ(is[Op::fp8_cast], 12 * 4 * 4);
    for (const Op op :
         {Op::linear_backward_bias, Op::linear_cross_entropy_backward, Op::attention, Op::rmsnorm})
      EXPECT_EQ(is[op], was[op]) << op_name(op);
    EXPECT_EQ(to_string(use_fp8(after)), to_string(after));
  }
}

TEST(UseFp8Test, ALinearLayerBecomesCastsAndGemmsInForwardAndBackward) {
  Builder b(DType::bf16);
  const Value targets = b.input("targets", {16}, DType::i32);
  const Value x = b.embedding(b.input("ids", {16}, DType::i32), b.param("table", {7, 32}, {}));
  b.region("r", true);
  const Value y = b.linear(x, b.param("w", {48, 32}, {}), b.param("b", {48}, {}));
  const Program program =
      use_fp8(must(derive_backward(must(b.finish({{"loss", b.cross_entropy(y, targets)}})), "loss")));
  ASSERT_TRUE(verify(program).is_ok()) << verify(program).message();
  EXPECT_EQ(
      to_string(program),
      "0 embedding(ids, table) -> .embedding.x:[16, 32]\n"
      "1 fp8_cast(.embedding.x) -> .embedding.x.rows:[16, 32] .embedding.x.columns:[32, 16] "
      ".embedding.x.inverse:[1] .embedding.x.workspace:[4]\n"
      "2 fp8_cast(w) -> w.rows:[48, 32] w.inverse:[1] w.workspace:[4]\n"
      "3 fp8_gemm(.embedding.x.rows, .embedding.x.inverse, w.rows, w.inverse, b) -> r.linear.y:[16, 48]\n"
      "4 cross_entropy(r.linear.y, targets, -) -> loss:[1] r.cross_entropy.losses:[16] "
      "r.cross_entropy.lse:[16]\n"
      "5 cross_entropy_backward(r.linear.y, r.cross_entropy.lse, targets, -) -> "
      "cross_entropy_backward.dlogits:[16, 48]\n"
      "6 linear_backward_bias(cross_entropy_backward.dlogits, b) -> d(b):[48] "
      "linear_backward_bias.workspace:[192]\n"
      "7 fp8_cast(cross_entropy_backward.dlogits) -> cross_entropy_backward.dlogits.rows:[16, 48] "
      "cross_entropy_backward.dlogits.columns:[48, 16] cross_entropy_backward.dlogits.inverse:[1] "
      "cross_entropy_backward.dlogits.workspace:[4]\n"
      "8 fp8_gemm(cross_entropy_backward.dlogits.columns, cross_entropy_backward.dlogits.inverse, "
      ".embedding.x.columns, .embedding.x.inverse, -) -> d(w):[48, 32]\n"
      "9 fp8_cast(w) -> w.columns:[32, 48] w.inverse:[1] w.workspace:[4]\n"
      "10 fp8_gemm(cross_entropy_backward.dlogits.rows, cross_entropy_backward.dlogits.inverse, "
      "w.columns, "
      "w.inverse, -) -> linear_backward_input.dx:[16, 32]\n"
      "11 embedding_backward(ids, linear_backward_input.dx, table) -> d(table):[7, 32] "
      "embedding_backward.workspace:[100]\n");
  EXPECT_EQ(program.value(program.code[1].out[0]).dtype, DType::e4m3);
  EXPECT_EQ(program.value(program.code[7].out[0]).dtype, DType::e5m2);
  EXPECT_EQ(program.value(program.code[3].out[0]).dtype, DType::bf16);
}

TEST(UseFp8Test, UnsupportedDtypesAndShapesStayAsTheyAre) {
  const Program f32 = training("gpt2", DType::f32);
  EXPECT_EQ(to_string(use_fp8(f32)), to_string(f32));
  DecoderConfig odd = test::make_realistic_config("gpt2");
  odd.ffn = 3000;
  const Program program = test::decoder_program(odd, 1, Recompute::none, DType::bf16);
  const Program after = use_fp8(program);
  ASSERT_TRUE(verify(after).is_ok()) << verify(after).message();
  EXPECT_EQ(count(after)[Op::fp8_gemm], 12 * 2 * 3);  // only those of attention
  EXPECT_EQ(count(after)[Op::linear], 12 * 2);
}

TEST(UseFp8Test, FrozenWeightsNeedNoCastForTheirGradients) {
  const Program forward = must(record_decoder(test::make_realistic_config("gpt2"), 1, DecoderHead::loss,
                                              DecoderRows::whole, DType::bf16));
  const std::vector<std::string> all_but_norms = {"layers.*.qkv.*", "layers.*.attn_out.*",
                                                  "layers.*.mlp_*.weight", "tokens.*", "positions.*"};
  const auto frozen = freeze_parameters(forward, all_but_norms);
  ASSERT_TRUE(frozen.has_value()) << frozen.status().message();
  const Program program = use_fp8(must(derive_backward(*frozen, "loss")));
  ASSERT_TRUE(verify(program).is_ok()) << verify(program).message();
  for (const Instr& instr : program.code)
    EXPECT_FALSE(instr.op == Op::fp8_cast && program.value(instr.in[0]).param < 0 &&
                 instr.attrs.as<Fp8CastAttrs>().columnwise);
}

TEST(UseFp8Test, InEveryRecomputeModeNoLiveValueIsOverwrittenAndLessIsStored) {
  for (const char* family : {"gpt2", "llama"})
    for (const Recompute mode : kRecomputeModes) {
      const Program bare = training(family, DType::bf16);
      const Program fp8 = assign_gemm_workspaces(fuse_add_norm(recompute_regions(use_fp8(bare), mode)));
      ASSERT_TRUE(verify(fp8).is_ok()) << verify(fp8).message();
      EXPECT_EQ(test::replay(fp8), "") << family << ", " << to_string(mode);
      const std::size_t want = plan_memory(recompute_regions(bare, mode)).arena_bytes;
      const std::size_t got = plan_memory(recompute_regions(use_fp8(bare), mode)).arena_bytes;
      // In modes that recompute, one block's quantized values are held beside its 16-bit values.
      EXPECT_LE(got, want + want / 50) << family << ", " << to_string(mode);
      EXPECT_TRUE(got < want || mode != Recompute::none) << family;
    }
}

}  // namespace
}  // namespace strata
