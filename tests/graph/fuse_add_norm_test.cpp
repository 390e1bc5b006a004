#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/arena_replay.h"
#include "graph/program_maker.h"

namespace strata {
namespace {

using test::count;

TEST(FuseAddNormTest, AnAdditionAndTheNormAfterItBecomeOne) {
  Builder b;
  const Value x = b.input("x", {4, 3}, DType::f32), y = b.input("y", {4, 3}, DType::f32);
  const Value scale = b.param("scale", {3}, {}), shift = b.param("shift", {3}, {});
  const Value sum = b.add(x, y);
  const Value normed = b.rmsnorm(sum, scale, 0.5f);
  const Value again = b.layernorm(b.add(normed, sum), scale, shift, 0.25f);
  const Program program = fuse_add_norm(must(b.finish({{"out", b.gelu(again)}})));
  ASSERT_TRUE(verify(program).is_ok()) << verify(program).message();
  EXPECT_EQ(to_string(program),
            "0 add_rmsnorm(x, y, scale) -> .rmsnorm.y:[4, 3] .rmsnorm.rstd:[4] .add.y:[4, 3]\n"
            "1 add_layernorm(.rmsnorm.y, .add.y, scale, shift) -> .layernorm.y:[4, 3] .layernorm.mean:[4] "
            ".layernorm.rstd:[4] .add.y:[4, 3]\n"
            "2 gelu(.layernorm.y) -> out:[4, 3]\n");
  EXPECT_EQ(program.code[0].attrs.as<RmsnormAttrs>().eps, 0.5f);
  EXPECT_EQ(program.code[1].attrs.as<LayernormAttrs>().eps, 0.25f);
}

TEST(FuseAddNormTest, AdditionsApartOrInAnotherRegionAreNotFused) {
  Builder b;
  const Value x = b.input("x", {4, 3}, DType::f32), scale = b.param("scale", {3}, {});
  const Value sum = b.add(x, x), between = b.gelu(sum);
  const Value late = b.rmsnorm(sum, scale, 1e-6f);
  const Value beside = b.add(between, late);
  const Value last = b.add(beside, b.rmsnorm(between, scale, 1e-6f));
  b.region("next", false);
  const Program program = must(b.finish({{"out", b.rmsnorm(last, scale, 1e-6f)}}));
  EXPECT_EQ(to_string(fuse_add_norm(program)), to_string(program));
}

// Only one of a block's two additions is fused: the norm after the other belongs to the next block.
TEST(FuseAddNormTest, EachDecoderBlockFusesOneAddition) {
  for (const char* family : {"gpt2", "llama", "glm4"})
    for (const Recompute mode : kRecomputeModes) {
      const Program bare = test::decoder_program(test::make_realistic_config(family), 1, mode);
      const Program fused = fuse_add_norm(bare);
      const Op op = family == std::string_view("gpt2") ? Op::add_layernorm : Op::add_rmsnorm;
      // It is recomputed with the norm if the sum is not stored. This holds after a post-norm too, whose
      // output is not stored either.
      const bool twice =
          mode == Recompute::full || (mode == Recompute::selective && family == std::string_view("glm4"));
      const int again = twice ? 2 : 1;
      EXPECT_EQ(count(fused)[op], 12 * again) << family << ", " << to_string(mode);
      EXPECT_EQ(count(fused)[Op::add], count(bare)[Op::add] - 12 * again) << family;
      EXPECT_LE(plan_memory(fused).arena_bytes, plan_memory(bare).arena_bytes)
          << family << ", " << to_string(mode);
      EXPECT_EQ(to_string(fuse_add_norm(fused)), to_string(fused));
      EXPECT_EQ(test::replay(fused), "") << family << ", " << to_string(mode);
    }
}

// Covers a sum of one value with itself, whose memory the sum must not reuse, and a sum that is an output.
TEST(FuseAddNormTest, ASumOfOneValueAndASumThatIsAnOutputAreFused) {
  Builder b;
  const Value x = b.gelu(b.input("x", {4, 3}, DType::f32));
  const Value sum = b.add(x, x);
  const Value y = b.rmsnorm(sum, b.param("scale", {3}, {}), 1e-6f);
  const Program program = fuse_add_norm(must(b.finish({{"sum", sum}, {"y", y}})));
  ASSERT_EQ(program.code.size(), 2u);
  EXPECT_EQ(program.code[1].op, Op::add_rmsnorm);
  EXPECT_EQ(program.code[1].out.back(), program.find("sum"));
  EXPECT_EQ(test::replay(program), "");
}

TEST(FuseAddNormTest, RandomProgramsOverwriteNoLiveValue) {
  std::size_t fused = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed)
    for (const Recompute mode : kRecomputeModes) {
      const Program program =
          fuse_add_norm(recompute_regions(must(derive_backward(test::random_program(seed), "loss")), mode));
      ASSERT_TRUE(verify(program).is_ok()) << seed << ": " << verify(program).message();
      fused += has_op(program, Op::add_layernorm);
      EXPECT_EQ(test::replay(program), "") << seed;
    }
  EXPECT_GT(fused, 20u);
}

}  // namespace
}  // namespace strata
