#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/kernels/attention.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

Program selected(Program program, AttentionBackend by) {
  return select_attention_backend(std::move(program), {{by}, {by}});
}

TEST(SelectAttentionBackendTest, ForwardAndBackwardGetTheBackendAlsoWhereRecomputed) {
  for (const Recompute recompute : kRecomputeModes) {
    const Program before =
                      test::decoder_program(test::make_decoder_config(2, 128), 2, recompute, DType::bf16),
                  after = selected(before, AttentionBackend::wgmma);
    int marked = 0;
    for (std::size_t i = 0; i < before.code.size(); ++i) {
      const Instr &was = before.code[i], &is = after.code[i];
      const bool is_attention = was.op == Op::attention || was.op == Op::attention_backward;
      Attrs attrs = is.attrs;
      if (is_attention) {
        EXPECT_EQ(was.attrs.as<AttentionAttrs>().backend, AttentionBackend::host);
        EXPECT_EQ(is.attrs.as<AttentionAttrs>().backend, AttentionBackend::wgmma) << op_name(is.op);
        attrs.as<AttentionAttrs>().backend = AttentionBackend::host;
      }
      marked += is_attention;
      EXPECT_EQ(attrs, was.attrs);  // nothing else changes
    }
    EXPECT_GE(marked, 4);  // two layers, forward and backward
  }
}

// wgmma supports 16-bit heads of 64 and 128 elements, cuDNN 16-bit heads of 16 to 128.
TEST(SelectAttentionBackendTest, UnsupportedHeadsFallBackToMma) {
  const auto by = [](AttentionBackend asked, std::int64_t hidden, DType dtype) {
    const Program program = selected(
        test::decoder_program(test::make_decoder_config(1, hidden), 2, Recompute::none, dtype), asked);
    std::vector<AttentionBackend> all;
    for (const Instr& instr : program.code)
      if (const auto* attrs = instr.attrs.get_if<AttentionAttrs>()) all.push_back(attrs->backend);
    EXPECT_EQ(all.size(), 2u);
    EXPECT_EQ(all.front(), all.back());
    return all.front();
  };
  ASSERT_EQ(test::make_decoder_config(1, 128).heads, 2);
  EXPECT_EQ(by(AttentionBackend::wgmma, 128, DType::bf16), AttentionBackend::wgmma);
  EXPECT_EQ(by(AttentionBackend::wgmma, 256, DType::f16), AttentionBackend::wgmma);
  EXPECT_EQ(by(AttentionBackend::wgmma, 128, DType::f32), AttentionBackend::mma);
  EXPECT_EQ(by(AttentionBackend::wgmma, 192, DType::bf16), AttentionBackend::mma);
  EXPECT_EQ(by(AttentionBackend::cudnn, 192, DType::bf16), AttentionBackend::cudnn);
  EXPECT_EQ(by(AttentionBackend::cudnn, 128, DType::f32), AttentionBackend::mma);
  EXPECT_EQ(by(AttentionBackend::cudnn, 16, DType::bf16), AttentionBackend::mma);
}

// The score gradients of one head need more than 2 GiB: 2 bytes for each of 65,536 x 65,536 scores.
TEST(SelectAttentionBackendTest, ABackwardWithTooLargeAWorkspaceFallsBackToMma) {
  DecoderConfig config = test::make_decoder_config(1, 128);
  config.seq = 65536;
  const Program program =
      selected(test::decoder_program(config, 1, Recompute::none, DType::bf16), AttentionBackend::cudnn);
  for (const Instr& instr : program.code) {
    if (instr.op == Op::attention) {
      EXPECT_EQ(instr.attrs.as<AttentionAttrs>().backend, AttentionBackend::cudnn);
    }
    if (instr.op == Op::attention_backward) {
      EXPECT_EQ(instr.attrs.as<AttentionAttrs>().backend, AttentionBackend::mma);
    }
  }
}

// The same heads in both directions, of which cuDNN supports the forward alone; and a window, which it never
// does.
TEST(SelectAttentionBackendTest, EachOpTakesTheFirstOfSeveralThatSupportsIt) {
  using enum AttentionBackend;
  DecoderConfig config = test::make_decoder_config(1, 128);
  config.seq = 65536;
  const auto by = [&](const kernels::AttentionOrder& order) {
    const Program program =
        select_attention_backend(test::decoder_program(config, 1, Recompute::none, DType::bf16), order);
    std::vector<AttentionBackend> all;
    for (const Instr& instr : program.code)
      if (const auto* attrs = instr.attrs.get_if<AttentionAttrs>()) all.push_back(attrs->backend);
    return all;
  };
  using Both = std::vector<AttentionBackend>;
  EXPECT_EQ(by({{cudnn, wgmma, mma}, {cudnn, wgmma, mma}}), (Both{cudnn, wgmma}));
  EXPECT_EQ(by({{wgmma, cudnn}, {cudnn}}), (Both{wgmma, mma}));
  EXPECT_EQ(by({{mma}, {wgmma}}), (Both{mma, wgmma}));
  config.window = 64;
  config.sliding = {true};
  EXPECT_EQ(by({{cudnn, wgmma, mma}, {cudnn, wgmma, mma}}), (Both{wgmma, wgmma}));
  EXPECT_EQ(by({{cudnn}, {cudnn}}), (Both{mma, mma}));
}

// The kernels of CUDA keep scores in registers: forward needs nothing, backward one number for a token and
// head.
TEST(SelectAttentionBackendTest, TheScratchOfTheHostsKernelIsNotInProgramsForAGpu) {
  DecoderConfig config = test::make_decoder_config(1, 128);
  config.seq = 4096;
  const Program program =
      selected(test::decoder_program(config, 1, Recompute::none, DType::bf16), AttentionBackend::mma);
  for (const Instr& instr : program.code) {
    const std::size_t bytes = instr.out.empty() ? 0 : program.value(instr.out.back()).bytes();
    if (instr.op == Op::attention) {
      EXPECT_EQ(bytes, 0u);
    }
    if (instr.op == Op::attention_backward) {
      EXPECT_EQ(bytes, 4096u * 2 * sizeof(float));
    }
  }
}

// cuDNN's backward stores the score gradients: 2 bytes for each of 2 sequences' 2 heads' 512 x 512 scores.
TEST(SelectAttentionBackendTest, CudnnGetsItsWorkspaceAndNoPackedDocuments) {
  DecoderConfig config = test::make_decoder_config(2, 128);
  config.seq = 512;
  const Program whole = test::decoder_program(config, 2, Recompute::none, DType::bf16),
                after = selected(whole, AttentionBackend::cudnn);
  EXPECT_EQ(after.values.size(), whole.values.size());
  for (const Instr& instr : after.code) {
    if (instr.op == Op::attention) {
      EXPECT_EQ(instr.attrs.as<AttentionAttrs>().backend, AttentionBackend::cudnn);
    }
    if (instr.op != Op::attention_backward) continue;
    EXPECT_EQ(instr.attrs.as<AttentionAttrs>().backend, AttentionBackend::cudnn);
    const kernels::AttentionHeads heads = {
        .heads = 2, .kv_heads = 2, .seq = 512, .backend = kernels::AttentionBackend::cudnn};
    EXPECT_EQ(after.value(instr.out.back()).bytes(),
              kernels::attention_backward_workspace_bytes(2 * 512, heads, DType::bf16, 64));
    EXPECT_GE(after.value(instr.out.back()).bytes(), std::size_t{2 * 2 * 512 * 512 * 2});
  }
  const Program back = selected(after, AttentionBackend::mma), mma = selected(whole, AttentionBackend::mma);
  for (std::size_t i = 0; i < whole.values.size(); ++i)
    EXPECT_EQ(back.values[i].bytes(), mma.values[i].bytes()) << whole.values[i].name;

  const Program packed = must(record_decoder(config, 2, DecoderHead::loss, DecoderRows::packed, DType::bf16));
  for (const Instr& instr : selected(must(derive_backward(packed, "loss")), AttentionBackend::cudnn).code)
    if (const auto* attrs = instr.attrs.get_if<AttentionAttrs>()) {
      EXPECT_EQ(attrs->backend, AttentionBackend::mma) << op_name(instr.op);
    }
}

}  // namespace
}  // namespace strata
