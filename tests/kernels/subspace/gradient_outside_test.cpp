#include <strata/kernels/subspace.h>

#include <gmock/gmock.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using ::testing::HasSubstr;

// Two parts with rows between them that have no basis.
const LoraParts kOutsideParts = {{{{0, 20, 3}, {25, 11, 5}}}, 2};
constexpr std::int64_t kOutsideRows = 40, kOutsideColumns = 1500;

std::int64_t projected_elems(SubspaceSide side) {
  return side == SubspaceSide::right ? 20 * 3 + 11 * 5 : 8 * kOutsideColumns;
}

float outside(TensorView g, TensorView r, SubspaceSide side, int threads = 2) {
  Tensor rho = Tensor::unwritten({1});
  test::Workspace space(gradient_outside_workspace_bytes(kOutsideParts, kOutsideColumns, side));
  gradient_outside_host({g, r, rho.view(), space.view(), kOutsideParts, side}, *test::pool(threads));
  return rho.values()[0];
}

class GradientOutsideTest : public ::testing::TestWithParam<std::tuple<SubspaceSide, DType>> {
 protected:
  SubspaceSide side() const { return std::get<0>(GetParam()); }
  Tensor gradient(double scale = 1.0) const {
    return Tensor({kOutsideRows, kOutsideColumns}, Values(1).floats(kOutsideRows * kOutsideColumns, scale),
                  std::get<1>(GetParam()));
  }
  Tensor projected(double scale) const {
    return Tensor({projected_elems(side())}, Values(2).floats(projected_elems(side()), scale));
  }
};

TEST_P(GradientOutsideTest, FollowsTheF64Reference) {
  Tensor g = gradient(), r = projected(0.5);
  double want = 0;
  const std::vector<float> values = g.values();
  for (const LoraPart& part : kOutsideParts.all())
    for (std::int64_t i = part.first_row * kOutsideColumns;
         i < (part.first_row + part.rows) * kOutsideColumns; ++i) {
      const double x = values[static_cast<std::size_t>(i)];
      want += x * x;
    }
  for (const float x : r.values()) want -= static_cast<double>(x) * static_cast<double>(x);
  const double got = outside(g.view(), r.view(), side());
  EXPECT_NEAR(got, std::sqrt(want), 1e-6 * std::sqrt(want));
  EXPECT_EQ(outside(g.view(), r.view(), side(), 1), got);
}

TEST_P(GradientOutsideTest, WhereRoundingMakesTheSubspaceTheWholeNothingIsOutside) {
  Tensor g = gradient(1e-3), r = projected(8);
  EXPECT_EQ(outside(g.view(), r.view(), side()), 0.0f);
}

TEST_P(GradientOutsideTest, WhatIsNotFiniteStaysSo) {
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    std::vector<float> values = gradient().values();
    values[30 * kOutsideColumns + 7] = bad;
    Tensor g({kOutsideRows, kOutsideColumns}, values, std::get<1>(GetParam())), r = projected(0.5);
    EXPECT_FALSE(std::isfinite(outside(g.view(), r.view(), side())));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GradientOutsideTest,
                         ::testing::Combine(::testing::Values(SubspaceSide::right, SubspaceSide::left),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)));

TEST(GradientOutsideTest, ArgumentsThatDoNotFitAreRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor g({8, 5}, std::vector<float>(40)), r({16}, std::vector<float>(16)), rho({1}, {0});
  test::Workspace space(1 << 10), small(8);
  const auto refused = [&](const LoraParts& parts, SubspaceSide side, BufferView workspace) {
    return std::string(
        gradient_outside_async(backend, stream, {g.view(), r.view(), rho.view(), workspace, parts, side})
            .message());
  };
  const LoraParts parts = {{{{0, 8, 2}}}, 1};
  EXPECT_EQ(refused(parts, SubspaceSide::right, space.view()), "ok");
  EXPECT_THAT(refused(parts, SubspaceSide::left, space.view()), HasSubstr("with 10 elements"));
  EXPECT_THAT(refused({{{{0, 9, 2}}}, 1}, SubspaceSide::right, space.view()), HasSubstr("rows 0 to 9 of 8"));
  EXPECT_THAT(refused(parts, SubspaceSide::right, small.view()), HasSubstr("workspace has 8 bytes"));
}

}  // namespace
}  // namespace strata::kernels
