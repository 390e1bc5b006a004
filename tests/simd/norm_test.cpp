#include <strata/simd/norm.h>

#include <limits>

#include <gtest/gtest.h>

#include <strata/runtime/convert.h>

#include "support/isas.h"
#include "support/numeric.h"

namespace strata::simd {
namespace {

std::vector<double> partials_of(std::span<const float> x) {
  std::vector<double> partials(
      static_cast<std::size_t>(norm_partial_count(static_cast<std::int64_t>(x.size()))));
  must(square_sum_partials(x, partials));
  return partials;
}

class NormSizes : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(NormSizes, PartialsAreTheSumsOfSquares) {
  const std::vector<float> x = test::Values(3).floats(GetParam());
  std::vector<double> want(static_cast<std::size_t>(norm_partial_count(GetParam())));
  for (std::size_t i = 0; i < x.size(); ++i)
    want[i / 4096] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  EXPECT_LE(test::relative_error(partials_of(x), want), 1e-14);
}

TEST_P(NormSizes, EveryInstructionSetGivesTheSameBits) {
  const std::vector<float> x = test::Values(4).floats(GetParam(), 1e3);
  const std::vector<double> want = partials_of(x);
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(partials_of(x), want), 0u) << to_string(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, NormSizes, ::testing::Values(0, 1, 17, 4095, 4096, 4097, 20001));

TEST(NormTest, ASliceAlignedToAPartialHasThePartialsOfTheWhole) {
  const std::vector<float> x = test::Values(5).floats(3 * 4096 + 5);
  const std::vector<double> whole = partials_of(x);
  const std::vector<double> tail = partials_of(std::span(x).subspan(2 * 4096));
  EXPECT_EQ(tail[0], whole[2]);
  EXPECT_EQ(tail[1], whole[3]);
}

TEST(NormTest, NaNAndInfinityReachTheSum) {
  std::vector<float> x(5000, 1.0f);
  x[4500] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(tree_sum(partials_of(x))));
  x[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(tree_sum(partials_of(x))));
}

TEST(NormTest, SquaresOfTheSmallestAndLargestFloatsSurvive) {
  const std::vector<float> x = {1e-45f, 3e38f};
  EXPECT_GT(partials_of(std::span(x).first(1))[0], 0.0);
  EXPECT_TRUE(std::isfinite(partials_of(x)[0]));
}

TEST(NormTest, AWrongNumberOfPartialsIsRefusedWithBothNumbers) {
  const std::vector<float> x(4097);
  std::vector<double> partials(1);
  const Status status = square_sum_partials(x, partials);
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("4097 elements have 2 partials, but 1"), std::string_view::npos)
      << status.message();
}

TEST(NormTest, TheTreeSplitsAtTheLargestPowerOfTwo) {
  const std::vector<double> x = {1e16, 1.0, 1.0, 1.0, 1.0};
  EXPECT_EQ(tree_sum(x), ((1e16 + 1.0) + (1.0 + 1.0)) + 1.0);
  EXPECT_EQ(tree_sum(std::span<const double>()), 0.0);
  EXPECT_EQ(tree_sum(std::vector<float>{1.5f, 2.5f, -1.0f}), 3.0);
}

class NormStorageTest : public ::testing::TestWithParam<DType> {};

TEST_P(NormStorageTest, PartialsAreThoseOfTheWidenedValues) {
  constexpr std::int64_t n = 4096 + 517;
  std::vector<float> x = test::Values(9).floats(n);
  std::vector<std::byte> raw(x.size() * size_of(GetParam()));
  must(narrow_from_f32(x, GetParam(), raw));
  must(widen_to_f32(GetParam(), raw, x));
  std::vector<double> want(2), got(2);
  must(square_sum_partials(x, want));
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    square_sum_partials(GetParam(), raw.data(), n, got.data());
    EXPECT_EQ(got, want) << to_string(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Storages, NormStorageTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::simd
