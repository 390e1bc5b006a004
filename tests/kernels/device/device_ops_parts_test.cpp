// Compares ops on parts of sequences and of vocabularies, which ranks share, on the GPU with the host's (see
// device_ops_test.cpp).

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/kernels/attention.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/linear_cross_entropy.h>
#include <strata/runtime/str.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

using test::Values;

class DevicePartsTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
  double tolerance(double f32, double f16, double bf16) const {
    return GetParam() == DType::f32 ? f32 : GetParam() == DType::f16 ? f16 : bf16;
  }
  TensorView f32(const Shape& shape) { return unwritten(shape, DType::f32); }
};

// The first, a middle and the last rows of a table, and rows that no id asks for.
TEST_P(DevicePartsTest, Embeddings) {
  constexpr std::int64_t kTokens = 3000, kVocab = 500, kWidth = 72;
  const TensorView ids = integers(Values(9).below(kTokens, kVocab - 1));
  for (const auto& [first, rows] : {std::pair<std::int64_t, std::int64_t>{0, 170}, {170, 1}, {171, 329}}) {
    expect_same_bits<EmbeddingForwardArgs>(
        "embedding",
        {ids, in({rows, kWidth}, 1), unwritten({kTokens, kWidth}, GetParam()), -first, /*is_part=*/true},
        &embedding_forward_host, &embedding_forward_async, {&EmbeddingForwardArgs::x});
    for (const bool adds : {false, true})
      expect_same_bits<EmbeddingBackwardArgs>(
          "embedding backward",
          {ids, in({kTokens, kWidth}, 2), in({rows, kWidth}, 3, 1.0, DType::f32), -first, adds,
           workspace(embedding_backward_workspace_bytes(kTokens, rows)), /*is_part=*/true},
          &embedding_backward_host, &embedding_backward_async, {&EmbeddingBackwardArgs::dtable});
  }
}

// Targets are ignored, in the first part, in the second and at both sides of the border. The larger
// vocabulary takes several blocks of rows.
TEST_P(DevicePartsTest, LossesOfAVocabularyInTwoParts) {
  constexpr std::int64_t kRows = 300, kWidth = 64;
  const double close = tolerance(1e-5, 2e-3, 1e-2);
  for (const std::int64_t vocab : {101, 70001})
    for (const float softcap : {0.0f, 5.0f}) {
      const std::int64_t border = vocab / 3;
      std::vector<std::int32_t> wanted = Values(9).below(kRows, vocab);
      for (std::size_t i = 0; i < wanted.size(); i += 7) wanted[i] = -1;
      wanted[1] = static_cast<std::int32_t>(border - 1);
      wanted[2] = static_cast<std::int32_t>(border);
      const TensorView x = in({kRows, kWidth}, 1), w = in({vocab, kWidth}, 2), targets = integers(wanted),
                       stats = f32({4, kRows}), lse = f32({kRows});
      const auto row = [&](std::int64_t i) {
        return TensorView{stats.data + i * kRows * 4, Shape{kRows}, DType::f32};
      };
      const auto part = [&](std::int64_t first, std::int64_t rows) {
        LinearCrossEntropyArgs a = {
            .x = x,
            .w = {w.data + first * kWidth * static_cast<std::int64_t>(size_of(w.dtype)),
                  {rows, kWidth},
                  w.dtype},
            .targets = targets,
            .losses = {},
            .mean_loss = {},
            .workspace = workspace(linear_cross_entropy_workspace_bytes(kRows, rows, GetParam())),
            .gemm_workspace = workspace(linear_cross_entropy_gemm_workspace_bytes(kRows, rows, kWidth)),
            .softcap = softcap,
            .first_row = first};
        return a;
      };
      LinearCrossEntropyArgs parts[] = {part(0, border), part(border, vocab - border)};
      for (std::int64_t i = 0; i < 2; ++i) {
        LinearCrossEntropyArgs& a = parts[i];
        a.lse = row(2 * i);
        a.losses = row(2 * i + 1);
        for (TensorView LinearCrossEntropyArgs::*output :
             {&LinearCrossEntropyArgs::lse, &LinearCrossEntropyArgs::losses})
          expect_close<LinearCrossEntropyArgs>("log-sum-exps and logits", a, &linear_log_sum_exp_host,
                                               &linear_log_sum_exp_async, output, close);
      }
      const MergeLossesArgs merge = {stats, targets, lse, f32({kRows}), f32({1})};
      expect_same_bits<MergeLossesArgs>(
          "losses", merge, &merge_losses_host, &merge_losses_async,
          {&MergeLossesArgs::lse, &MergeLossesArgs::losses, &MergeLossesArgs::mean_loss});
      for (LinearCrossEntropyArgs& a : parts) {
        a.lse = lse;
        a.losses = {};
        const LinearCrossEntropyBackwardArgs backward = {a, unwritten({kRows, kWidth}, GetParam()),
                                                         in(a.w.shape, 4, 1.0, DType::f32), true};
        for (TensorView LinearCrossEntropyBackwardArgs::*output :
             {&LinearCrossEntropyBackwardArgs::dx, &LinearCrossEntropyBackwardArgs::dw})
          expect_close<LinearCrossEntropyBackwardArgs>("a part's gradients", backward,
                                                       &linear_cross_entropy_backward_host,
                                                       &linear_cross_entropy_backward_async, output, close);
      }
    }
}

struct PartsCase {
  std::int64_t seq, heads, kv_heads, d;
  bool causal, documents = false;
  AttentionHeads more = {};  // alibi, window or softcap
};

// Two runs of queries, as a rank has them that shares causal attention evenly, and two parts of the keys, of
// which the second has none that the first run sees. The parts' outputs are merged, and their backwards get
// the statistics of all keys.
TEST_P(DevicePartsTest, AttentionOnTwoPartsOfTheKeys) {
  constexpr std::int64_t kBatch = 2;
  const double close = tolerance(2e-6, 1e-3, 8e-3), close_to_sums = tolerance(5e-6, 2e-3, 1.6e-2);
  for (const PartsCase& c :
       {PartsCase{97, 6, 2, 64, true}, PartsCase{300, 4, 2, 128, true}, PartsCase{300, 4, 2, 128, false},
        PartsCase{80, 4, 4, 128, true, true}, PartsCase{130, 2, 1, 80, true, false, {.window = 40}},
        PartsCase{130, 3, 3, 64, true, false, {.alibi = true}},
        PartsCase{130, 2, 2, 96, true, false, {.softcap = 5.0f}}}) {
    const std::string what = str("seq ", c.seq, ", heads of ", c.d, c.causal ? ", causal" : "");
    AttentionHeads shape = c.more;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.seq = c.seq;
    shape.causal = c.causal;
    const std::int64_t quarter = c.seq / 4;
    shape.queries = {2, {quarter / 2, c.seq - quarter}, {quarter, quarter}};
    const std::int64_t queries = 2 * quarter, rows = kBatch * queries, width = c.heads * c.d,
                       kv_width = 2 * c.kv_heads * c.d, tokens = kBatch * c.seq;
    const BufferView scratch =
        workspace(std::max(attention_forward_workspace_bytes(tokens, shape, dtype(), c.d),
                           attention_backward_workspace_bytes(tokens, shape, dtype(), c.d)));
    std::vector<std::int32_t> starts;
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::int64_t at = shape.queries.at(t % queries);
      starts.push_back(static_cast<std::int32_t>(at < 5 ? 0 : at < c.seq / 2 ? 5 : c.seq / 2));
    }
    const TensorView documents = c.documents ? integers(starts) : TensorView{}, q = in({rows, width}, 1),
                     dout = in({rows, width}, 2);
    const TokenRuns of_keys[] = {{2, {0, c.seq / 2}, {quarter, 9}},
                                 {2, {c.seq - quarter - 9, c.seq - 7}, {quarter, 7}}};
    const auto finite = [](const TensorView& lse) {
      std::vector<float> values = widened(lse);
      std::ranges::replace_if(
          values, [](float v) { return v == -INFINITY; }, -1e3f);
      return values;
    };
    TensorView kv[2], out[2], lse[2];
    for (std::size_t i = 0; i < 2; ++i) {
      shape.keys = of_keys[i];
      kv[i] = in({kBatch * shape.keys.tokens(c.seq), kv_width}, 3 + i);
      AttentionForwardArgs a = {q,    f32({rows, width}), f32({rows * c.heads}), documents, shape, scratch,
                                kv[i]};
      AttentionForwardArgs there = a;
      there.out = f32({rows, width});
      there.lse = f32({rows * c.heads});
      attention_forward_host(a, *pool_);
      run_on_device(&attention_forward_async, there);
      EXPECT_LE(test::relative_error(widened(there.out), test::widen(widened(a.out))), close) << what;
      EXPECT_LE(test::relative_error(finite(there.lse), test::widen(finite(a.lse))), 1e-5) << what;
      out[i] = a.out;
      lse[i] = a.lse;
      // Stored in the queries' dtype, as where all keys are in one part.
      a.out = unwritten({rows, width}, dtype());
      expect_close<AttentionForwardArgs>("attention of a part", a, &attention_forward_host,
                                         &attention_forward_async, &AttentionForwardArgs::out, close);
    }
    const MergeAttentionArgs merge = {out[0],  lse[0], out[1], lse[1], f32(out[0].shape), f32(lse[0].shape),
                                      c.heads, queries};
    expect_same_bits<MergeAttentionArgs>(what.c_str(), merge, &merge_attention_host, &merge_attention_async,
                                         {&MergeAttentionArgs::out, &MergeAttentionArgs::lse});
    expect_same_bits_in_place(what.c_str(), merge, &merge_attention_host, &merge_attention_async,
                              &MergeAttentionArgs::out_a, &MergeAttentionArgs::out);
    expect_same_bits_in_place(what.c_str(), merge, &merge_attention_host, &merge_attention_async,
                              &MergeAttentionArgs::lse_a, &MergeAttentionArgs::lse);
    const AttentionDeltaArgs delta = {merge.out, dout, f32({rows * c.heads}), c.heads, queries};
    expect_same_bits<AttentionDeltaArgs>(what.c_str(), delta, &attention_delta_host, &attention_delta_async,
                                         {&AttentionDeltaArgs::delta});
    for (std::size_t i = 0; i < 2; ++i) {
      shape.keys = of_keys[i];
      const AttentionBackwardArgs backward = {.qkv = q,
                                              .out = merge.out,
                                              .lse = merge.lse,
                                              .dout = dout,
                                              .doc_start = documents,
                                              .dqkv = unwritten({rows, width}, dtype()),
                                              .shape = shape,
                                              .workspace = scratch,
                                              .kv = kv[i],
                                              .dkv = unwritten(kv[i].shape, dtype()),
                                              .delta = delta.delta};
      for (TensorView AttentionBackwardArgs::*output :
           {&AttentionBackwardArgs::dqkv, &AttentionBackwardArgs::dkv})
        expect_close<AttentionBackwardArgs>("a part's gradients", backward, &attention_backward_host,
                                            &attention_backward_async, output, close_to_sums);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stored, DevicePartsTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
