// The table of formats: what every code of values and scales stands for, and the formats whose blocks begin
// with each row.
#include <strata/kernels/weight_quant.h>

#include <cmath>
#include <limits>

#include <strata/runtime/float8.h>

#include "cuda/quant/weight_codes.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Values;
using enum WeightFormat;

TEST(WeightFormatsTest, TheTableHasEveryFormatAtItsPlaceAndFindsItByName) {
  for (std::size_t i = 0; i < kWeightFormats.size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(kWeightFormats[i].format), i);
  for (const WeightFormat format : kQuantizedFormats)
    EXPECT_EQ(weight_format_named(to_string(format)), format);
  EXPECT_EQ(kQuantizedFormats.size() + 1, kWeightFormats.size());
  EXPECT_EQ(weight_format_named("fp8"), fp8_block);
  EXPECT_FALSE(weight_format_named("").has_value());
  EXPECT_FALSE(weight_format_named("full").has_value());
}

// OCP Microscaling Formats 1.0, tables 1 and 5: S EE M with bias 1.
TEST(WeightFormatsTest, EveryCodeOfE2m1HasItsValue) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const detail::CodeLevels levels = detail::code_levels(ValueType::e2m1);
  for (int code = 0; code < 16; ++code) {
    const float magnitude = magnitudes[code % 8];
    EXPECT_EQ(levels.of[code], code < 8 ? magnitude : -magnitude) << code;
    EXPECT_EQ(std::signbit(levels.of[code]), code >= 8) << code;
    EXPECT_EQ(detail::f32_to_e2m1(levels.of[code]), code);
  }
}

TEST(WeightFormatsTest, E2m1RoundsToTheNearestTiesToEvenAndSaturates) {
  const detail::CodeLevels levels = detail::code_levels(ValueType::e2m1);
  for (int code = 0; code < 7; ++code) {
    const float middle = (levels.of[code] + levels.of[code + 1]) / 2;
    EXPECT_EQ(detail::f32_to_e2m1(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(detail::f32_to_e2m1(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(detail::f32_to_e2m1(-std::nextafter(middle, 9.0f)), 8 + code + 1);
  }
  EXPECT_EQ(detail::f32_to_e2m1(7.0f), 7);
  EXPECT_EQ(detail::f32_to_e2m1(-std::numeric_limits<float>::infinity()), 15);
  EXPECT_EQ(detail::f32_to_e2m1(std::nanf("")), 0);
}

// S EEEE MMM with bias 7: no infinities, and one NaN of either sign (Micikevicius et al. 2022).
TEST(WeightFormatsTest, EveryCodeOfE4m3HasItsValue) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_f32(static_cast<std::uint8_t>(code));
    const int exponent = code >> 3 & 15, fraction = code & 7;
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction / 8.0, -6) : std::ldexp(1 + fraction / 8.0, exponent - 7);
    EXPECT_EQ(value, code < 128 ? magnitude : -magnitude) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
}

TEST(WeightFormatsTest, EveryCodeOfE8m0IsAPowerOfTwoAndTheLastOneNaN) {
  for (int code = 0; code < 255; ++code) {
    const float value = detail::e8m0_to_f32(static_cast<std::uint8_t>(code));
    EXPECT_EQ(value, std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(detail::f32_to_e8m0(value), code);
  }
  EXPECT_TRUE(std::isnan(detail::e8m0_to_f32(255)));
  EXPECT_EQ(detail::f32_to_e8m0(std::nanf("")), 255);
}

TEST(WeightFormatsTest, Int4CodesAreDistancesFromTheLeast) {
  const detail::CodeLevels levels = detail::code_levels(ValueType::int4);
  for (int code = 0; code < 16; ++code) EXPECT_EQ(levels.of[code], code - 8);
}

std::vector<std::byte> with_codes(const QuantizedMatrix& matrix) {
  return std::vector<std::byte>(static_cast<std::size_t>(matrix.bytes()));
}

// All codes with all scales, through the functions that read matrices: a row for each scale.
TEST(WeightFormatsTest, EveryValueOfMxfp4IsItsCodeTimesItsScale) {
  const QuantizedMatrix matrix = {mxfp4, 32, {256}};
  const QuantizedPart part = matrix.part(0);
  std::vector<std::byte> bytes = with_codes(matrix);
  for (std::int64_t row = 0; row < 256; ++row) {
    for (std::int64_t i = 0; i < 16; ++i)  // the codes 0 to 15, first in the lower half, and again
      bytes[static_cast<std::size_t>(part.values + row * 16 + i)] =
          static_cast<std::byte>((2 * i) % 16 | ((2 * i + 1) % 16) << 4);
    bytes[static_cast<std::size_t>(part.scales + row)] = static_cast<std::byte>(row);
  }
  std::vector<float> got(256 * 32);
  dequantize_matrix(matrix, bytes, 0, got);
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t code = i % 16, scale = i / 32;
    const double sign = code < 8 ? 1 : -1;
    if (scale == 255)
      EXPECT_TRUE(std::isnan(got[i])) << i;
    else  // beyond the range of f32 it is infinite
      EXPECT_EQ(got[i],
                static_cast<float>(sign * std::ldexp(magnitudes[code % 8], static_cast<int>(scale) - 127)))
          << i;
  }
}

TEST(WeightFormatsTest, EveryValueOfFp8IsItsCodeTimesItsTilesScale) {
  const QuantizedMatrix matrix = {fp8_block, 256 + 24, {130}};
  const QuantizedPart part = matrix.part(0);
  EXPECT_EQ(part.blocks, 2 * 3);
  std::vector<std::byte> bytes = with_codes(matrix);
  for (std::int64_t i = 0; i < part.elems; ++i)
    bytes[static_cast<std::size_t>(part.values + i)] = static_cast<std::byte>(i % 256);
  auto* const scales = reinterpret_cast<float*>(bytes.data() + part.scales);
  for (int i = 0; i < 6; ++i) scales[i] = 0.37f + static_cast<float>(i);
  std::vector<float> got(static_cast<std::size_t>(part.elems));
  dequantize_matrix(matrix, bytes, 0, got);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t row = i / 280, column = i % 280;
    const float want = e4m3_to_f32(static_cast<std::uint8_t>(i % 256)) * scales[row / 128 * 3 + column / 128];
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(got[i])) << i;
    else
      EXPECT_EQ(got[i], want) << i;
  }
}

TEST(WeightFormatsTest, EveryValueOfInt4IsItsIntegerTimesItsScale) {
  const QuantizedMatrix matrix = {int4, 64, {3}};
  const QuantizedPart part = matrix.part(0);
  std::vector<std::byte> bytes = with_codes(matrix);
  for (std::int64_t i = 0; i < part.value_bytes; ++i)
    bytes[static_cast<std::size_t>(part.values + i)] = static_cast<std::byte>(i * 37 % 256);
  auto* const scales = reinterpret_cast<std::uint16_t*>(bytes.data() + part.scales);
  for (int i = 0; i < 6; ++i) scales[i] = f32_to_bf16(0.01f * static_cast<float>(i + 1));
  std::vector<float> got(static_cast<std::size_t>(part.elems));
  dequantize_matrix(matrix, bytes, 0, got);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto byte = static_cast<unsigned>(bytes[i / 2]);
    const int code = static_cast<int>(i % 2 == 0 ? byte & 15 : byte >> 4);
    EXPECT_EQ(got[i], static_cast<float>(code - 8) * bf16_to_f32(scales[i / 32])) << i;
  }
}

// gpt-oss: blocks [rows, K / 32, 16] and scales [rows, K / 32]; DeepSeek-V3: a scale for each 128 x 128;
// compressed-tensors: eight values in an i32 [rows, K / 8] and scales [rows, K / 32].
TEST(WeightFormatsTest, SectionsHaveTheSizesOfTheFiles) {
  const QuantizedPart mx = QuantizedMatrix{mxfp4, 2880, {5760}}.part(0);
  EXPECT_EQ(mx.value_bytes, 5760 * 2880 / 2);
  EXPECT_EQ(mx.scales, mx.value_bytes);
  EXPECT_EQ(mx.end, 5760 * 2880 / 2 + 5760 * 90);  // 0.53125 bytes a value
  const QuantizedPart fp8 = QuantizedMatrix{fp8_block, 7168, {1536}}.part(0);
  EXPECT_EQ(fp8.value_bytes, 1536 * 7168);
  EXPECT_EQ(fp8.blocks, 12 * 56);
  EXPECT_EQ(fp8.end - fp8.scales, 12 * 56 * 4);
  const QuantizedPart i4 = QuantizedMatrix{int4, 7168, {2048}}.part(0);
  EXPECT_EQ(i4.value_bytes, 2048 * 7168 / 2);
  EXPECT_EQ(i4.end - i4.scales, 2048 * 224 * 2);
}

/// Rows that end within a block, of several parts and matrices.
const QuantizedMatrix kRagged[] = {{mxfp4, 75, {9, 4, 5}, 2}, {fp8_block, 300, {140, 7}, 2},
                                   {int4, 75, {9, 4, 5}, 2},  {mxfp4, 128, {6}},
                                   {fp8_block, 128, {128}},   {int4, 96, {6}}};

/// The scale by the rule of the format for a block with that largest magnitude.
double scale_of(WeightFormat format, double largest) {
  if (format == mxfp4) return std::exp2(std::floor(std::log2(largest)) - 2);
  if (format == fp8_block) return static_cast<double>(static_cast<float>(largest) / 448.0f);
  return static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(largest) / 7.0f)));
}
/// The nearest multiple of the scale.
double nearest_code(WeightFormat format, double share) {
  static constexpr detail::CodeLevels kE2m1 = detail::code_levels(ValueType::e2m1);
  double best = std::numeric_limits<double>::infinity();
  for (int code = 0; code < (format == fp8_block ? 256 : 16); ++code) {
    const double value = format == fp8_block
                             ? static_cast<double>(e4m3_to_f32(static_cast<std::uint8_t>(code)))
                         : format == mxfp4 ? static_cast<double>(kE2m1.of[code])
                                           : code - 8.0;
    if (!std::isnan(value) && std::abs(value - share) < std::abs(best - share)) best = value;
  }
  return best;
}

TEST(WeightFormatsTest, ValuesBecomeTheNearestMultipleOfTheirBlocksScale) {
  for (const QuantizedMatrix& matrix : kRagged) {
    const std::vector<float> in = Values(3).floats(matrix.n_elems(), 0.02);
    std::vector<std::byte> bytes = with_codes(matrix);
    quantize_matrix(matrix, in, bytes, *test::pool(2));
    std::vector<float> out(in.size());
    dequantize_matrix(matrix, bytes, 0, out);
    const WeightFormatTraits& f = traits_of(matrix.format);
    for (std::int64_t m = 0; m < matrix.count; ++m)
      for (std::size_t p = 0; p < matrix.n_parts(); ++p) {
        const QuantizedPart part = matrix.part(p);
        const auto at = [&](std::int64_t row, std::int64_t column) {
          return static_cast<std::size_t>(m * matrix.matrix_elems() +
                                          (part.first_row + row) * matrix.columns + column);
        };
        for (std::int64_t row = 0; row < part.rows; ++row)
          for (std::int64_t column = 0; column < matrix.columns; ++column) {
            if (f.block_rows > 1 && (row % 29 != 0 || column % 31 != 0)) continue;  // a sample of them
            double largest = 0;
            const std::int64_t r0 = row / f.block_rows * f.block_rows,
                               c0 = column / f.block_columns * f.block_columns;
            for (std::int64_t r = r0; r < std::min(part.rows, r0 + f.block_rows); ++r)
              for (std::int64_t c = c0; c < std::min<std::int64_t>(matrix.columns, c0 + f.block_columns); ++c)
                largest = std::max<double>(largest, std::abs(in[at(r, c)]));
            const double scale = scale_of(matrix.format, largest), x = in[at(row, column)];
            ASSERT_LE(std::abs(out[at(row, column)] - x),
                      std::abs(nearest_code(matrix.format, x / scale) * scale - x) + 1e-6 * largest)
                << to_string(matrix.format) << " matrix " << m << " part " << p << " [" << row << ", "
                << column << "]";
          }
      }
  }
}

TEST(WeightFormatsTest, ZerosStayZerosAndWhatIsNotFiniteBecomesNaN) {
  for (const WeightFormat format : {mxfp4, fp8_block, int4}) {
    const QuantizedMatrix matrix = {format, 64, {2}};
    std::vector<float> in(128), out(128);
    std::vector<std::byte> bytes = with_codes(matrix);
    quantize_matrix(matrix, in, bytes, *test::pool(1));
    dequantize_matrix(matrix, bytes, 0, out);
    EXPECT_EQ(out, in);
    in[70] = std::numeric_limits<float>::infinity();
    quantize_matrix(matrix, in, bytes, *test::pool(1));
    dequantize_matrix(matrix, bytes, 0, out);
    for (std::size_t i = 0; i < 128; ++i)
      EXPECT_EQ(std::isnan(out[i]), format == fp8_block || (i >= 64 && i < 96)) << to_string(format) << i;
  }
}

// The scale of subnormal magnitudes is the least power of two, 2^-127.
TEST(WeightFormatsTest, TheScaleOfMxfp4DoesNotUnderflow) {
  EXPECT_EQ(detail::e8m0_of_largest(0x1p-149f), 0);
  EXPECT_EQ(detail::e8m0_of_largest(0x1p-125f), 0);
  EXPECT_EQ(detail::e8m0_of_largest(0x1p-124f), 1);
  EXPECT_EQ(detail::e8m0_of_largest(7.9f), 127);
  EXPECT_EQ(detail::e8m0_of_largest(std::numeric_limits<float>::max()), 252);
}

}  // namespace
}  // namespace strata::kernels
