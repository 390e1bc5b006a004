#include <gtest/gtest.h>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

TEST(AttendByTest, AttentionOfBothWaysIsMarkedAlsoWhereItIsMadeAgain) {
  for (const Recompute recompute : kRecomputeModes) {
    const Program before = test::decoder_program(test::decoder_of(2, 32), 2, recompute),
                  after = attend_by(before, kernels::AttentionBy::groups);
    int marked = 0;
    for (std::size_t i = 0; i < before.code.size(); ++i) {
      const Instr &was = before.code[i], &is = after.code[i];
      const bool attends = was.op == Op::attention || was.op == Op::attention_backward;
      EXPECT_EQ(attention_heads(was.attrs).by, kernels::AttentionBy::warps);
      EXPECT_EQ(attention_heads(is.attrs).by,
                attends ? kernels::AttentionBy::groups : kernels::AttentionBy::warps)
          << op_def(is.op).name;
      marked += attends;
      Attrs attrs = is.attrs;
      attrs.by = kernels::AttentionBy::warps;
      EXPECT_EQ(attrs, was.attrs);  // and nothing else
    }
    EXPECT_GE(marked, 4);  // of two layers, both ways
  }
}

// cuDNN's backward keeps the gradients of scores: 2 bytes for each of 2 sequences' 2 heads' 512 x 512.
TEST(AttendByTest, CudnnGetsItsScratchAndNoPackedDocuments) {
  DecoderConfig config = test::decoder_of(2, 128);
  config.seq = 512;
  const Program whole = test::decoder_program(config, 2, Recompute::none, DType::bf16),
                after = attend_by(whole, kernels::AttentionBy::cudnn);
  EXPECT_EQ(after.values.size(), whole.values.size());
  for (const Instr& instr : after.code) {
    if (instr.op == Op::attention) {
      EXPECT_EQ(attention_heads(instr.attrs).by, kernels::AttentionBy::cudnn);
    }
    if (instr.op != Op::attention_backward) continue;
    EXPECT_EQ(attention_heads(instr.attrs).by, kernels::AttentionBy::cudnn);
    EXPECT_EQ(
        after.value(instr.out.back()).bytes(),
        kernels::attention_backward_workspace_bytes(2 * 512, attention_heads(instr.attrs), DType::bf16, 64));
    EXPECT_GE(after.value(instr.out.back()).bytes(), std::size_t{2 * 2 * 512 * 512 * 2});
  }
  const Program back = attend_by(after, kernels::AttentionBy::warps);
  for (std::size_t i = 0; i < whole.values.size(); ++i)
    EXPECT_EQ(back.values[i].bytes(), whole.values[i].bytes()) << whole.values[i].name;

  const Program packed = must(record_decoder(config, 2, DecoderHead::loss, DecoderRows::packed, DType::bf16));
  for (const Instr& instr :
       attend_by(must(derive_backward(packed, "loss")), kernels::AttentionBy::cudnn).code)
    EXPECT_EQ(attention_heads(instr.attrs).by, kernels::AttentionBy::warps) << op_def(instr.op).name;
}

}  // namespace
}  // namespace strata
