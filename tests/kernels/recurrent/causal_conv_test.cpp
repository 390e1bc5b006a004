#include <strata/kernels/recurrent/causal_conv.h>

#include <numeric>
#include <string>

#include <gmock/gmock.h>

#include "kernels/recurrent/conv_problem.h"
#include "support/isas.h"

namespace strata::kernels {
namespace {

using test::ConvProblem;
using test::Tensor;

class CausalConvTest : public ::testing::TestWithParam<DType> {
 protected:
  static DType dtype() { return GetParam(); }
  static double tolerance() { return dtype() == DType::f32 ? 1e-6 : dtype() == DType::f16 ? 5e-4 : 4e-3; }
  static void expect_reference(ConvProblem& problem) {
    const ConvProblem::Wanted want = problem.wanted();
    const ConvProblem::Results got = problem.run();
    EXPECT_LE(test::relative_error(got.y, want.y), tolerance());
    EXPECT_LE(test::relative_error(got.dx, want.dx), tolerance());
    EXPECT_LE(test::relative_error(got.dweight, want.dweight), 2e-6);
    EXPECT_LE(test::relative_error(got.dbias, want.dbias), 2e-6);
  }
};

TEST_P(CausalConvTest, FollowsTheF64Reference) {
  for (const std::int64_t rows : {1, 3, 70, 200})
    for (const std::int64_t taps : {2, 4, 8})
      for (const bool silu : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + " " + std::to_string(taps));
        ConvProblem problem(rows, 77, taps, dtype());
        problem.silu = silu;
        problem.has_bias = taps != 4;
        expect_reference(problem);
      }
}

TEST_P(CausalConvTest, ManyRowsAndSequencesFollowIt) {
  ConvProblem problem(4200, 17, 4, dtype(), 3);
  expect_reference(problem);
}

TEST_P(CausalConvTest, DocumentsEndIt) {
  ConvProblem problem(150, 70, 4, dtype());
  problem.doc_start.assign(150, 0);
  for (const int end : {1, 2, 65, 70, 71, 130})
    std::fill(problem.doc_start.begin() + end, problem.doc_start.end(), end);
  expect_reference(problem);
}

TEST_P(CausalConvTest, APackedDocumentHasTheBitsThatItHasAlone) {
  ConvProblem packed(150, 33, 4, dtype());
  packed.doc_start.assign(150, 0);
  std::fill(packed.doc_start.begin() + 67, packed.doc_start.end(), 67);
  const ConvProblem::Results got = packed.run();
  std::vector<float> y, dx;
  for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, 67}, {67, 83}}) {
    ConvProblem part(n, 33, 4, dtype());
    const auto cut = [&](const Tensor& of) {
      const std::vector<float> all = of.values();
      return Tensor({n, 33}, {all.begin() + first * 33, all.begin() + (first + n) * 33}, dtype());
    };
    part.x = cut(packed.x);
    part.dy = cut(packed.dy);
    y = test::joined({y, part.run().y});
    dx = test::joined({dx, part.run().dx});
  }
  EXPECT_EQ(test::differing_bits(got.y, y), 0u);
  EXPECT_EQ(test::differing_bits(got.dx, dx), 0u);
}

TEST_P(CausalConvTest, BitsDoNotDependOnThreadsOrTheInstructionSet) {
  ConvProblem problem(300, 77, 4, dtype());
  const std::vector<float> want = problem.run(1).all();
  for (const simd::CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(problem.run(3).all(), want), 0u) << to_string(name);
  }
}

TEST_P(CausalConvTest, CachedRowsHaveTheBitsOfTheForwardInAnyPieces) {
  ConvProblem problem(20, 33, 4, dtype());
  const std::vector<float> want = problem.run().y;
  Tensor state = Tensor::unwritten({2, 3, 33}, dtype());
  for (const std::int64_t piece : {1, 2, 3, 5, 20}) {
    std::vector<float> got;
    for (std::int64_t first = 0; first < 20; first += piece) {
      const std::int64_t n = std::min(piece, 20 - first);
      const std::vector<float> all = problem.x.values();
      Tensor x({n, 33}, {all.begin() + first * 33, all.begin() + (first + n) * 33}, dtype()),
          y = Tensor::unwritten({n, 33}, dtype());
      std::vector<std::int32_t> positions(static_cast<std::size_t>(n)), slots(positions.size(), 1);
      std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
      cached_causal_conv_host({x.view(), problem.weight.view(), problem.bias.view(), test::view(positions),
                               test::view(slots), state.view(), y.view(), true},
                              *test::pool());
      got = test::joined({got, y.values()});
    }
    EXPECT_EQ(test::differing_bits(got, want), 0u) << piece;
  }
}

TEST_P(CausalConvTest, ARowOfNoSequenceIsZeroAndChangesNoState) {
  Tensor x({1, 3}, {1, 2, 3}, dtype()), weight({3, 2}, {1, 1, 1, 1, 1, 1}, dtype()),
      state({1, 1, 3}, {4, 5, 6}, dtype()), y = Tensor::unwritten({1, 3}, dtype());
  std::vector<std::int32_t> positions = {1}, slots = {-1};
  cached_causal_conv_host(
      {x.view(), weight.view(), {}, test::view(positions), test::view(slots), state.view(), y.view(), false},
      *test::pool());
  EXPECT_EQ(y.values(), std::vector<float>({0, 0, 0}));
  EXPECT_EQ(state.values(), std::vector<float>({4, 5, 6}));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CausalConvTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(CausalConvCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  ConvProblem problem(12, 5, 4, DType::f32);
  Tensor y = Tensor::unwritten({12, 5}), wide({5, 9}, std::vector<float>(45));
  const auto message = [&](const auto& change) {
    CausalConvForwardArgs args = problem.forward_args(y);
    change(args);
    return std::string(causal_conv_forward_async(backend, stream, args).message());
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message([](CausalConvForwardArgs&) {}), "ok");
  EXPECT_THAT(message([&](CausalConvForwardArgs& a) { a.weight = wide.view(); }),
              HasSubstr("weight has 9 taps; it must have 2 to 8"));
  EXPECT_THAT(message([](CausalConvForwardArgs& a) { a.seq = 5; }), HasSubstr("12 rows in sequences of 5"));
  EXPECT_THAT(message([](CausalConvForwardArgs& a) { a.bias = a.x; }),
              HasSubstr("bias is f32 [12, 5]; it must be f32 with 5 elements"));
}

}  // namespace
}  // namespace strata::kernels
