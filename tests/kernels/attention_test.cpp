#include <strata/kernels/attention.h>

#include "op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::reference::AttentionShape;

class AttentionTest : public ::testing::TestWithParam<AttentionShape> {
 protected:
  const AttentionShape shape = GetParam();
  const std::int64_t tokens = static_cast<std::int64_t>(shape.batch * shape.seq);
  const std::int64_t h = static_cast<std::int64_t>(shape.h());
  const std::int64_t heads = static_cast<std::int64_t>(shape.heads);
  const std::int64_t seq = static_cast<std::int64_t>(shape.seq);
  const std::vector<float> qkv = test::Values(1).floats(tokens * 3 * h, 2.0);
  const std::vector<float> dout = test::Values(2).floats(tokens * h);
};

TEST_P(AttentionTest, ForwardFollowsTheF64Reference) {
  Tensor in({tokens, 3 * h}, qkv), out = Tensor::unwritten({tokens, h}),
                                   lse = Tensor::unwritten({tokens * heads});
  test::Workspace workspace(attention_forward_workspace_bytes(tokens, heads, seq));
  attention_forward_host({in.view(), out.view(), lse.view(), heads, seq, shape.causal, workspace.view()},
                         *test::pool());
  const auto want = test::reference::attention_forward(test::widen(qkv), shape);
  EXPECT_LE(test::relative_error(out.values(), want.out), 2e-6);
  EXPECT_LE(test::relative_error(lse.values(), want.lse), 2e-6);
}

TEST_P(AttentionTest, BackwardFollowsTheF64Reference) {
  const auto forward = test::reference::attention_forward(test::widen(qkv), shape);
  Tensor in({tokens, 3 * h}, qkv), out({tokens, h}, {forward.out.begin(), forward.out.end()}),
      d({tokens, h}, dout);
  Tensor lse({tokens * heads}, {forward.lse.begin(), forward.lse.end()}),
      dqkv = Tensor::unwritten({tokens, 3 * h});
  test::Workspace workspace(attention_backward_workspace_bytes(tokens, heads, seq));
  attention_backward_host(
      {in.view(), out.view(), lse.view(), d.view(), dqkv.view(), heads, seq, shape.causal, workspace.view()},
      *test::pool());
  const auto want = test::reference::attention_backward(test::widen(qkv), test::widen(dout), shape);
  EXPECT_LE(test::relative_error(dqkv.values(), want), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Values(AttentionShape{0, 4, 2, 8}, AttentionShape{1, 1, 1, 1},
                                           AttentionShape{2, 5, 3, 7}, AttentionShape{1, 64, 2, 16},
                                           AttentionShape{2, 150, 2, 24}, AttentionShape{2, 129, 1, 8, false},
                                           AttentionShape{20, 33, 2, 8}));

TEST(AttentionTest, AnEarlierTokenDoesNotSeeALaterOne) {
  std::vector<float> values = test::Values(3).floats(70 * 3 * 8);
  const auto run = [&] {
    Tensor in({70, 24}, values), out = Tensor::unwritten({70, 8}), lse = Tensor::unwritten({70});
    test::Workspace workspace(attention_forward_workspace_bytes(70, 1, 70));
    attention_forward_host({in.view(), out.view(), lse.view(), 1, 70, true, workspace.view()}, *test::pool());
    auto got = out.values();
    got.resize(69 * 8);
    return got;
  };
  const auto before = run();
  for (std::size_t i = 69 * 24; i < values.size(); ++i) values[i] = 100.0f;
  EXPECT_EQ(test::differing_bits(run(), before), 0u);
}

TEST(AttentionTest, WorkspaceDependsOnShapesAndIsBounded) {
  EXPECT_EQ(attention_forward_workspace_bytes(1000 * 1024, 16, 1024), 32u * 64 * 1024 * 4);
  EXPECT_EQ(attention_backward_workspace_bytes(10, 1, 10), 2u * 10 * 10 * 4);
}

}  // namespace
}  // namespace strata::kernels
