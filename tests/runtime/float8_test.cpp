#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <strata/runtime/float8.h>
#include <strata/runtime/rng.h>

namespace strata {
namespace {

struct Format {
  const char* name;
  std::uint8_t (*encode)(float) noexcept;
  float (*decode)(std::uint8_t) noexcept;
  int mantissa, bias;
  std::uint8_t max_code;  // the code of the largest value
  float largest;
};
void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

class Float8Test : public ::testing::TestWithParam<Format> {
 protected:
  // The value of a code, by the definition of the format.
  double value_of(int code) const {
    const int exponent = (code & 0x7F) >> GetParam().mantissa,
              fraction = code & ((1 << GetParam().mantissa) - 1);
    const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - GetParam().bias - GetParam().mantissa)
                                           : std::ldexp((1 << GetParam().mantissa) + fraction,
                                                        exponent - GetParam().bias - GetParam().mantissa);
    return code >= 0x80 ? -magnitude : magnitude;
  }
  // The code whose value is nearest, of either sign; of two equally near, the even one.
  std::uint8_t nearest(float x) const {
    int best = 0;
    if (std::abs(x) > GetParam().largest) best = GetParam().max_code;
    for (int code = best; code <= GetParam().max_code; ++code) {
      const double now = std::abs(value_of(code) - std::abs(static_cast<double>(x)));
      const double before = std::abs(value_of(best) - std::abs(static_cast<double>(x)));
      if (now < before || (now == before && code % 2 == 0)) best = code;
    }
    return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
  }
};

TEST_P(Float8Test, EveryCodeHasItsValueAndRoundTrips) {
  for (int code = 0; code < 256; ++code) {
    const float value = GetParam().decode(static_cast<std::uint8_t>(code));
    if ((code & 0x7F) > GetParam().max_code) {
      EXPECT_FALSE(std::isfinite(value)) << code;
      continue;
    }
    EXPECT_EQ(value, value_of(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    EXPECT_EQ(GetParam().encode(value), code);
  }
  EXPECT_EQ(GetParam().decode(GetParam().max_code), GetParam().largest);
}

TEST_P(Float8Test, RoundsToTheNearestAndTiesToEven) {
  for (int code = 0; code < GetParam().max_code; ++code) {
    const auto low = static_cast<float>(value_of(code)), high = static_cast<float>(value_of(code + 1));
    const float middle = (low + high) / 2;
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, high)})
      for (const float of_sign : {x, -x}) EXPECT_EQ(GetParam().encode(of_sign), nearest(of_sign)) << of_sign;
  }
  const Rng rng(3, 7);
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint32_t>(rng.below(i, std::uint64_t{1} << 32));
    const float x = __builtin_bit_cast(float, bits);
    if (std::isnan(x)) continue;
    EXPECT_EQ(GetParam().encode(x), nearest(x)) << x;
  }
}

TEST_P(Float8Test, LargeValuesSaturateAndNaNStaysNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float x : {GetParam().largest * 1.01f, GetParam().largest * 2, 3e38f, kInf}) {
    EXPECT_EQ(GetParam().encode(x), GetParam().max_code);
    EXPECT_EQ(GetParam().encode(-x), GetParam().max_code | 0x80);
  }
  EXPECT_TRUE(std::isnan(GetParam().decode(GetParam().encode(std::nanf("")))));
  EXPECT_EQ(GetParam().encode(-0.0f), 0x80);
  EXPECT_EQ(GetParam().encode(std::numeric_limits<float>::denorm_min()), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Float8Test,
    ::testing::Values(Format{"e4m3", [](float x) noexcept { return f32_to_e4m3(x); },
                             [](std::uint8_t code) noexcept { return e4m3_to_f32(code); }, 3, 7, 0x7E,
                             kMaxE4M3},
                      Format{"e5m2", [](float x) noexcept { return f32_to_e5m2(x); },
                             [](std::uint8_t code) noexcept { return e5m2_to_f32(code); }, 2, 15, 0x7B,
                             kMaxE5M2}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace strata
