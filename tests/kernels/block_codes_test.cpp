#include <strata/kernels/block_codes.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/block_math.h"
#include "op_test.h"

#include <strata/runtime/clock.h>
#include <strata/runtime/host_backend.h>
#include <strata/runtime/str.h>

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Coded {
  std::vector<std::uint8_t> codes;
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

Coded coded(Tensor& x, BlockFormat format, std::int64_t block, int threads = 2) {
  const std::int64_t n = x.view().n_elems();
  Coded out{std::vector<std::uint8_t>(static_cast<std::size_t>(block_code_bytes(format, n)), 0xCB),
            std::vector<float>(blocks(n, block), -1.0f)};
  quantize_blocks_host({x.view(), view(out.codes), view(out.scales), format, block}, *test::pool(threads));
  return out;
}
Tensor decoded(Coded& of, const Shape& shape, DType kept, BlockFormat format, std::int64_t block,
               int threads = 2) {
  Tensor x = Tensor::unwritten(shape, kept);
  dequantize_blocks_host({x.view(), view(of.codes), view(of.scales), format, block}, *test::pool(threads));
  return x;
}

/// The value below which a share `p` of the normal distribution lies.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return low;
}

// Eight levels of either half, of which each ends at the same quantile and both have zero.
TEST(BlockCodesTest, LevelsAreQuantilesOfTheNormalDistribution) {
  const double last = 0.9677083;  // between 1 - 1/30 and 1 - 1/32, half-way
  const auto at = [&](int i, int steps) { return normal_quantile(last + (0.5 - last) * i / steps); };
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(detail::kNf4Levels[i], i == 7 ? 0.0 : -at(i, 7) / at(0, 7), 1e-6) << i;
    EXPECT_NEAR(detail::kNf4Levels[15 - i], at(i, 8) / at(0, 8), 1e-6) << 15 - i;
  }
}

double level(BlockFormat format, int code) {
  return format == BlockFormat::nf4 ? static_cast<double>(detail::kNf4Levels[code]) : code / 127.0;
}

struct Case {
  BlockFormat format;
  std::int64_t n, block;
  DType kept;
};
class BlockCodesOfTest : public ::testing::TestWithParam<Case> {};

TEST_P(BlockCodesOfTest, EachValueBecomesTheNearest) {
  const auto [format, n, block, kept] = GetParam();
  Tensor x({n}, Values(1).floats(n, 0.02), kept);
  Coded codes = coded(x, format, block);
  const std::vector<float> in = x.values(), out = decoded(codes, {n}, kept, format, block).values();
  const int first = format == BlockFormat::nf4 ? 0 : -127, last = format == BlockFormat::nf4 ? 15 : 127;
  const double rounding = kept == DType::bf16 ? 0x1p-8 : kept == DType::f16 ? 0x1p-11 : 0x1p-22;
  for (std::int64_t begin = 0; begin < n; begin += block) {
    double most = 0;
    for (std::int64_t i = begin; i < std::min(n, begin + block); ++i)
      most = std::max(most, std::abs(static_cast<double>(in[static_cast<std::size_t>(i)])));
    EXPECT_EQ(codes.scales[static_cast<std::size_t>(begin / block)], most);
    for (std::int64_t i = begin; i < std::min(n, begin + block); ++i) {
      const double value = in[static_cast<std::size_t>(i)];
      double least = most;
      for (int code = first; code <= last; ++code)
        least = std::min(least, std::abs(value - level(format, code) * most));
      EXPECT_LE(std::abs(value - out[static_cast<std::size_t>(i)]), least + rounding * most) << i;
    }
  }
}

// A level's neighbours are far from it, whatever it was rounded to: bf16 moves the code 127 by a quarter.
TEST_P(BlockCodesOfTest, CodesOfWhatCodesStandForAreTheSame) {
  const auto [format, n, block, kept] = GetParam();
  Tensor x({n}, Values(2).floats(n), kept);
  Coded codes = coded(x, format, block);
  Tensor out = decoded(codes, {n}, kept, format, block);
  const Coded again = coded(out, format, block);
  EXPECT_EQ(again.codes, codes.codes);
  EXPECT_EQ(again.scales, codes.scales);
}

TEST_P(BlockCodesOfTest, ThreadsChangeNoBit) {
  const auto [format, n, block, kept] = GetParam();
  Tensor x({n}, Values(3).floats(n), kept);
  Coded one = coded(x, format, block, 1), three = coded(x, format, block, 3);
  EXPECT_EQ(one.codes, three.codes);
  EXPECT_EQ(one.scales, three.scales);
  EXPECT_EQ(test::differing_bits(decoded(one, {n}, kept, format, block, 1).values(),
                                 decoded(one, {n}, kept, format, block, 3).values()),
            0u);
}

// What threads of the device do, one after the other, at once where memory allows it and by itself else.
template <bool kWide, BlockFormat kFormat, class T>
void decode_as_device(const std::uint8_t* codes, const std::vector<float>& scales, std::int64_t block,
                      std::int64_t n, T* x) {
  float levels[16];
  for (int i = 0; i < 16; ++i) levels[i] = detail::kNf4Levels[i];
  for (std::int64_t first = 0; first < n; first += detail::kDecodedRun)
    detail::decode_run<kWide, kFormat>(codes, levels, scales[static_cast<std::size_t>(first / block)], first,
                                       n, x);
}
template <BlockFormat kFormat, class T>
void expect_as_device(Coded& codes, std::int64_t block, std::int64_t n) {
  const std::vector<float> want = decoded(codes, {n}, dtype_of<T>, kFormat, block).values();
  std::vector<detail::DecodedRun<T>> wide(static_cast<std::size_t>(n / detail::kDecodedRun + 1));
  std::vector<detail::CodeRun<8>> aligned(codes.codes.size() / 8 + 1);
  std::copy(codes.codes.begin(), codes.codes.end(), aligned.front().bytes);
  decode_as_device<true, kFormat>(aligned.front().bytes, codes.scales, block, n, wide.front().values);
  std::vector<T> narrow(static_cast<std::size_t>(n));
  decode_as_device<false, kFormat>(codes.codes.data(), codes.scales, block, n, narrow.data());
  for (std::int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(to_f32(wide.front().values[i]), want[static_cast<std::size_t>(i)]) << i;
    ASSERT_EQ(to_f32(narrow[static_cast<std::size_t>(i)]), want[static_cast<std::size_t>(i)]) << i;
  }
}
TEST_P(BlockCodesOfTest, TheDevicesThreadsDecodeTheSame) {
  const auto [format, n, block, kept] = GetParam();
  Tensor x({n}, Values(4).floats(n), kept);
  Coded codes = coded(x, format, block);
  const auto with = [&]<class T>(std::type_identity<T>) {
    format == BlockFormat::nf4 ? expect_as_device<BlockFormat::nf4, T>(codes, block, n)
                               : expect_as_device<BlockFormat::int8, T>(codes, block, n);
  };
  kept == DType::f32    ? with(std::type_identity<float>{})
  : kept == DType::bf16 ? with(std::type_identity<bf16>{})
                        : with(std::type_identity<f16>{});
}

// More than an item of work, a last block that is not whole, a last byte with one value.
INSTANTIATE_TEST_SUITE_P(Cases, BlockCodesOfTest,
                         ::testing::Values(Case{BlockFormat::nf4, 64 * 700, 64, DType::bf16},
                                           Case{BlockFormat::nf4, 20011, 64, DType::f32},
                                           Case{BlockFormat::nf4, 33, 16, DType::f16},
                                           Case{BlockFormat::nf4, 40000, 32768, DType::bf16},
                                           Case{BlockFormat::int8, 64 * 700, 64, DType::bf16},
                                           Case{BlockFormat::int8, 20011, 128, DType::f32},
                                           Case{BlockFormat::int8, 7, 16, DType::f16}));

TEST(BlockCodesTest, TwoCodesToAByteTheFirstAbove) {
  Tensor x({3}, {1.0f, -1.0f, 0.0f});
  Coded codes = coded(x, BlockFormat::nf4, 16);
  EXPECT_EQ(codes.codes, (std::vector<std::uint8_t>{0xF0, 0x77}));
  EXPECT_EQ(coded(x, BlockFormat::int8, 16).codes, (std::vector<std::uint8_t>{127, 0x81, 0}));
}

TEST(BlockCodesTest, OfTwoAsNearTheLowerAndTheEven) {
  const float middle = (detail::kNf4Levels[3] + detail::kNf4Levels[4]) / 2;
  Tensor x({3}, {1.0f, middle, std::nextafter(middle, 1.0f)});
  EXPECT_EQ(coded(x, BlockFormat::nf4, 16).codes, (std::vector<std::uint8_t>{0xF3, 0x47}));
  Tensor y({4}, {127.0f, 0.5f, 1.5f, -2.5f});
  EXPECT_EQ(coded(y, BlockFormat::int8, 16).codes, (std::vector<std::uint8_t>{127, 0, 2, 0xFE}));
}

TEST(BlockCodesTest, ZerosStayZerosAndWhatIsNotFiniteSpreadsOverItsBlockAlone) {
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::int8})
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
      std::vector<float> values(48, 0.0f);
      values[20] = bad;
      values[21] = 3.0f;
      values[40] = 1e-44f;  // the scale is no normal number
      Tensor x({48}, values);
      Coded codes = coded(x, format, 16);
      // Which bytes a NaN comes to differs between machines: those of zeros are taken.
      for (std::size_t byte = codes.codes.size() / 3; byte < codes.codes.size() * 2 / 3; ++byte)
        EXPECT_EQ(codes.codes[byte], format == BlockFormat::nf4 ? 0x77 : 0);
      const std::vector<float> out = decoded(codes, {48}, DType::f32, format, 16).values();
      for (std::size_t i = 0; i < 48; ++i) {
        if (i / 16 == 1) {
          EXPECT_TRUE(std::isnan(out[i])) << i;
        } else {
          EXPECT_EQ(out[i], values[i]) << i;
        }
      }
    }
}

TEST(BlockCodesTest, WhatDoesNotGoTogetherIsRefusedWithBothNumbers) {
  SteadyClock clock;
  const auto pool = test::pool();
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  Tensor x = Tensor::unwritten({130}, DType::bf16);
  std::vector<std::uint8_t> codes(65);
  std::vector<float> scales(3);
  const auto message = [&](const BlockCodesArgs& args) {
    return str(quantize_blocks_async(*backend, stream, args).message(), "; ",
               dequantize_blocks_async(*backend, stream, args).message());
  };
  BlockCodesArgs args{x.view(), view(codes), view(scales)};
  EXPECT_EQ(message(args), "ok; ok");
  must(backend->synchronize(stream));
  args.block = 24;
  EXPECT_EQ(message(args),
            "quantize_blocks: blocks of 24 values; it must be a multiple of 16; "
            "dequantize_blocks: blocks of 24 values; it must be a multiple of 16");
  args.block = 32;
  EXPECT_NE(message(args).find("scales is f32 [3]; it must be f32 with 5 elements"), std::string::npos);
  args.block = 64;
  args.format = BlockFormat::int8;
  EXPECT_NE(message(args).find("codes is u8 [65]; it must be u8 with 130 elements"), std::string::npos);
  args.x = view(codes);
  EXPECT_NE(message(args).find("x is u8 [65]; it must be f32, bf16 or f16"), std::string::npos);
}

}  // namespace
}  // namespace strata::kernels
