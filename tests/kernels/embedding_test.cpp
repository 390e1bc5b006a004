#include <strata/kernels/embedding.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

struct TableSize {
  std::int64_t tokens, vocab, h, offset = 0;
};
class EmbeddingTest : public ::testing::TestWithParam<TableSize> {};

TEST_P(EmbeddingTest, ForwardIsTheRowOfEachId) {
  const TableSize s = GetParam();
  test::Values values(1);
  auto ids = values.below(s.tokens, s.vocab - s.offset);
  const auto table = values.floats(s.vocab * s.h);
  Tensor rows({s.vocab, s.h}, table), x = Tensor::unwritten({s.tokens, s.h});
  embedding_forward_host({test::view(ids), rows.view(), x.view(), s.offset}, *test::pool());
  const auto want = test::reference::embedding_forward(ids, test::widen(table), static_cast<std::size_t>(s.h),
                                                       static_cast<std::size_t>(s.offset));
  EXPECT_EQ(test::relative_error(x.values(), want), 0.0);
}

TEST_P(EmbeddingTest, BackwardSumsTheRowsOfEachId) {
  const TableSize s = GetParam();
  test::Values values(2);
  auto ids = values.below(s.tokens, s.vocab - s.offset);
  const auto dx = values.floats(s.tokens * s.h);
  Tensor d({s.tokens, s.h}, dx), dtable = Tensor::unwritten({s.vocab, s.h});
  test::Workspace workspace(embedding_backward_workspace_bytes(s.tokens, s.vocab));
  embedding_backward_host({.ids = test::view(ids),
                           .dx = d.view(),
                           .dtable = dtable.view(),
                           .offset = s.offset,
                           .workspace = workspace.view()},
                          *test::pool());
  const auto want = test::reference::embedding_backward(ids, test::widen(dx), static_cast<std::size_t>(s.h),
                                                        static_cast<std::size_t>(s.vocab),
                                                        static_cast<std::size_t>(s.offset));
  EXPECT_LE(test::relative_error(dtable.values(), want), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, EmbeddingTest,
                         ::testing::Values(TableSize{0, 3, 5}, TableSize{1, 1, 1}, TableSize{12, 7, 17},
                                           TableSize{96, 40, 600, 2}, TableSize{300, 11, 33, 3}));

// Two ranks have parts of a table. Each id's row is on one of them, so what the ranks find adds up.
TEST(EmbeddingTest, PartsOfATableGiveZerosForTheRowsOfOthers) {
  std::vector<std::int32_t> ids = {3, 0, 1, 3};
  const std::vector<float> table = {1, 2, 3, 4};
  Tensor dx({4, 1}, {1.0f, 2.0f, 4.0f, 8.0f});
  const std::vector<std::vector<float>> rows = {{0, 1, 2, 0}, {4, 0, 0, 4}}, sums = {{2, 4}, {0, 9}};
  for (std::int64_t part = 0; part < 2; ++part) {
    const auto p = static_cast<std::size_t>(part);
    Tensor own({2, 1}, {table[2 * p], table[2 * p + 1]}), x = Tensor::unwritten({4, 1}),
                                                          dtable = Tensor::unwritten({2, 1});
    embedding_forward_host({test::view(ids), own.view(), x.view(), -2 * part, true}, *test::pool());
    EXPECT_EQ(x.values(), rows[p]);
    test::Workspace workspace(embedding_backward_workspace_bytes(4, 2));
    embedding_backward_host({.ids = test::view(ids),
                             .dx = dx.view(),
                             .dtable = dtable.view(),
                             .offset = -2 * part,
                             .workspace = workspace.view(),
                             .is_part = true},
                            *test::pool());
    EXPECT_EQ(dtable.values(), sums[p]);
  }
}

TEST(EmbeddingTest, AccumulationAddsTheSumToThePreviousGradient) {
  std::vector<std::int32_t> ids = {1, 1};
  Tensor dx({2, 1}, {1e-8f, 1e-8f}), dtable({3, 1}, {5.0f, 1.0f, 7.0f});
  test::Workspace workspace(embedding_backward_workspace_bytes(2, 3));
  embedding_backward_host({.ids = test::view(ids),
                           .dx = dx.view(),
                           .dtable = dtable.view(),
                           .accumulate = true,
                           .workspace = workspace.view()},
                          *test::pool());
  EXPECT_EQ(dtable.values(), (std::vector<float>{5.0f, 1.0f + 2e-8f, 7.0f}));
}

}  // namespace
}  // namespace strata::kernels
