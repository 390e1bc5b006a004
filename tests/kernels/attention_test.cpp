#include <strata/kernels/attention.h>

#include <numeric>

#include <gmock/gmock.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::reference::AttentionShape;

AttentionHeads heads_of(const AttentionShape& s) {
  return {.heads = static_cast<std::int64_t>(s.heads),
          .kv_heads = static_cast<std::int64_t>(s.key_heads()),
          .seq = static_cast<std::int64_t>(s.seq),
          .causal = s.causal,
          .alibi = s.alibi,
          .window = static_cast<std::int64_t>(s.window),
          .softcap = static_cast<float>(s.softcap),
          .scale = static_cast<float>(s.scale)};
}
TensorView starts_of(AttentionShape& s) {
  return s.doc_start.empty() ? TensorView{} : test::view(s.doc_start);
}

class AttentionTest : public ::testing::TestWithParam<AttentionShape> {
 protected:
  AttentionShape shape = GetParam();
  const AttentionHeads heads = heads_of(shape);
  const std::int64_t tokens = static_cast<std::int64_t>(shape.batch * shape.seq);
  const std::int64_t h = static_cast<std::int64_t>(shape.h());
  const std::int64_t width = static_cast<std::int64_t>(shape.width());
  const std::vector<float> qkv = test::Values(1).floats(tokens * width, 2.0);
  const std::vector<float> dout = test::Values(2).floats(tokens * h);
  Tensor sinks{{static_cast<std::int64_t>(shape.sinks.size())}, {shape.sinks.begin(), shape.sinks.end()}};

  TensorView sinks_view() { return shape.sinks.empty() ? TensorView{} : sinks.view(); }
};

TEST_P(AttentionTest, ForwardFollowsTheF64Reference) {
  Tensor in({tokens, width}, qkv), out = Tensor::unwritten({tokens, h}),
                                   lse = Tensor::unwritten({tokens * heads.heads});
  test::Workspace workspace(attention_forward_workspace_bytes(tokens, heads));
  attention_forward_host(
      {in.view(), out.view(), lse.view(), starts_of(shape), heads, workspace.view(), {}, sinks_view()},
      *test::pool());
  const auto want = test::reference::attention_forward(test::widen(qkv), shape);
  EXPECT_LE(test::relative_error(out.values(), want.out), 2e-6);
  EXPECT_LE(test::relative_error(lse.values(), want.lse), 2e-6);
}

TEST_P(AttentionTest, BackwardFollowsTheF64Reference) {
  const auto forward = test::reference::attention_forward(test::widen(qkv), shape);
  Tensor in({tokens, width}, qkv), out({tokens, h}, {forward.out.begin(), forward.out.end()}),
      d({tokens, h}, dout);
  Tensor lse({tokens * heads.heads}, {forward.lse.begin(), forward.lse.end()}),
      dqkv = Tensor::unwritten({tokens, width});
  test::Workspace workspace(attention_backward_workspace_bytes(tokens, heads));
  attention_backward_host(
      {in.view(), out.view(), lse.view(), d.view(), starts_of(shape), dqkv.view(), heads, workspace.view()},
      *test::pool());
  const auto want = test::reference::attention_backward(test::widen(qkv), test::widen(dout), shape);
  EXPECT_LE(test::relative_error(dqkv.values(), want), 5e-6);
}

// Compared with the difference of two values of the loss <dout, out>.
TEST_P(AttentionTest, GradientsOfSinksFollowTheF64Reference) {
  if (shape.sinks.empty()) return;
  const auto forward = test::reference::attention_forward(test::widen(qkv), shape);
  Tensor in({tokens, width}, qkv), out({tokens, h}, {forward.out.begin(), forward.out.end()}),
      d({tokens, h}, dout), lse({tokens * heads.heads}, {forward.lse.begin(), forward.lse.end()}),
      dqkv = Tensor::unwritten({tokens, width}), delta = Tensor::unwritten({tokens * heads.heads}),
      dsinks = Tensor::unwritten({heads.heads});
  test::Workspace workspace(attention_backward_workspace_bytes(tokens, heads));
  attention_backward_host({.qkv = in.view(),
                           .out = out.view(),
                           .lse = lse.view(),
                           .dout = d.view(),
                           .doc_start = starts_of(shape),
                           .dqkv = dqkv.view(),
                           .shape = heads,
                           .workspace = workspace.view(),
                           .sinks = sinks.view(),
                           .delta_out = delta.view()},
                          *test::pool());
  attention_backward_sinks_host({lse.view(), delta.view(), sinks.view(), dsinks.view(), heads.seq},
                                *test::pool());
  test::reference::Vec want;
  for (const std::size_t head : {std::size_t{0}, shape.heads - 1}) {
    const auto loss = [&](double step) {
      AttentionShape moved = shape;
      moved.sinks[head] += step;
      const auto at = test::reference::attention_forward(test::widen(qkv), moved);
      return std::inner_product(at.out.begin(), at.out.end(), dout.begin(), 0.0);
    };
    want.push_back((loss(1e-5) - loss(-1e-5)) / 2e-5);
  }
  const std::vector<float> got = dsinks.values();
  EXPECT_LE(test::relative_error(std::vector<float>{got.front(), got.back()}, want), 1e-5);
}

/// Columns [first, first + n) of those rows of a matrix that are tokens `runs` of each sequence.
std::vector<float> part_of(const std::vector<float>& rows, std::int64_t width, std::int64_t first,
                           std::int64_t n, std::int64_t batch, std::int64_t seq, const TokenRuns& runs) {
  std::vector<float> part;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < runs.tokens(seq); ++i) {
      const auto at = rows.begin() + (b * seq + runs.at(i)) * width + first;
      part.insert(part.end(), at, at + n);
    }
  return part;
}

// Queries of two runs of tokens, and the keys and values of all or of two other runs. The gradients of keys
// that all queries see in turn add up to those of the whole.
TEST_P(AttentionTest, QueriesOfSomeTokensGetTheirRowsOfTheWhole) {
  if (!heads.causal || heads.seq < 60) return;
  const auto batch = static_cast<std::int64_t>(shape.batch), seq = heads.seq, d = h / heads.heads;
  const auto want = test::reference::attention_forward(test::widen(qkv), shape);
  const auto want_grad = test::reference::attention_backward(test::widen(qkv), test::widen(dout), shape);
  const std::vector<float> out_all(want.out.begin(), want.out.end()),
      grad_all(want_grad.begin(), want_grad.end());
  const std::int64_t kv_width = 2 * heads.kv_heads * d, a = seq / 5, b = seq / 2;
  std::vector<double> dkv_sum(static_cast<std::size_t>(tokens * kv_width));
  const TokenRuns parts[] = {{2, {a, b}, {b - a, seq - 7 - b}}, {2, {0, seq - 7}, {a, 7}}};
  for (const TokenRuns& queries : parts) {
    AttentionHeads part = heads;
    part.queries = queries;
    const std::int64_t n = batch * queries.tokens(seq);
    Tensor q({n, h}, part_of(qkv, width, 0, h, batch, seq, queries)),
        kv({tokens, kv_width}, part_of(qkv, width, h, kv_width, batch, seq, {})),
        d_out({n, h}, part_of(dout, h, 0, h, batch, seq, queries));
    Tensor out = Tensor::unwritten({n, h}), lse = Tensor::unwritten({n * heads.heads}),
           dq = Tensor::unwritten({n, h}), dkv = Tensor::unwritten({tokens, kv_width});
    test::reference::Ints starts;
    for (std::int64_t s = 0; s < batch && !shape.doc_start.empty(); ++s)
      for (std::int64_t i = 0; i < queries.tokens(seq); ++i)
        starts.push_back(shape.doc_start[static_cast<std::size_t>(s * seq + queries.at(i))]);
    const TensorView doc_start = starts.empty() ? TensorView{} : test::view(starts);
    test::Workspace workspace(attention_backward_workspace_bytes(tokens, heads));
    attention_forward_host({.qkv = q.view(),
                            .out = out.view(),
                            .lse = lse.view(),
                            .doc_start = doc_start,
                            .shape = part,
                            .workspace = workspace.view(),
                            .kv = kv.view(),
                            .sinks = sinks_view()},
                           *test::pool());
    EXPECT_LE(test::relative_error(out.values(), test::widen(part_of(out_all, h, 0, h, batch, seq, queries))),
              2e-6);
    attention_backward_host({.qkv = q.view(),
                             .out = out.view(),
                             .lse = lse.view(),
                             .dout = d_out.view(),
                             .doc_start = doc_start,
                             .dqkv = dq.view(),
                             .shape = part,
                             .workspace = workspace.view(),
                             .kv = kv.view(),
                             .dkv = dkv.view()},
                            *test::pool());
    EXPECT_LE(
        test::relative_error(dq.values(), test::widen(part_of(grad_all, width, 0, h, batch, seq, queries))),
        5e-6);
    const std::vector<float> own = dkv.values();
    for (std::size_t i = 0; i < own.size(); ++i) dkv_sum[i] += own[i];
  }
  const std::vector<float> sum(dkv_sum.begin(), dkv_sum.end());
  EXPECT_LE(test::relative_error(sum, test::widen(part_of(grad_all, width, h, kv_width, batch, seq, {}))),
            5e-6);
}

// Document starts for random lengths, some of which end at a block's border.
test::reference::Ints documents(std::size_t batch, std::size_t seq) {
  test::reference::Ints starts;
  test::Values values(9);
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t at = 0; at < seq;) {
      const std::size_t length =
          b % 2 == 1 && at == 0 ? 64 : 1 + static_cast<std::size_t>(values.below(1, 40)[0]);
      for (std::size_t i = 0; i < length && at + i < seq; ++i)
        starts.push_back(static_cast<std::int32_t>(at));
      at += length;
    }
  return starts;
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Values(AttentionShape{0, 4, 2, 8}, AttentionShape{1, 1, 1, 1},
                                           AttentionShape{2, 5, 3, 7}, AttentionShape{1, 64, 2, 16},
                                           AttentionShape{2, 150, 2, 24}, AttentionShape{2, 129, 1, 8, false},
                                           AttentionShape{20, 33, 2, 8}));
INSTANTIATE_TEST_SUITE_P(GroupedQueries, AttentionTest,
                         ::testing::Values(AttentionShape{2, 70, 4, 8, true, 2},
                                           AttentionShape{1, 33, 6, 5, true, 1},
                                           AttentionShape{2, 130, 4, 8, false, 2}));
INSTANTIATE_TEST_SUITE_P(Alibi, AttentionTest,
                         ::testing::Values(AttentionShape{2, 140, 4, 8, true, 0, true},
                                           AttentionShape{1, 70, 6, 8, true, 3, true}));
INSTANTIATE_TEST_SUITE_P(PackedDocuments, AttentionTest,
                         ::testing::Values(AttentionShape{2, 150, 2, 8, true, 0, false, documents(2, 150)},
                                           AttentionShape{3, 129, 4, 8, true, 2, false, documents(3, 129)},
                                           AttentionShape{2, 200, 4, 8, true, 2, true, documents(2, 200)}));

// Windows shorter than a block of queries, as long as one, and longer; of one key; and as long as the
// sequence.
INSTANTIATE_TEST_SUITE_P(
    Windows, AttentionTest,
    ::testing::Values(
        AttentionShape{.batch = 2, .seq = 150, .heads = 2, .head_dim = 8, .window = 10},
        AttentionShape{.batch = 1, .seq = 200, .heads = 4, .head_dim = 8, .kv_heads = 2, .window = 64},
        AttentionShape{.batch = 1, .seq = 200, .heads = 1, .head_dim = 8, .window = 70},
        AttentionShape{.batch = 1, .seq = 70, .heads = 2, .head_dim = 8, .window = 1},
        AttentionShape{.batch = 1, .seq = 70, .heads = 2, .head_dim = 8, .window = 70},
        AttentionShape{.batch = 2, .seq = 130, .heads = 4, .head_dim = 8, .alibi = true, .window = 20},
        AttentionShape{.batch = 3,
                       .seq = 129,
                       .heads = 4,
                       .head_dim = 8,
                       .kv_heads = 2,
                       .doc_start = documents(3, 129),
                       .window = 12}));
// Soft caps that scores reach, and soft caps that are far above them.
INSTANTIATE_TEST_SUITE_P(
    SoftCapsAndScales, AttentionTest,
    ::testing::Values(AttentionShape{.batch = 2, .seq = 150, .heads = 2, .head_dim = 8, .softcap = 1.5},
                      AttentionShape{
                          .batch = 1, .seq = 70, .heads = 4, .head_dim = 16, .kv_heads = 2, .softcap = 50},
                      AttentionShape{.batch = 1, .seq = 70, .heads = 2, .head_dim = 8, .scale = 0.125},
                      AttentionShape{.batch = 2,
                                     .seq = 130,
                                     .heads = 4,
                                     .head_dim = 8,
                                     .kv_heads = 2,
                                     .doc_start = documents(2, 130),
                                     .window = 30,
                                     .softcap = 2,
                                     .scale = 0.5}));

// Sinks below, among and far above the scores.
INSTANTIATE_TEST_SUITE_P(
    Sinks, AttentionTest,
    ::testing::Values(AttentionShape{.batch = 2, .seq = 70, .heads = 2, .head_dim = 8, .sinks = {-3, 1.5}},
                      AttentionShape{.batch = 1,
                                     .seq = 150,
                                     .heads = 4,
                                     .head_dim = 8,
                                     .kv_heads = 2,
                                     .window = 20,
                                     .sinks = {0.25, 0, -1, 12}},
                      AttentionShape{.batch = 3,
                                     .seq = 129,
                                     .heads = 2,
                                     .head_dim = 16,
                                     .doc_start = documents(3, 129),
                                     .scale = 0.5,
                                     .sinks = {2, -0.5}}));

TEST(AttentionTest, AnInvalidWindowCapOrScaleIsRefusedWithItsValue) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor in({4, 24}, test::Values(1).floats(96)), out = Tensor::unwritten({4, 8}),
                                                  lse = Tensor::unwritten({4});
  const auto refusal = [&](AttentionHeads heads) {
    heads.seq = 4;
    test::Workspace workspace(attention_forward_workspace_bytes(4, heads) + 4096);
    const Status status = attention_forward_async(
        backend, stream, {in.view(), out.view(), lse.view(), {}, heads, workspace.view()});
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({}), "ok");
  EXPECT_THAT(refusal({.window = -3}), ::testing::HasSubstr("window is -3;"));
  EXPECT_THAT(refusal({.causal = false, .window = 3}), ::testing::HasSubstr("window is 3;"));
  EXPECT_THAT(refusal({.alibi = true, .softcap = 2}), ::testing::HasSubstr("softcap is 2"));
  EXPECT_THAT(refusal({.scale = -1}), ::testing::HasSubstr("scale is -1"));
  for (const AttentionBackend gpu : {AttentionBackend::mma, AttentionBackend::wgmma, AttentionBackend::cudnn})
    EXPECT_THAT(refusal({.backend = gpu}), ::testing::HasSubstr("on a backend of the host"));
}

TEST(AttentionTest, BackendsWithoutWindowOrSoftCapAreNotSelected) {
  AttentionHeads heads{.heads = 4, .kv_heads = 4, .seq = 256, .backend = AttentionBackend::cudnn};
  const auto by = [&] { return effective_attention_backend(heads, 512, DType::bf16, 64, false, false); };
  EXPECT_EQ(by(), AttentionBackend::cudnn);
  EXPECT_EQ(effective_attention_backend(heads, 512, DType::bf16, 64, false, false, true),
            AttentionBackend::mma);  // sinks are not its forward's
  heads.window = 32;
  EXPECT_EQ(by(), AttentionBackend::mma);
  heads.backend = AttentionBackend::wgmma;
  EXPECT_EQ(by(), AttentionBackend::wgmma);
  heads.softcap = 30;
  EXPECT_EQ(by(), AttentionBackend::mma);
}

TEST(AttentionTest, AnEarlierTokenDoesNotSeeALaterOne) {
  std::vector<float> values = test::Values(3).floats(70 * 3 * 8);
  const auto run = [&] {
    Tensor in({70, 24}, values), out = Tensor::unwritten({70, 8}), lse = Tensor::unwritten({70});
    const AttentionHeads heads{1, 1, 70};
    test::Workspace workspace(attention_forward_workspace_bytes(70, heads));
    attention_forward_host({in.view(), out.view(), lse.view(), {}, heads, workspace.view()}, *test::pool());
    auto got = out.values();
    got.resize(69 * 8);
    return got;
  };
  const auto before = run();
  for (std::size_t i = 69 * 24; i < values.size(); ++i) values[i] = 100.0f;
  EXPECT_EQ(test::differing_bits(run(), before), 0u);
}

// A bias of the keys adds the same value to all scores of a query, which does not change the softmax. So its
// gradient, the sum of dk, is zero except for the rounding of each dk. The values here have a large mean,
// which does not change dk, but makes the bf16 output inexact.
TEST(AttentionTest, GradientsOfKeysInBf16AddUpToTheirRounding) {
  const std::int64_t tokens = 140, d = 16;
  const AttentionHeads heads{1, 1, tokens};
  std::vector<float> values = test::Values(1).floats(tokens * 3 * d, 2.0);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += i % (3 * d) < 2 * d ? 0.0f : 8.0f;
  Tensor qkv({tokens, 3 * d}, values, DType::bf16),
      dout({tokens, d}, test::Values(2).floats(tokens * d), DType::bf16);
  Tensor out = Tensor::unwritten({tokens, d}, DType::bf16), lse = Tensor::unwritten({tokens}),
         dqkv = Tensor::unwritten({tokens, 3 * d}, DType::bf16);
  test::Workspace forward(attention_forward_workspace_bytes(tokens, heads, DType::bf16, d)),
      backward(attention_backward_workspace_bytes(tokens, heads, DType::bf16, d));
  attention_forward_host({qkv.view(), out.view(), lse.view(), {}, heads, forward.view()}, *test::pool());
  attention_backward_host(
      {qkv.view(), out.view(), lse.view(), dout.view(), {}, dqkv.view(), heads, backward.view()},
      *test::pool());
  values = dqkv.values();
  double of_sums = 0, of_all = 0;
  for (std::int64_t column = d; column < 2 * d; ++column) {
    double sum = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double dk = static_cast<double>(values[static_cast<std::size_t>(t * 3 * d + column)]);
      sum += dk;
      of_all += dk * dk;
    }
    of_sums += sum * sum;
  }
  EXPECT_LE(std::sqrt(of_sums / of_all), 0x1p-8);
}

TEST(AttentionTest, SlopesAreThoseOfTheAlibiPaper) {
  EXPECT_FLOAT_EQ(alibi_slope(0, 8), 0.5f);
  EXPECT_FLOAT_EQ(alibi_slope(7, 8), 1.0f / 256);
  EXPECT_FLOAT_EQ(alibi_slope(8, 12), std::exp2(-0.5f));  // after the first 8, every second slope of 16 heads
  EXPECT_FLOAT_EQ(alibi_slope(11, 12), std::exp2(-3.5f));
}

TEST(AttentionTest, WorkspaceDependsOnShapesAndIsBounded) {
  EXPECT_EQ(attention_forward_workspace_bytes(1000 * 1024, {16, 16, 1024}), 32u * 64 * 1024 * 4);
  EXPECT_EQ(attention_backward_workspace_bytes(10, {1, 1, 10}), 2u * 10 * 10 * 4);
}

}  // namespace
}  // namespace strata::kernels
