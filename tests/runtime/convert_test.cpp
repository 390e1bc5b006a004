#include <strata/runtime/convert.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Checks conversion to the nearest of all 2^16 values, ties to even, by comparing with each pair of
// neighbors.
template <class ToFloat, class FromFloat>
void expect_nearest(ToFloat widen, FromFloat narrow, std::uint16_t infinity) {
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const double low = widen(static_cast<std::uint16_t>(bits));
    const double high = bits + 1u == infinity ? low + (low - widen(static_cast<std::uint16_t>(bits - 1)))
                                              : widen(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const auto even = static_cast<std::uint16_t>(bits + (bits & 1u));
    ASSERT_EQ(narrow(static_cast<float>(low)), bits);
    ASSERT_EQ(narrow(middle), even) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, INFINITY)), bits + 1u) << bits;
    ASSERT_EQ(narrow(-middle), even | 0x8000u) << bits;
  }
}

TEST(ConvertTest, EveryBf16RoundTripsAndRoundingIsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(x))));
    } else {
      ASSERT_EQ(f32_to_bf16(x), bits);
    }
  }
  expect_nearest(bf16_to_f32, f32_to_bf16, 0x7F80);
}

TEST(ConvertTest, EveryF16RoundTripsAndRoundingIsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = f16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(x))));
    } else {
      ASSERT_EQ(f32_to_f16(x), bits);
    }
  }
  EXPECT_TRUE(same(f16_to_f32(0x3C01), 1.0f + 0x1p-10f));
  EXPECT_TRUE(same(f16_to_f32(0x0001), 0x1p-24f));
  EXPECT_TRUE(same(f16_to_f32(0xFC00), -INFINITY));
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  expect_nearest(f16_to_f32, f32_to_f16, 0x7C00);
}

TEST(ConvertTest, SpansConvertAndWrongSizesAreNamed) {
  const std::vector<float> values = {1.0f, -2.5f, 0.0f};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<std::byte> raw(3 * size_of(dtype));
    std::vector<float> back(3);
    must(narrow_from_f32(values, dtype, raw));
    must(widen_to_f32(dtype, raw, back));
    EXPECT_EQ(back, values) << to_string(dtype);
  }
  std::vector<std::byte> raw(5);
  std::vector<float> back(3);
  EXPECT_EQ(widen_to_f32(DType::bf16, raw, back).code(), Code::invalid);
  EXPECT_EQ(widen_to_f32(DType::i32, raw, back).code(), Code::unsupported);
}

TEST(ConvertTest, TheFirstNonFiniteValueIsFoundAnywhere) {
  std::vector<float> values(10000, -3.4e38f);
  EXPECT_EQ(first_non_finite({}), 0u);
  EXPECT_EQ(first_non_finite(values), values.size());
  values.back() = NAN;
  for (const std::size_t at : {9999u, 8192u, 4096u, 4095u, 1u, 0u}) {
    values[at] = at % 2 == 0 ? -INFINITY : NAN;
    EXPECT_EQ(first_non_finite(values), at);
  }
}

}  // namespace
}  // namespace strata
