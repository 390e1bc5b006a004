#include <strata/kernels/block_quant.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/quant/block_math.h"
#include "support/op_test.h"

#include <strata/runtime/clock.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct QuantizedBlocks {
  std::vector<std::uint8_t> values;
  std::vector<float> scales;
};

std::size_t blocks(std::int64_t n, std::int64_t block) {
  return static_cast<std::size_t>((n + block - 1) / block);
}
TensorView view(std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<std::byte*>(bytes.data()), {std::ssize(bytes)}, DType::u8};
}
TensorView view(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), {std::ssize(values)}, DType::f32};
}

QuantizedBlocks quantize(Tensor& x, BlockQuantFormat format, std::int64_t block, int threads = 2) {
  const std::int64_t n = x.view().n_elems();
  QuantizedBlocks out{std::vector<std::uint8_t>(static_cast<std::size_t>(quantized_bytes(format, n)), 0xCB),
                      std::vector<float>(blocks(n, block), -1.0f)};
  quantize_blocks_host({x.view(), view(out.values), view(out.scales), format, block}, *test::pool(threads));
  return out;
}
Tensor dequantize(QuantizedBlocks& of, const Shape& shape, DType stored_dtype, BlockQuantFormat format,
                  std::int64_t block, int threads = 2) {
  Tensor x = Tensor::unwritten(shape, stored_dtype);
  dequantize_blocks_host({x.view(), view(of.values), view(of.scales), format, block}, *test::pool(threads));
  return x;
}

/// The `p`-quantile of the normal distribution.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return low;
}

// Each half has eight levels, which end at the same quantile; both halves include zero.
TEST(BlockQuantTest, LevelsAreQuantilesOfTheNormalDistribution) {
  const double last = 0.9677083;  // the midpoint of 1 - 1/30 and 1 - 1/32
  const auto at = [&](int i, int steps) { return normal_quantile(last + (0.5 - last) * i / steps); };
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(detail::kNf4Levels[i], i == 7 ? 0.0 : -at(i, 7) / at(0, 7), 1e-6) << i;
    EXPECT_NEAR(detail::kNf4Levels[15 - i], at(i, 8) / at(0, 8), 1e-6) << 15 - i;
  }
}

double level(BlockQuantFormat format, int q) {
  return format == BlockQuantFormat::nf4 ? static_cast<double>(detail::kNf4Levels[q]) : q / 127.0;
}

struct Case {
  BlockQuantFormat format;
  std::int64_t n, block;
  DType stored_dtype;
};
class BlockQuantFormatTest : public ::testing::TestWithParam<Case> {};

TEST_P(BlockQuantFormatTest, EachValueBecomesTheNearest) {
  const auto [format, n, block, stored_dtype] = GetParam();
  Tensor x({n}, Values(1).floats(n, 0.02), stored_dtype);
  QuantizedBlocks quantized = quantize(x, format, block);
  const std::vector<float> in = x.values(),
                           out = dequantize(quantized, {n}, stored_dtype, format, block).values();
  const int first = format == BlockQuantFormat::nf4 ? 0 : -127,
            last = format == BlockQuantFormat::nf4 ? 15 : 127;
  const double rounding = stored_dtype == DType::bf16  ? 0x1p-8
                          : stored_dtype == DType::f16 ? 0x1p-11
                                                       : 0x1p-22;
  for (std::int64_t begin = 0; begin < n; begin += block) {
    double max_magnitude = 0;
    for (std::int64_t i = begin; i < std::min(n, begin + block); ++i)
      max_magnitude = std::max(max_magnitude, std::abs(static_cast<double>(in[static_cast<std::size_t>(i)])));
    EXPECT_EQ(quantized.scales[static_cast<std::size_t>(begin / block)], max_magnitude);
    for (std::int64_t i = begin; i < std::min(n, begin + block); ++i) {
      const double value = in[static_cast<std::size_t>(i)];
      double min_error = max_magnitude;
      for (int q = first; q <= last; ++q)
        min_error = std::min(min_error, std::abs(value - level(format, q) * max_magnitude));
      EXPECT_LE(std::abs(value - out[static_cast<std::size_t>(i)]), min_error + rounding * max_magnitude)
          << i;
    }
  }
}

// The distance between levels is much larger than the rounding to the stored dtype: bf16 moves q = 127 by a
// quarter of a level.
TEST_P(BlockQuantFormatTest, QuantizingDequantizedValuesChangesNothing) {
  const auto [format, n, block, stored_dtype] = GetParam();
  Tensor x({n}, Values(2).floats(n), stored_dtype);
  QuantizedBlocks quantized = quantize(x, format, block);
  Tensor out = dequantize(quantized, {n}, stored_dtype, format, block);
  const QuantizedBlocks again = quantize(out, format, block);
  EXPECT_EQ(again.values, quantized.values);
  EXPECT_EQ(again.scales, quantized.scales);
}

TEST_P(BlockQuantFormatTest, ThreadsChangeNoBit) {
  const auto [format, n, block, stored_dtype] = GetParam();
  Tensor x({n}, Values(3).floats(n), stored_dtype);
  QuantizedBlocks one = quantize(x, format, block, 1), three = quantize(x, format, block, 3);
  EXPECT_EQ(one.values, three.values);
  EXPECT_EQ(one.scales, three.scales);
  EXPECT_EQ(test::differing_bits(dequantize(one, {n}, stored_dtype, format, block, 1).values(),
                                 dequantize(one, {n}, stored_dtype, format, block, 3).values()),
            0u);
}

// Runs the code of the device's threads one after another: with vector accesses to aligned memory (kWide), or
// with scalar accesses.
template <bool kWide, BlockQuantFormat kFormat, class T>
void dequantize_as_device(const std::uint8_t* quantized, const std::vector<float>& scales, std::int64_t block,
                          std::int64_t n, T* x) {
  float levels[16];
  for (int i = 0; i < 16; ++i) levels[i] = detail::kNf4Levels[i];
  for (std::int64_t first = 0; first < n; first += detail::kDequantizedRun)
    detail::dequantize_run<kWide, kFormat>(quantized, levels, scales[static_cast<std::size_t>(first / block)],
                                           first, n, x);
}
template <BlockQuantFormat kFormat, class T>
void expect_as_device(QuantizedBlocks& quantized, std::int64_t block, std::int64_t n) {
  const std::vector<float> want = dequantize(quantized, {n}, dtype_of<T>, kFormat, block).values();
  std::vector<detail::DequantizedRun<T>> wide(static_cast<std::size_t>(n / detail::kDequantizedRun + 1));
  std::vector<detail::QuantizedRun<8>> aligned(quantized.values.size() / 8 + 1);
  std::copy(quantized.values.begin(), quantized.values.end(), aligned.front().bytes);
  dequantize_as_device<true, kFormat>(aligned.front().bytes, quantized.scales, block, n, wide.front().values);
  std::vector<T> narrow(static_cast<std::size_t>(n));
  dequantize_as_device<false, kFormat>(quantized.values.data(), quantized.scales, block, n, narrow.data());
  for (std::int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(to_f32(wide.front().values[i]), want[static_cast<std::size_t>(i)]) << i;
    ASSERT_EQ(to_f32(narrow[static_cast<std::size_t>(i)]), want[static_cast<std::size_t>(i)]) << i;
  }
}
TEST_P(BlockQuantFormatTest, DeviceThreadsDequantizeTheSame) {
  const auto [format, n, block, stored_dtype] = GetParam();
  Tensor x({n}, Values(4).floats(n), stored_dtype);
  QuantizedBlocks quantized = quantize(x, format, block);
  const auto with = [&]<class T>(std::type_identity<T>) {
    format == BlockQuantFormat::nf4 ? expect_as_device<BlockQuantFormat::nf4, T>(quantized, block, n)
                                    : expect_as_device<BlockQuantFormat::int8, T>(quantized, block, n);
  };
  stored_dtype == DType::f32    ? with(std::type_identity<float>{})
  : stored_dtype == DType::bf16 ? with(std::type_identity<bf16>{})
                                : with(std::type_identity<f16>{});
}

// Cases with more than one work item, with a partial last block, and with one value in the last byte.
INSTANTIATE_TEST_SUITE_P(Cases, BlockQuantFormatTest,
                         ::testing::Values(Case{BlockQuantFormat::nf4, 64 * 700, 64, DType::bf16},
                                           Case{BlockQuantFormat::nf4, 20011, 64, DType::f32},
                                           Case{BlockQuantFormat::nf4, 33, 16, DType::f16},
                                           Case{BlockQuantFormat::nf4, 40000, 32768, DType::bf16},
                                           Case{BlockQuantFormat::int8, 64 * 700, 64, DType::bf16},
                                           Case{BlockQuantFormat::int8, 20011, 128, DType::f32},
                                           Case{BlockQuantFormat::int8, 7, 16, DType::f16}));

TEST(BlockQuantTest, Nf4PacksTwoValuesAByteTheFirstInTheUpperHalf) {
  Tensor x({3}, {1.0f, -1.0f, 0.0f});
  QuantizedBlocks quantized = quantize(x, BlockQuantFormat::nf4, 16);
  EXPECT_EQ(quantized.values, (std::vector<std::uint8_t>{0xF0, 0x77}));
  EXPECT_EQ(quantize(x, BlockQuantFormat::int8, 16).values, (std::vector<std::uint8_t>{127, 0x81, 0}));
}

TEST(BlockQuantTest, TiesGoToTheLowerNf4LevelAndToEvenInt8) {
  const float middle = (detail::kNf4Levels[3] + detail::kNf4Levels[4]) / 2;
  Tensor x({3}, {1.0f, middle, std::nextafter(middle, 1.0f)});
  EXPECT_EQ(quantize(x, BlockQuantFormat::nf4, 16).values, (std::vector<std::uint8_t>{0xF3, 0x47}));
  Tensor y({4}, {127.0f, 0.5f, 1.5f, -2.5f});
  EXPECT_EQ(quantize(y, BlockQuantFormat::int8, 16).values, (std::vector<std::uint8_t>{127, 0, 2, 0xFE}));
}

TEST(BlockQuantTest, ZerosStayZerosAndANonFiniteValueSpreadsOnlyOverItsBlock) {
  for (const BlockQuantFormat format : {BlockQuantFormat::nf4, BlockQuantFormat::int8})
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
      std::vector<float> values(48, 0.0f);
      values[20] = bad;
      values[21] = 3.0f;
      values[40] = 1e-44f;  // makes the scale subnormal
      Tensor x({48}, values);
      QuantizedBlocks quantized = quantize(x, format, 16);
      // What a NaN would quantize to differs between machines, so such a block gets the bytes of zeros.
      for (std::size_t byte = quantized.values.size() / 3; byte < quantized.values.size() * 2 / 3; ++byte)
        EXPECT_EQ(quantized.values[byte], format == BlockQuantFormat::nf4 ? 0x77 : 0);
      const std::vector<float> out = dequantize(quantized, {48}, DType::f32, format, 16).values();
      for (std::size_t i = 0; i < 48; ++i) {
        if (i / 16 == 1) {
          EXPECT_TRUE(std::isnan(out[i])) << i;
        } else {
          EXPECT_EQ(out[i], values[i]) << i;
        }
      }
    }
}

TEST(BlockQuantTest, InconsistentArgumentsAreRefusedWithBothNumbers) {
  SteadyClock clock;
  const auto pool = test::pool();
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  Tensor x = Tensor::unwritten({130}, DType::bf16);
  std::vector<std::uint8_t> quantized(65);
  std::vector<float> scales(3);
  const auto message = [&](const BlockQuantArgs& args) {
    return str(quantize_blocks_async(*backend, stream, args).message(), "; ",
               dequantize_blocks_async(*backend, stream, args).message());
  };
  BlockQuantArgs args{x.view(), view(quantized), view(scales)};
  EXPECT_EQ(message(args), "ok; ok");
  must(backend->synchronize(stream));
  args.block = 24;
  EXPECT_EQ(message(args),
            "quantize_blocks: block is 24; it must be a positive multiple of 16; "
            "dequantize_blocks: block is 24; it must be a positive multiple of 16");
  args.block = 32;
  EXPECT_NE(message(args).find("scales is f32 [3]; it must be f32 with 5 elements"), std::string::npos);
  args.block = 64;
  args.format = BlockQuantFormat::int8;
  EXPECT_NE(message(args).find("quantized is u8 [65]; it must be u8 with 130 elements"), std::string::npos);
  args.x = view(quantized);
  EXPECT_NE(message(args).find("x is u8 [65]; it must be f32, bf16 or f16"), std::string::npos);
}

}  // namespace
}  // namespace strata::kernels
