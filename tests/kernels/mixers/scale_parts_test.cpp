#include <strata/kernels/mixers/scale_parts.h>

#include <gmock/gmock.h>

#include "elementwise/column_factor.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

constexpr ColumnScales kScales = {3, {4, 1, 37}, {0.3f, 1.0f, -2.5f}};

TEST(ScalePartsTest, EveryPartHasItsFactorAndRoundsOnce) {
  const auto x = test::Values(1).floats(500 * 42, 3.0);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensor in({500, 42}, x, dtype), y = Tensor::unwritten({500, 42}, dtype);
    scale_parts_host({in.view(), y.view(), kScales}, *test::pool());
    std::vector<float> want = in.values();
    for (std::size_t i = 0; i < want.size(); ++i) want[i] *= i % 42 < 4 ? 0.3f : i % 42 == 4 ? 1.0f : -2.5f;
    EXPECT_EQ(y.values(), Tensor({500, 42}, want, dtype).values());
    scale_parts_host({in.view(), in.view(), kScales}, *test::pool());
    EXPECT_EQ(in.values(), y.values());
  }
}

// The arithmetic of the device's kernel.
TEST(ScalePartsTest, AColumnOfTheDeviceHasTheFactorOfTheHost) {
  Tensor ones({1, 42}, std::vector<float>(42, 1.0f));
  scale_parts_host({ones.view(), ones.view(), kScales}, *test::pool());
  const detail::PartFactors factors(kScales);
  for (std::int64_t column = 0; column < 42; ++column)
    EXPECT_EQ(factors.of(column), ones.values()[static_cast<std::size_t>(column)]) << column;
}

TEST(ScalePartsTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x({2, 42}, std::vector<float>(84));
  const auto message = [&](const ColumnScales& scales) {
    return std::string(scale_parts_async(backend, stream, {x.view(), x.view(), scales}).message());
  };
  EXPECT_EQ(message(kScales), "ok");
  EXPECT_THAT(message({2, {4, 1}, {1, 1}}),
              ::testing::HasSubstr("x is f32 [2, 42]; it must be f32, 2 rows of 5"));
  EXPECT_THAT(message({9, {}, {}}), ::testing::HasSubstr("x has 9 parts; there must be 1 to 8"));
  EXPECT_THAT(message({2, {42, 0}, {1, 1}}), ::testing::HasSubstr("each with a column at least"));
}

}  // namespace
}  // namespace strata::kernels
