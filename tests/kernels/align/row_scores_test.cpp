#include <strata/kernels/align/row_scores.h>

#include <strata/runtime/str.h>

#include "support/isas.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using test::reference::Vec;

struct ScoreCase {
  std::int64_t rows, k;
  DType dtype;
};
class RowScoresTest : public ::testing::TestWithParam<ScoreCase> {
 protected:
  const std::int64_t rows = GetParam().rows, k = GetParam().k;
  const DType dtype = GetParam().dtype;
  Tensor x{{rows, k}, Values(1).floats(rows*k), dtype}, weight{{1, k}, Values(2).floats(k), dtype},
      bias{{1}, Values(3).floats(1), dtype}, dscores{{rows}, Values(4).floats(rows)};
  test::Workspace workspace{row_scores_backward_workspace_bytes(rows, k)};

  RowScoresBackwardArgs backward(Tensor& dx, Tensor& dweight, TensorView dbias, bool accumulate) {
    return {.x = x.view(),
            .weight = weight.view(),
            .dscores = dscores.view(),
            .dx = dx.view(),
            .dweight = dweight.view(),
            .dbias = dbias,
            .accumulate_dweight = accumulate,
            .accumulate_dbias = accumulate,
            .workspace = workspace.view()};
  }
};

TEST_P(RowScoresTest, ScoresFollowTheF64Reference) {
  const auto n = static_cast<std::size_t>(rows), inner = static_cast<std::size_t>(k);
  for (const bool has_bias : {false, true}) {
    Tensor scores = Tensor::unwritten({rows});
    row_scores_host({x.view(), weight.view(), has_bias ? bias.view() : TensorView{}, scores.view()},
                    *test::pool());
    const Vec want =
        test::reference::linear_forward(test::widen(x.values()), test::widen(weight.values()),
                                        has_bias ? test::widen(bias.values()) : Vec{}, n, 1, inner);
    EXPECT_LE(test::relative_error(scores.values(), want), 2e-6);
  }
}

TEST_P(RowScoresTest, GradientsFollowTheF64ReferenceAndAreAddedUp) {
  const auto n = static_cast<std::size_t>(rows), inner = static_cast<std::size_t>(k);
  const auto want = test::reference::linear_backward(test::widen(x.values()), test::widen(weight.values()),
                                                     test::widen(dscores.values()), n, 1, inner);
  Tensor dx = Tensor::unwritten({rows, k}, dtype), dweight = Tensor::unwritten({1, k}),
         dbias = Tensor::unwritten({1}), rounded = Tensor::unwritten({1, k}, dtype),
         sum({1, k}, Values(5).floats(k)), sum_of_bias({1}, {0.25f});
  Vec added = test::widen(sum.values()), added_bias = {0.25};
  row_scores_backward_host(backward(dx, dweight, dbias.view(), false), *test::pool());
  row_scores_backward_host(backward(dx, rounded, {}, false), *test::pool());
  row_scores_backward_host(backward(dx, sum, sum_of_bias.view(), true), *test::pool());
  for (std::size_t i = 0; i < inner; ++i) added[i] += want.dw[i];
  added_bias[0] += want.db[0];
  const double rounding = dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 4e-3 : 5e-4;
  EXPECT_LE(test::relative_error(dx.values(), want.dx), rounding);
  EXPECT_LE(test::relative_error(dweight.values(), want.dw), 5e-6);
  EXPECT_LE(test::relative_error(rounded.values(), want.dw), 5e-6 + rounding);
  EXPECT_LE(test::relative_error(dbias.values(), want.db), 1e-5);
  EXPECT_LE(test::relative_error(sum.values(), added), 5e-6);
  EXPECT_LE(test::relative_error(sum_of_bias.values(), added_bias), 1e-5);
}

TEST_P(RowScoresTest, ThreadsAndInstructionSetsNeverChangeABit) {
  const auto run = [&](int threads) {
    Tensor scores = Tensor::unwritten({rows}), dx = Tensor::unwritten({rows, k}, dtype),
           dweight = Tensor::unwritten({1, k}), dbias = Tensor::unwritten({1});
    const auto pool = test::pool(threads);
    row_scores_host({x.view(), weight.view(), bias.view(), scores.view()}, *pool);
    row_scores_backward_host(backward(dx, dweight, dbias.view(), false), *pool);
    return test::joined({scores.values(), dx.values(), dweight.values(), dbias.values()});
  };
  const std::vector<float> want = run(1);
  for (const int threads : {2, 3}) EXPECT_EQ(test::differing_bits(run(threads), want), 0u);
  for (const simd::CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(run(1), want), 0u) << to_string(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RowScoresTest,
                         ::testing::Values(ScoreCase{1, 1, DType::f32}, ScoreCase{3, 17, DType::bf16},
                                           ScoreCase{700, 99, DType::f32}, ScoreCase{700, 99, DType::bf16},
                                           ScoreCase{700, 99, DType::f16}, ScoreCase{5000, 8, DType::f32}),
                         [](const auto& test) {
                           return str(to_string(test.param.dtype), "_", test.param.rows, "x", test.param.k);
                         });

TEST(RowScoresQueueTest, RefusesInconsistentOperands) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x({2, 3}, std::vector<float>(6)), weight({2, 3}, std::vector<float>(6)),
      scores = Tensor::unwritten({2});
  EXPECT_NE(row_scores_async(backend, stream, {x.view(), weight.view(), {}, scores.view()})
                .message()
                .find("weight is f32 [2, 3]; it must be f32 [1, 3]"),
            std::string_view::npos);
}

}  // namespace
}  // namespace strata::kernels
