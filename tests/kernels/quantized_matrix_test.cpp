#include <strata/kernels/quantized_matrix.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <strata/kernels/linear.h>
#include <strata/kernels/linear_quantized.h>
#include <strata/kernels/weight_quant.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>

#include "cuda/quant/dynamic_map.h"
#include "cuda/quant/weight_math.h"
#include "support/isas.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using enum WeightFormat;

// Whole blocks and rows; rows that end within a block, three parts; one value; more than one group of scales.
const QuantizedMatrix kShapes[] = {
    {full, 128, {40}}, {full, 75, {9, 4, 5}}, {full, 1, {1}}, {full, 192, {300, 31}}};

std::vector<QuantizedMatrix> all_matrices() {
  std::vector<QuantizedMatrix> all;
  for (const WeightFormat format : kQuantizedFormats)
    for (QuantizedMatrix matrix : kShapes) {
      matrix.format = format;
      all.push_back(matrix);
    }
  return all;
}

/// 64-byte aligned, as in a chunk.
struct Bytes {
  explicit Bytes(std::int64_t n)
      : storage(static_cast<std::size_t>(n + 63) / 64 * 64 / sizeof(Line)), n_(n) {}
  std::span<std::byte> span() {
    return {reinterpret_cast<std::byte*>(storage.data()), static_cast<std::size_t>(n_)};
  }
  TensorView view() { return {span().data(), {n_}, DType::u8}; }
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> storage;
  std::int64_t n_;
};

std::vector<float> weights(const QuantizedMatrix& matrix, int seed = 1) {
  return Values(seed).floats(matrix.n_elems(), 0.02);
}
Bytes quantized(const QuantizedMatrix& matrix, const std::vector<float>& values, int threads = 2) {
  Bytes bytes(matrix.bytes());
  std::fill(bytes.span().begin(), bytes.span().end(), std::byte{0xCB});
  quantize_matrix(matrix, values, bytes.span(), *test::pool(threads));
  return bytes;
}
std::vector<float> dequantized(const QuantizedMatrix& matrix, Bytes& bytes) {
  std::vector<float> values(static_cast<std::size_t>(matrix.n_elems()));
  dequantize_matrix(matrix, bytes.span(), 0, values);
  return values;
}

TEST(QuantizedMatrixTest, PartsFollowEachOtherAndBytesAreThoseOfTheFormats) {
  constexpr std::int64_t n = 4096 * 4096;
  const auto bytes = [&](WeightFormat format) { return QuantizedMatrix{format, 4096, {4096}}.bytes(); };
  EXPECT_EQ(bytes(int8), n + n / 64 * 4);
  EXPECT_EQ(bytes(nf4), n / 2 + n / 64 * 4);
  EXPECT_EQ(bytes(nf4_dq), n / 2 + n / 64 + n / 64 / 256 * 4 + 1024 + 64);  // 0.5159 bytes a value
  for (const QuantizedMatrix& matrix : all_matrices()) {
    std::int64_t row = 0, end = 0;
    for (std::size_t i = 0; i < matrix.n_parts(); ++i) {
      const QuantizedPart part = matrix.part(i);
      EXPECT_EQ(part.first_row, row);
      EXPECT_EQ(part.values, end);
      for (const std::int64_t at : {part.values, part.scales, part.group_scales, part.map})
        EXPECT_EQ(at % QuantizedMatrix::kAlign, 0);
      row += part.rows;
      end = part.end;
    }
    EXPECT_EQ(row, matrix.rows());
    EXPECT_EQ(end, matrix.bytes());
  }
}

/// The nearest value that the format has in a block with that largest magnitude.
double nearest(WeightFormat format, double x, double largest) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < (format == int8 ? 255 : 16); ++i) {
    const double level = format == int8 ? (i - 127) / 127.0 : static_cast<double>(detail::kNf4Levels[i]);
    if (std::abs(level * largest - x) < std::abs(best - x)) best = level * largest;
  }
  return best;
}

TEST(QuantizedMatrixTest, EachValueBecomesTheNearestOfItsBlockAndScalesTheNearestOfTheirGroup) {
  for (const QuantizedMatrix& matrix : all_matrices()) {
    if (traits_of(matrix.format).by_rows) continue;  // weight_formats_test.cpp
    const std::vector<float> in = weights(matrix);
    Bytes bytes = quantized(matrix, in);
    const std::vector<float> out = dequantized(matrix, bytes);
    for (std::size_t p = 0; p < matrix.n_parts(); ++p) {
      const QuantizedPart part = matrix.part(p);
      const auto first = static_cast<std::size_t>(part.first_row * matrix.columns);
      std::vector<double> scales;
      for (std::int64_t block = 0; block < part.blocks; ++block) {
        double largest = 0;
        for (std::int64_t i = block * 64; i < std::min(part.elems, block * 64 + 64); ++i)
          largest = std::max<double>(largest, std::abs(in[first + static_cast<std::size_t>(i)]));
        scales.push_back(largest);
      }
      // The step of the 8-bit map at its widest is 0.0141 of the group's range.
      double mean = 0, range = 0;
      for (const double scale : scales) mean += scale / static_cast<double>(scales.size());
      for (const double scale : scales) range = std::max(range, std::abs(scale - mean));
      for (std::int64_t i = 0; i < part.elems; ++i) {
        const auto at = first + static_cast<std::size_t>(i);
        const double scale = scales[static_cast<std::size_t>(i / 64)];
        const double of_scale = matrix.format == nf4_dq ? 0.0071 * range : 0;
        EXPECT_LE(std::abs(out[at] - in[at]),
                  std::abs(nearest(matrix.format, in[at], scale) - in[at]) + of_scale + 1e-6 * scale)
            << to_string(matrix.format) << " " << at;
      }
    }
  }
}

TEST(QuantizedMatrixTest, TheDynamicMapIsInOrderAndRoundsToTheNearest) {
  constexpr detail::DynamicMap map = detail::dynamic_map();
  EXPECT_TRUE(std::is_sorted(std::begin(map.of), std::end(map.of)));
  EXPECT_EQ(map.of[127], 0.0f);
  EXPECT_EQ(map.of[255], 1.0f);
  for (int code = 0; code < 256; ++code) EXPECT_EQ(detail::quantize_dynamic(map, map.of[code]), code);
  for (int decade = 0; decade < 7; ++decade)  // 2^decade midpoints of equal parts of the decade
    for (int i = 0; i < 1 << decade; ++i)
      EXPECT_NEAR(map.of[128 + (1 << decade) - 1 + i],
                  (0.1 + 0.9 * (i + 0.5) / (1 << decade)) * std::pow(10.0, decade - 6),
                  1e-7 * std::pow(10.0, decade - 6));
}

// A PEFT adapter is trained over one quantized base: loading it and storing it again changes nothing.
TEST(QuantizedMatrixTest, QuantizingDequantizedValuesChangesNoBit) {
  for (const QuantizedMatrix& matrix : all_matrices()) {
    // The mean of the scales moves, or the last bit of 448 times a scale.
    if (matrix.format == nf4_dq || matrix.format == fp8_block) continue;
    Bytes bytes = quantized(matrix, weights(matrix));
    const std::vector<float> out = dequantized(matrix, bytes);
    Bytes again = quantized(matrix, out);
    EXPECT_TRUE(std::equal(bytes.span().begin(), bytes.span().end(), again.span().begin()))
        << to_string(matrix.format);
  }
}

TEST(QuantizedMatrixTest, NoBitDependsOnThreadsOrTheInstructionSet) {
  for (const QuantizedMatrix& matrix : all_matrices()) {
    const std::vector<float> in = weights(matrix);
    Bytes want = quantized(matrix, in, 1);
    const std::vector<float> values = dequantized(matrix, want);
    for (const simd::CpuIsa name : test::supported_isas()) {
      const test::IsaScope isa(name);
      Bytes bytes = quantized(matrix, in, 3);
      EXPECT_TRUE(std::equal(bytes.span().begin(), bytes.span().end(), want.span().begin()));
      EXPECT_EQ(test::differing_bits(dequantized(matrix, bytes), values), 0u);
    }
  }
}

TEST(QuantizedMatrixTest, AnyRangeOfValuesCanBeRead) {
  for (const QuantizedMatrix& matrix : all_matrices()) {
    Bytes bytes = quantized(matrix, weights(matrix));
    const std::vector<float> all = dequantized(matrix, bytes);
    for (std::int64_t first = 0; first < matrix.n_elems(); first += 37) {
      std::vector<float> some(
          static_cast<std::size_t>(std::min<std::int64_t>(200, matrix.n_elems() - first)));
      dequantize_matrix(matrix, bytes.span(), first, some);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first)) << first;
    }
  }
}

// Tests scalar accesses, and vector accesses where all runs are whole.
TEST(QuantizedMatrixTest, TheDevicesThreadsDequantizeTheSame) {
  constexpr std::int64_t kRun = detail::kDequantizedRun;
  for (const QuantizedMatrix& matrix : all_matrices()) {
    Bytes bytes = quantized(matrix, weights(matrix));
    const std::vector<float> want = dequantized(matrix, bytes);
    for (std::size_t p = 0; p < matrix.n_parts(); ++p) {
      const QuantizedPart part = matrix.part(p);
      const detail::PartData data = detail::data_of(matrix, part, bytes.span().data());
      const detail::CodeLevels levels = detail::code_levels(data.value_type);
      for (std::int64_t run = 0; run * kRun < part.line_elems * part.lines; ++run) {
        const std::int64_t runs = (part.line_elems + kRun - 1) / kRun;
        const detail::ValuePlace place = {run / runs, run % runs * kRun};
        if (place.line >= part.lines) break;
        detail::DequantizedRun<float> out, wide;
        const std::int64_t n = std::min(kRun, part.line_elems - place.at);
        const bool is_whole = n == kRun && detail::code_of(data, place) % kRun == 0;
        detail::dequantize_values(data, place, n, levels.of, out.values);
        if (is_whole) detail::dequantize_run(data, place, levels.of, wide.values);
        for (std::int64_t i = 0; i < n; ++i) {
          const float expected = want[static_cast<std::size_t>(part.first_row * matrix.columns +
                                                               place.line * part.line_elems + place.at + i)];
          ASSERT_EQ(out.values[i], expected);
          if (is_whole) {
            ASSERT_EQ(wide.values[i], expected);
          }
        }
      }
    }
  }
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
TEST(QuantizedMatrixTest, LevelsAreQuantilesOfTheNormalDistribution) {
  const double last = 0.9677083;  // the midpoint of 1 - 1/30 and 1 - 1/32
  const auto at = [&](int i, int steps) { return normal_quantile(last + (0.5 - last) * i / steps); };
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(detail::kNf4Levels[i], i == 7 ? 0.0 : -at(i, 7) / at(0, 7), 1e-6) << i;
    EXPECT_NEAR(detail::kNf4Levels[15 - i], at(i, 8) / at(0, 8), 1e-6) << 15 - i;
  }
}

std::vector<std::uint8_t> codes(WeightFormat format, const std::vector<float>& values) {
  const QuantizedMatrix matrix = {format, std::ssize(values), {1}};
  Bytes bytes = quantized(matrix, values);
  const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.span().data());
  return {first, first + (format == int8 ? values.size() : (values.size() + 1) / 2)};
}

TEST(QuantizedMatrixTest, TwoValuesAreInAByteTheFirstInItsUpperHalf) {
  EXPECT_EQ(codes(nf4, {1.0f, -1.0f, 0.0f}), (std::vector<std::uint8_t>{0xF0, 0x77}));
  EXPECT_EQ(codes(int8, {1.0f, -1.0f, 0.0f}), (std::vector<std::uint8_t>{127, 0x81, 0}));
}

TEST(QuantizedMatrixTest, TiesGoToTheLowerNf4LevelAndToEvenInt8) {
  const float middle = (detail::kNf4Levels[3] + detail::kNf4Levels[4]) / 2;
  EXPECT_EQ(codes(nf4, {1.0f, middle, std::nextafter(middle, 1.0f)}),
            (std::vector<std::uint8_t>{0xF3, 0x47}));
  EXPECT_EQ(codes(int8, {127.0f, 0.5f, 1.5f, -2.5f}), (std::vector<std::uint8_t>{127, 0, 2, 0xFE}));
}

TEST(QuantizedMatrixTest, ABlockWithAValueThatIsNotFiniteBecomesNaN) {
  for (const WeightFormat format : {int8, nf4}) {
    const QuantizedMatrix matrix = {format, 64, {3}};
    std::vector<float> in = weights(matrix);
    in[70] = std::nanf("");
    Bytes bytes = quantized(matrix, in);
    const std::vector<float> out = dequantized(matrix, bytes);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 64 == 1) << i;
  }
}

struct QuantizedProblem {
  QuantizedMatrix matrix;
  DType dtype;
  std::int64_t rows;
};

// y = x W^T + b and dx = dy W, for W as the ops read it.
void expect_linear(const QuantizedProblem& problem, double tolerance, bool same_bits) {
  const auto& [matrix, dtype, rows] = problem;
  const auto pool = test::pool();
  const std::int64_t n = matrix.rows(), k = matrix.columns;
  Bytes bytes = quantized(matrix, weights(matrix));
  Tensor w({n, k}, dequantized(matrix, bytes), dtype);  // rounded to the dtype
  Tensor x({rows, k}, Values(2).floats(rows * k), dtype), dy({rows, n}, Values(3).floats(rows * n), dtype),
      bias({n}, Values(4).floats(n), dtype), before({rows, k}, Values(5).floats(rows * k), dtype);
  Tensor y = Tensor::unwritten({rows, n}, dtype), want_y = y, dx = Tensor::unwritten({rows, k}, dtype),
         want_dx = dx, sum = before, want_sum = before;
  test::Workspace panel(linear_quantized_workspace_bytes(matrix, dtype));
  linear_quantized_host({x.view(), bytes.view(), bias.view(), y.view(), panel.view(), {}, matrix}, *pool);
  linear_forward_host({x.view(), w.view(), bias.view(), want_y.view()}, *pool);
  linear_quantized_backward_input_host({dy.view(), bytes.view(), dx.view(), false, panel.view(), {}, matrix},
                                       *pool);
  linear_backward_input_host({dy.view(), w.view(), want_dx.view()}, *pool);
  linear_quantized_backward_input_host({dy.view(), bytes.view(), sum.view(), true, panel.view(), {}, matrix},
                                       *pool);
  linear_backward_input_host({dy.view(), w.view(), want_sum.view(), true}, *pool);
  const auto expect = [&](Tensor& got, Tensor& want, const char* what) {
    if (same_bits) {
      EXPECT_EQ(test::differing_bits(got.values(), want.values()), 0u) << what;
    } else {
      EXPECT_LE(test::relative_error(got.values(), test::widen(want.values())), tolerance) << what;
    }
  };
  expect(y, want_y, "y");
  expect(dx, want_dx, "dx");
  expect(sum, want_sum, "dx += dy W");
}

TEST(LinearQuantizedTest, HasTheBitsOfALinearLayerWithTheDequantizedMatrix) {
  for (const QuantizedMatrix& matrix : all_matrices())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      expect_linear({matrix, dtype, 21}, 0, true);
}

// 20 million values are two panels of rows, and two of columns.
TEST(LinearQuantizedTest, PanelsMakeUpTheWholeResult) {
  const QuantizedMatrix matrix = {nf4, 5000, {1500, 2600}};
  EXPECT_LT(linear_quantized_workspace_bytes(matrix, DType::bf16),
            static_cast<std::size_t>(2 * matrix.n_elems()));
  expect_linear({matrix, DType::bf16, 3}, 1e-2, false);
}

TEST(LinearQuantizedTest, InconsistentArgumentsAreRefusedWithBothNumbers) {
  SteadyClock clock;
  const auto pool = test::pool();
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  const QuantizedMatrix matrix = {nf4, 64, {8}};
  Bytes bytes(matrix.bytes());
  Tensor x = Tensor::unwritten({3, 64}), y = Tensor::unwritten({3, 8}), dx = Tensor::unwritten({3, 60});
  test::Workspace panel(linear_quantized_workspace_bytes(matrix, DType::f32)), small(8);
  LinearQuantizedArgs args = {x.view(), bytes.view(), {}, y.view(), panel.view(), {}, matrix};
  EXPECT_EQ(linear_quantized_async(*backend, stream, args).message(), "ok");
  must(backend->synchronize(stream));
  args.panel = small.view();
  EXPECT_EQ(linear_quantized_async(*backend, stream, args).message(),
            "linear_quantized: workspace has 8 bytes; it needs 2048");
  args.panel = panel.view();
  args.matrix.rows_of = {9};
  EXPECT_EQ(linear_quantized_async(*backend, stream, args).message(),
            "linear_quantized: w is u8 [320]; it must be u8 [384]");
  args.matrix.format = full;
  EXPECT_EQ(linear_quantized_async(*backend, stream, args).message(),
            "linear_quantized: the matrix is not quantized, or empty");
  EXPECT_EQ(linear_quantized_backward_input_async(
                *backend, stream, {y.view(), bytes.view(), dx.view(), false, panel.view(), {}, matrix})
                .message(),
            "linear_quantized_backward_input: dx is f32 [3, 60]; it must be f32, 3 rows of 64");
}

}  // namespace
}  // namespace strata::kernels
