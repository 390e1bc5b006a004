#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include <strata/cpuopt/math/element.h>

#include "optimizer_cases.h"
#include "support/isas.h"

namespace strata::cpuopt::test {
namespace {

constexpr std::int64_t kElems = 4096 + 300;

struct Int8 {
  explicit Int8(std::int64_t n)
      : quantized(static_cast<std::size_t>(n)), scales(static_cast<std::size_t>((n + 255) / 256)) {}
  std::vector<std::uint8_t> quantized;
  std::vector<float> scales;
  Moment view() { return {quantized.data(), scales.data()}; }
};

std::vector<float> spread(MomentKind kind, std::uint64_t seed) {
  Values values(seed);
  std::vector<float> x(kElems);
  for (float& value : x) {
    value = static_cast<float>(values.next() * std::pow(10.0, 4.0 * values.next() - 6.0));
    if (kind == MomentKind::second) value = std::abs(value);
  }
  return x;
}

class DynamicQuant : public ::testing::TestWithParam<MomentKind> {};

TEST_P(DynamicQuant, EveryQuantizedValueRoundTrips) {
  const bool first = GetParam() == MomentKind::first;
  std::set<float> values;
  for (int byte = 0; byte < 256; ++byte) {
    const auto stored = static_cast<std::uint8_t>(byte);
    if (first && byte == 0x80) continue;  // -128 is not used
    const float value = first ? dequantize_moment_byte<MomentKind::first>(stored, 1.0f)
                              : dequantize_moment_byte<MomentKind::second>(stored, 1.0f);
    EXPECT_TRUE(values.insert(value).second) << byte;
    const float q = first ? quantize_moment<MomentKind::first>(value, 1.0f, 1.0f)
                          : quantize_moment<MomentKind::second>(value, 1.0f, 1.0f);
    EXPECT_NEAR(q, first ? static_cast<float>(static_cast<std::int8_t>(stored)) : static_cast<float>(byte),
                1e-3);
  }
  EXPECT_EQ(*values.rbegin(), 1.0f);
  EXPECT_EQ(*values.begin(), first ? -1.0f : 0.0f);
}

TEST_P(DynamicQuant, DequantizedMomentsQuantizeToTheSameValues) {
  const std::vector<float> x = spread(GetParam(), 5);
  std::vector<float> decoded(x.size());
  Int8 once(kElems), twice(kElems);
  encode_moment_stochastic(StateFormat::int8, GetParam(), x, once.view(), {7, 9}, 0);
  decode_moment(StateFormat::int8, GetParam(), once.view(), decoded);
  encode_moment(StateFormat::int8, GetParam(), decoded, twice.view());
  EXPECT_EQ(once.quantized, twice.quantized);
  EXPECT_EQ(once.scales, twice.scales);
}

TEST_P(DynamicQuant, TheBlockMaximumIsExactAndTheRestWithinHalfAStep) {
  const std::vector<float> x = spread(GetParam(), 6);
  Int8 stored(kElems);
  std::vector<float> decoded(x.size());
  encode_moment(StateFormat::int8, GetParam(), x, stored.view());
  decode_moment(StateFormat::int8, GetParam(), stored.view(), decoded);
  for (std::size_t block = 0; block < x.size(); block += 256) {
    const std::size_t end = std::min(block + 256, x.size());
    float max_magnitude = 0;
    for (std::size_t i = block; i < end; ++i) max_magnitude = std::max(max_magnitude, std::abs(x[i]));
    EXPECT_EQ(stored.scales[block / 256], max_magnitude);
    for (std::size_t i = block; i < end; ++i) {
      if (std::abs(x[i]) == max_magnitude) {
        EXPECT_EQ(decoded[i], x[i]);
      }
      // The largest step is that of the last decade, 0.9 / 64 (unsigned: 0.9 / 128); rounding to nearest has
      // an error of at most half a step.
      EXPECT_NEAR(decoded[i], x[i],
                  (GetParam() == MomentKind::first ? 0.9 / 64 : 0.9 / 128) / 2 * max_magnitude + 1e-12);
      if (GetParam() == MomentKind::second && x[i] > 0) {
        EXPECT_GT(decoded[i], 0.0f);
      }
    }
  }
}

// This must hold for every random number including the last, and in particular for a block's largest value.
TEST(DynamicQuantRounding, AnExactValueStaysItselfWhateverNoiseIsDrawn) {
  for (std::uint32_t random = 0; random < 65536; ++random)
    for (int byte = 0; byte < 256; ++byte) {
      const float rounded =
          (static_cast<float>(byte) + noise_offset(static_cast<float>(random >> 1))) + kRoundMagic;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(rounded) & 0xFFu, static_cast<std::uint32_t>(byte)) << random;
    }
  const RoundingNoise noise = rounding_noise(1, 2, 3, 0);
  std::uint32_t last = 0;
  while (moment_noise<MomentKind::second>(noise, last) != 0xFFFF) ++last;
  EXPECT_EQ(quantize_moment_stochastic<MomentKind::second>(2.0f, 2.0f, 0xFFFF), 255);
  for (const CpuIsa name : supported_isas()) {
    const IsaScope isa(name);
    Int8 stored(1);
    encode_moment_stochastic(StateFormat::int8, MomentKind::second, std::vector<float>{2.0f}, stored.view(),
                             noise, last);
    EXPECT_EQ(stored.quantized[0], 255) << to_string(name);
  }
}

TEST_P(DynamicQuant, TheMeanOfManyRoundingsIsTheValue) {
  std::vector<float> x = spread(GetParam(), 8);
  std::fill(x.begin() + 1, x.begin() + 256, 0.01234f);
  x[0] = 1.0f;
  double sum = 0;
  Int8 stored(kElems);
  std::vector<float> decoded(x.size());
  for (std::uint32_t draw = 0; draw < 200; ++draw) {
    encode_moment_stochastic(StateFormat::int8, GetParam(), x, stored.view(), rounding_noise(1, 2, draw, 0),
                             0);
    decode_moment(StateFormat::int8, GetParam(), stored.view(), decoded);
    for (std::size_t i = 1; i < 256; ++i) sum += static_cast<double>(decoded[i]);
  }
  // A step is 0.1 * 0.9 / 32 at this value; 51,000 draws have a standard error of 1/450 of half a step.
  EXPECT_NEAR(sum / (200.0 * 255.0), 0.01234, 0.1 * 0.9 / 32 / 2 / 450 * 5);
}

TEST_P(DynamicQuant, EveryInstructionSetAndTheElementFunctionsGiveTheSameBytes) {
  std::vector<float> x = spread(GetParam(), 9);
  std::fill(x.begin() + 512, x.begin() + 768, 0.0f);     // a block of zeros
  std::fill(x.begin() + 768, x.begin() + 1024, 1e-40f);  // a block of subnormals
  x[1100] = std::numeric_limits<float>::infinity();      // a block with an infinity and one with a NaN
  x[1400] = std::numeric_limits<float>::quiet_NaN();
  const RoundingNoise noise = rounding_noise(3, 1, 4, 0);
  constexpr std::uint32_t kIndex = 4096;
  Int8 by_element(kElems);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 256 == 0) {
      std::uint32_t max_magnitude = 0;
      for (std::size_t j = i; j < std::min(i + 256, x.size()); ++j)
        max_magnitude = std::max(max_magnitude, std::bit_cast<std::uint32_t>(x[j]) & 0x7FFFFFFFu);
      by_element.scales[i / 256] = moment_scale(max_magnitude);
    }
    const float scale = by_element.scales[i / 256];
    const auto index = kIndex + static_cast<std::uint32_t>(i);
    by_element.quantized[i] = GetParam() == MomentKind::first
                                  ? quantize_moment_stochastic<MomentKind::first>(
                                        x[i], scale, moment_noise<MomentKind::first>(noise, index))
                                  : quantize_moment_stochastic<MomentKind::second>(
                                        x[i], scale, moment_noise<MomentKind::second>(noise, index));
  }
  for (const CpuIsa name : supported_isas()) {
    const IsaScope isa(name);
    Int8 stored(kElems);
    std::vector<float> decoded(x.size()), want(x.size());
    encode_moment_stochastic(StateFormat::int8, GetParam(), x, stored.view(), noise, kIndex);
    EXPECT_EQ(stored.quantized, by_element.quantized) << to_string(name);
    EXPECT_EQ(differing_bits(stored.scales, by_element.scales), 0u) << to_string(name);
    decode_moment(StateFormat::int8, GetParam(), stored.view(), decoded);
    for (std::size_t i = 0; i < x.size(); ++i)
      want[i] = GetParam() == MomentKind::first
                    ? dequantize_moment_byte<MomentKind::first>(stored.quantized[i], stored.scales[i / 256])
                    : dequantize_moment_byte<MomentKind::second>(stored.quantized[i], stored.scales[i / 256]);
    EXPECT_EQ(differing_bits(decoded, want), 0u) << to_string(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Moments, DynamicQuant, ::testing::Values(MomentKind::first, MomentKind::second),
                         [](const auto& test) {
                           return test.param == MomentKind::first ? "first" : "second";
                         });

TEST(Bf16MomentsTest, EveryInstructionSetAndTheElementFunctionsGiveTheSameBits) {
  std::vector<float> x = spread(MomentKind::first, 11);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[4] = -std::numeric_limits<float>::infinity();
  x[5] = std::bit_cast<float>(0xFFFFFFFFu);
  x[6] = 3.4e38f;
  const RoundingNoise noise = rounding_noise(3, 1, 4, 0);
  for (const MomentKind kind : {MomentKind::first, MomentKind::second})
    for (const CpuIsa name : supported_isas()) {
      const IsaScope isa(name);
      std::vector<std::uint16_t> stored(x.size());
      encode_moment_stochastic(StateFormat::bf16, kind, x, {stored.data(), nullptr}, noise, 100);
      for (std::uint32_t i = 0; i < x.size(); ++i) {
        const std::uint32_t random = kind == MomentKind::first
                                         ? moment_noise<MomentKind::first>(noise, 100 + i)
                                         : moment_noise<MomentKind::second>(noise, 100 + i);
        ASSERT_EQ(stored[i], round_to_bf16(x[i], random).bits) << i << ", " << to_string(name);
      }
    }
}

TEST(Bf16MomentsTest, TheMeanOfManyRoundingsIsTheValueAndExactValuesStay) {
  const float between = std::bit_cast<float>(0x3F802000u);  // an eighth of the way to the next bf16
  const std::vector<float> x = {between, std::bit_cast<float>(0x3F810000u)};
  double sum = 0;
  constexpr int kDraws = 40000;
  for (int step = 0; step < kDraws; ++step) {
    std::vector<std::uint16_t> stored(2);
    encode_moment_stochastic(StateFormat::bf16, MomentKind::first, x, {stored.data(), nullptr},
                             rounding_noise(5, 0, step, 0), 0);
    sum += stored[0] == 0x3F81 ? 1 : 0;
    ASSERT_EQ(stored[1], 0x3F81);
  }
  EXPECT_NEAR(sum / kDraws, 0.125, 5 * std::sqrt(0.125 * 0.875 / kDraws));
}

// Bits must be fair over elements and over steps, and uncorrelated between the two moments of one element.
TEST(RoundingNoiseTest, BitsAreFairAndDoNotRepeatAcrossElementsStepsTensorsOrMoments) {
  constexpr std::uint32_t kDraws = 1 << 16;
  const auto correlation = [&](auto a, auto b) {
    double sum = 0;
    for (std::uint32_t i = 0; i < kDraws; ++i)
      sum += (static_cast<double>(a(i)) - 32767.5) * (static_cast<double>(b(i)) - 32767.5);
    return sum / kDraws / (65536.0 * 65536.0 / 12.0);
  };
  const auto element = [](std::uint32_t i) {
    return moment_noise<MomentKind::first>(rounding_noise(1, 2, 3, 0), i);
  };
  const auto next = [](std::uint32_t i) {
    return moment_noise<MomentKind::first>(rounding_noise(1, 2, 3, 0), i + 1);
  };
  const auto second = [](std::uint32_t i) {
    return moment_noise<MomentKind::second>(rounding_noise(1, 2, 3, 0), i);
  };
  const auto later = [](std::uint32_t i) {
    return moment_noise<MomentKind::first>(rounding_noise(1, 2, 4, 0), i);
  };
  const auto tensor = [](std::uint32_t i) {
    return moment_noise<MomentKind::first>(rounding_noise(1, 3, 3, 0), i);
  };
  const auto step = [](std::uint32_t i) {
    return moment_noise<MomentKind::first>(rounding_noise(1, 2, i, 0), 77);
  };
  const auto step_on = [](std::uint32_t i) {
    return moment_noise<MomentKind::first>(rounding_noise(1, 2, i + 1, 0), 77);
  };
  const double bound = 5 / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(correlation(element, element), 1.0, 0.02);
  EXPECT_NEAR(correlation(element, next), 0.0, bound);
  EXPECT_NEAR(correlation(element, second), 0.0, bound);
  EXPECT_NEAR(correlation(element, later), 0.0, bound);
  EXPECT_NEAR(correlation(element, tensor), 0.0, bound);
  EXPECT_NEAR(correlation(step, step_on), 0.0, bound);
  for (int bit = 0; bit < 16; ++bit) {
    double ones = 0;
    for (std::uint32_t i = 0; i < kDraws; ++i) ones += element(i) >> bit & 1;
    EXPECT_NEAR(ones / kDraws, 0.5, bound / 2) << bit;
  }
}

TEST(StateFormatTest, BytesPerParameterAreThoseStated) {
  constexpr std::int64_t n = 1 << 16;
  const std::vector<float> masters(n);
  const auto bytes = [&](MasterLayout layout, StateFormat states) {
    return static_cast<double>(StoredTensor({}, layout, states, masters).state_bytes()) / n;
  };
  EXPECT_EQ(bytes(MasterLayout::bf16_split, StateFormat::fp32), 12.0);
  EXPECT_EQ(bytes(MasterLayout::f32, StateFormat::fp32), 12.0);
  EXPECT_EQ(bytes(MasterLayout::f16_shadow, StateFormat::fp32), 14.0);
  EXPECT_EQ(bytes(MasterLayout::bf16_split, StateFormat::bf16), 8.0);
  EXPECT_EQ(bytes(MasterLayout::bf16_split, StateFormat::int8), 6.0 + 2 * 4.0 / 256);
  EXPECT_EQ(moment_bytes(StateFormat::int8, n), n + n / 256 * 4u);
}

}  // namespace
}  // namespace strata::cpuopt::test
