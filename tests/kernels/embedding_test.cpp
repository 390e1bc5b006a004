#include <strata/kernels/embedding.h>

#include "op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

struct Size {
  std::int64_t tokens, seq, vocab, positions, h;
};
class EmbeddingTest : public ::testing::TestWithParam<Size> {};

TEST_P(EmbeddingTest, ForwardIsTheSumOfTwoRows) {
  const Size s = GetParam();
  test::Values values(1);
  auto tokens = values.below(s.tokens, s.vocab);
  const auto wte = values.floats(s.vocab * s.h), wpe = values.floats(s.positions * s.h);
  Tensor te({s.vocab, s.h}, wte), pe({s.positions, s.h}, wpe), x = Tensor::unwritten({s.tokens, s.h});
  embedding_forward_host({test::view(tokens), te.view(), pe.view(), x.view(), s.seq}, *test::pool());
  const auto want =
      test::reference::embedding_forward(tokens, test::widen(wte), test::widen(wpe),
                                         static_cast<std::size_t>(s.h), static_cast<std::size_t>(s.seq));
  EXPECT_LE(test::relative_error(x.values(), want), 1e-7);
}

TEST_P(EmbeddingTest, BackwardSumsTheRowsOfEachTokenAndPosition) {
  const Size s = GetParam();
  test::Values values(2);
  auto tokens = values.below(s.tokens, s.vocab);
  const auto dx = values.floats(s.tokens * s.h);
  Tensor d({s.tokens, s.h}, dx), dwte = Tensor::unwritten({s.vocab, s.h}),
                                 dwpe = Tensor::unwritten({s.positions, s.h});
  test::Workspace workspace(embedding_backward_workspace_bytes(s.tokens, s.vocab));
  embedding_backward_host({.tokens = test::view(tokens),
                           .dx = d.view(),
                           .dwte = dwte.view(),
                           .dwpe = dwpe.view(),
                           .seq = s.seq,
                           .workspace = workspace.view()},
                          *test::pool());
  const auto want = test::reference::embedding_backward(
      tokens, test::widen(dx), static_cast<std::size_t>(s.h), static_cast<std::size_t>(s.seq),
      static_cast<std::size_t>(s.vocab), static_cast<std::size_t>(s.positions));
  EXPECT_LE(test::relative_error(dwte.values(), want.dwte), 1e-6);
  EXPECT_LE(test::relative_error(dwpe.values(), want.dwpe), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, EmbeddingTest,
                         ::testing::Values(Size{0, 4, 3, 4, 5}, Size{1, 1, 1, 1, 1}, Size{12, 4, 7, 6, 17},
                                           Size{96, 32, 40, 32, 600}, Size{300, 100, 11, 128, 33}));

TEST(EmbeddingTest, AccumulationAddsTheSumToWhatWasThere) {
  std::vector<std::int32_t> tokens = {1, 1};
  Tensor dx({2, 1}, {1e-8f, 1e-8f}), dwte({3, 1}, {5.0f, 1.0f, 7.0f}), dwpe({2, 1}, {1.0f, 2.0f});
  test::Workspace workspace(embedding_backward_workspace_bytes(2, 3));
  embedding_backward_host({.tokens = test::view(tokens),
                           .dx = dx.view(),
                           .dwte = dwte.view(),
                           .dwpe = dwpe.view(),
                           .seq = 1,
                           .accumulate_wte = true,
                           .accumulate_wpe = false,
                           .workspace = workspace.view()},
                          *test::pool());
  EXPECT_EQ(dwte.values(), (std::vector<float>{5.0f, 1.0f + 2e-8f, 7.0f}));
  EXPECT_EQ(dwpe.values(), (std::vector<float>{2e-8f, 0.0f}));
}

}  // namespace
}  // namespace strata::kernels
