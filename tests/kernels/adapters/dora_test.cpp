#include <strata/kernels/dora.h>

#include <gmock/gmock.h>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/weight_quant.h>

#include "elementwise/part_columns.h"
#include "adapters/dora_panels.h"
#include "simd_table.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using ::testing::HasSubstr;

struct AdaptedMatrix {
  std::int64_t rows, columns;
  LoraParts parts;
  float scale;
};
// Queries and values of three; one part; ranks that are no multiple of the lanes; more than one run of
// squares.
const AdaptedMatrix kMatrices[] = {{12, 20, {{{{0, 6, 2}, {9, 3, 2}}}, 2}, 0.5f},
                                   {130, 70, {{{{0, 130, 16}}}, 1}, 2.0f},
                                   {40, 33, {{{{0, 10, 3}, {10, 20, 1}, {30, 10, 21}}}, 3}, 1.5f},
                                   {3, 2100, {{{{1, 2, 4}}}, 1}, 1.0f}};

detail::PartColumns columns_of(const AdaptedMatrix& m) { return detail::part_columns(m.parts); }
std::int64_t ranks_of(const AdaptedMatrix& m) {
  std::int64_t n = 0;
  for (const LoraPart& part : m.parts.all()) n += part.rank;
  return n;
}
std::int64_t elems_of(const AdaptedMatrix& m) {
  std::int64_t n = 0;
  for (const LoraPart& part : m.parts.all()) n += part.rows * part.rank;
  return n;
}

std::vector<double> reference_norms(const AdaptedMatrix& m, const std::vector<float>& w,
                                    const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> norms;
  std::int64_t of_a = 0, of_b = 0;
  for (const LoraPart& part : m.parts.all()) {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      double squares = 0;
      for (std::int64_t k = 0; k < m.columns; ++k) {
        double value = w[static_cast<std::size_t>((part.first_row + i) * m.columns + k)];
        for (std::int64_t j = 0; j < part.rank; ++j)
          value += static_cast<double>(m.scale) *
                   static_cast<double>(b[static_cast<std::size_t>(of_b + i * part.rank + j)]) *
                   static_cast<double>(a[static_cast<std::size_t>((of_a + j) * m.columns + k)]);
        squares += value * value;
      }
      norms.push_back(std::sqrt(squares));
    }
    of_a += part.rank;
    of_b += part.rows * part.rank;
  }
  return norms;
}

std::vector<float> norms_by_op(const AdaptedMatrix& m, TensorView w, Tensor& a, Tensor& b,
                               const QuantizedMatrix& matrix = {}, int threads = 2) {
  Tensor norm = Tensor::unwritten({columns_of(m).rows});
  test::Workspace workspace(dora_norm_workspace_bytes(m.parts, m.columns, matrix, a.dtype()));
  dora_norm_host({w, a.view(), b.view(), norm.view(), workspace.view(), m.parts, m.scale, matrix},
                 *test::pool(threads));
  return norm.values();
}

class DoraTest : public ::testing::TestWithParam<DType> {
 protected:
  static Tensor tensor(Shape shape, std::uint64_t seed, double scale = 1.0) {
    return Tensor(shape, Values(seed).floats(shape.n_elems(), scale), GetParam());
  }
  static double tolerance() {
    return GetParam() == DType::f32 ? 1e-6 : GetParam() == DType::f16 ? 1e-3 : 8e-3;
  }
  static std::vector<float> rows_of_parts(const AdaptedMatrix& m, const std::vector<float>& w) {
    std::vector<float> rows;
    for (std::int64_t row = 0; row < columns_of(m).rows; ++row) {
      const auto first = w.begin() + columns_of(m).column_of(row) * m.columns;
      rows.insert(rows.end(), first, first + m.columns);
    }
    return rows;
  }
};

// Values of every dtype are exact here, so the tolerance is that of sums in f32.
TEST_P(DoraTest, NormsFollowTheF64Reference) {
  for (const AdaptedMatrix& m : kMatrices) {
    Tensor w = tensor({m.rows, m.columns}, 1), a = tensor({ranks_of(m), m.columns}, 2),
           b = tensor({elems_of(m)}, 3, 0.5);
    EXPECT_LE(test::relative_error(norms_by_op(m, w.view(), a, b),
                                   reference_norms(m, w.values(), a.values(), b.values())),
              1e-6)
        << m.rows;
  }
}

TEST_P(DoraTest, WhereBIsZeroNormsHaveTheBitsOfTheMatrixsRows) {
  for (const AdaptedMatrix& m : kMatrices) {
    Tensor w = tensor({m.rows, m.columns}, 1), a = tensor({ranks_of(m), m.columns}, 2),
           b = tensor({elems_of(m)}, 3, 0.0);
    std::vector<float> want(static_cast<std::size_t>(columns_of(m).rows));
    row_norms(rows_of_parts(m, Values(1).floats(m.rows * m.columns)), m.columns, GetParam(), want,
              *test::pool(3));
    EXPECT_EQ(test::differing_bits(norms_by_op(m, w.view(), a, b), want), 0u) << m.rows;
  }
}

// B A is minus the matrix but for a thousandth of it.
TEST_P(DoraTest, NormsOfRowsThatTheAdapterNearlyCancelsAreExact) {
  const AdaptedMatrix m{8, 50, {{{{0, 8, 1}}}, 1}, 1.0f};
  Tensor a = tensor({1, m.columns}, 2), b({8}, {1, -2, 4, 1, -1, 8, 2, 1}, GetParam());
  std::vector<float> w;
  for (const float of_row : b.values())
    for (const float of_column : a.values()) w.push_back(-of_row * of_column * (1 - 1.0f / 1024));
  Tensor base({m.rows, m.columns}, w, GetParam());
  const std::vector<float> got = norms_by_op(m, base.view(), a, b);
  const std::vector<double> want = reference_norms(m, base.values(), a.values(), b.values());
  for (std::size_t row = 0; row < want.size(); ++row)
    EXPECT_NEAR(static_cast<double>(got[row]), want[row], 1e-6 * want[row]) << row;
}

TEST_P(DoraTest, AQuantizedMatrixHasTheNormsOfWhatItStandsFor) {
  const AdaptedMatrix m{40, 33, {{{{0, 10, 3}, {12, 18, 1}, {30, 10, 7}}}, 3}, 1.5f};
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::nf4_dq}) {
    const QuantizedMatrix matrix = {format, m.columns, {12, 18, 10}};
    alignas(64) std::byte bytes[8192] = {};
    ASSERT_LE(matrix.bytes(), std::ssize(bytes));
    const auto held = std::span(bytes).first(static_cast<std::size_t>(matrix.bytes()));
    quantize_matrix(matrix, Values(1).floats(matrix.n_elems()), held, *test::pool());
    std::vector<float> values(static_cast<std::size_t>(matrix.n_elems()));
    dequantize_matrix(matrix, held, 0, values);
    Tensor w({m.rows, m.columns}, values, GetParam()), a = tensor({ranks_of(m), m.columns}, 2),
                                                       b = tensor({elems_of(m)}, 3);
    EXPECT_EQ(test::differing_bits(norms_by_op(m, {bytes, {matrix.bytes()}, DType::u8}, a, b, matrix),
                                   norms_by_op(m, w.view(), a, b)),
              0u)
        << to_string(format);
  }
}

// 24 million values are two panels.
TEST(DoraPanelsTest, PanelsMakeUpAllNorms) {
  const AdaptedMatrix m{6000, 4000, {{{{100, 5900, 2}}}, 1}, 0.5f};
  const QuantizedMatrix matrix = {WeightFormat::nf4, m.columns, {6000}};
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()) + 64);
  const auto at = (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
  const auto held = std::span(bytes).subspan(at, static_cast<std::size_t>(matrix.bytes()));
  std::vector<float> values = Values(1).floats(matrix.n_elems());
  quantize_matrix(matrix, values, held, *test::pool());
  dequantize_matrix(matrix, held, 0, values);
  Tensor a({2, m.columns}, Values(2).floats(2 * m.columns)), b({elems_of(m)}, Values(3).floats(elems_of(m)));
  EXPECT_LT(dora_norm_workspace_bytes(m.parts, m.columns, matrix, DType::f32), std::size_t{70} << 20);
  EXPECT_LE(test::relative_error(norms_by_op(m, {held.data(), {matrix.bytes()}, DType::u8}, a, b, matrix),
                                 reference_norms(m, values, a.values(), b.values())),
            1e-6);
}

TEST_P(DoraTest, TheDeviceSumsInTheOrderOfTheHost) {
  const auto run = [&]<class T>(std::type_identity<T>) {
    const dispatch::EmulatedHalfWarp lanes;
    for (const std::int64_t rank : {1, 7, 16, 21}) {
      constexpr std::int64_t kRows = 9, kColumns = 1030;
      const AdaptedMatrix m{kRows, kColumns, {{{{0, kRows, rank}}}, 1}, 1.5f};
      Tensor w = tensor({kRows, kColumns}, 1), a = tensor({rank, kColumns}, 2), b = tensor({kRows * rank}, 3);
      const std::vector<float> host = norms_by_op(m, w.view(), a, b);
      std::vector<float> norm(kRows);
      test::Workspace space(dora_norm_workspace_bytes(m.parts, kColumns, {}, GetParam()));
      Tensor unused = Tensor::unwritten({kRows});
      // The GEMMs' results, as the host's op leaves them in its workspace.
      dora_norm_host({w.view(), a.view(), b.view(), unused.view(), space.view(), m.parts, m.scale},
                     *test::pool(1));
      const auto parts = detail::dora_workspace(m.parts, kColumns, {}, GetParam(), space.view().data);
      const detail::DoraRows rows = {w.view().data, a.view().data, b.view().data, parts.products, parts.gram,
                                     norm.data(),   kRows,         rank,          kColumns,       1.5};
      for (std::int64_t row = 0; row < kRows; ++row)
        detail::write_norm<dispatch::EmulatedHalfWarp, T>(
            lanes, rows, row,
            detail::square_sum(lanes, static_cast<const T*>(rows.w) + row * kColumns, kColumns),
            detail::added_squares<dispatch::EmulatedHalfWarp, T>(lanes, rows, row));
      EXPECT_EQ(test::differing_bits(norm, host), 0u) << rank;
    }
  };
  if (GetParam() == DType::f32) run(std::type_identity<float>{});
  if (GetParam() == DType::bf16) run(std::type_identity<bf16>{});
  if (GetParam() == DType::f16) run(std::type_identity<f16>{});
}

/// The operands of scale_columns and its derivative for one matrix.
struct ColumnTensors {
  ColumnTensors(const AdaptedMatrix& m, std::int64_t t, DType dtype)
      : x({t, m.rows}, Values(1).floats(t * m.rows), dtype),
        dy({t, m.rows}, Values(2).floats(t * m.rows), dtype),
        bias({m.rows}, Values(3).floats(m.rows), dtype),
        magnitude({columns_of(m).rows}, Values(4).floats(columns_of(m).rows)),
        norm({columns_of(m).rows}, Values(5).floats(columns_of(m).rows, 0.9, 1.0)),
        y(Tensor::unwritten({t, m.rows}, dtype)),
        dm(Tensor::unwritten({columns_of(m).rows})) {}
  Tensor x, dy, bias, magnitude, norm, y, dm;
};

TEST_P(DoraTest, ScaledColumnsAndTheirDerivativeFollowTheF64Reference) {
  for (const AdaptedMatrix& m : kMatrices)
    for (const std::int64_t t : {0, 5, 130}) {
      ColumnTensors c(m, t, GetParam());
      const auto pool = test::pool();
      scale_columns_host({c.x.view(), c.magnitude.view(), c.norm.view(), c.bias.view(), c.y.view(), m.parts},
                         *pool);
      test::Workspace space(scale_columns_backward_workspace_bytes(t, columns_of(m).rows));
      scale_columns_backward_weight_host(
          {c.dy.view(), c.x.view(), c.norm.view(), c.dm.view(), space.view(), m.parts}, *pool);
      const auto x = c.x.values(), dy = c.dy.values(), bias = c.bias.values(),
                 magnitude = c.magnitude.values(), norm = c.norm.values();
      std::vector<double> want_y, want_dm(norm.size());
      for (std::int64_t i = 0; i < t * m.rows; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t row = columns_of(m).row_of(i % m.rows);
        const auto r = static_cast<std::size_t>(row);
        const double factor =
            row < 0 ? 1.0 : static_cast<double>(magnitude[r]) / static_cast<double>(norm[r]);
        want_y.push_back(static_cast<double>(x[at]) * factor +
                         static_cast<double>(bias[static_cast<std::size_t>(i % m.rows)]));
        if (row >= 0)
          want_dm[r] +=
              static_cast<double>(dy[at]) * static_cast<double>(x[at]) / static_cast<double>(norm[r]);
      }
      EXPECT_LE(test::relative_error(c.y.values(), want_y), tolerance()) << m.rows << " " << t;
      EXPECT_LE(test::relative_error(c.dm.values(), want_dm), 1e-6) << m.rows << " " << t;
    }
}

TEST_P(DoraTest, InPlaceGivesTheSameBitsAndOtherColumnsStay) {
  for (const AdaptedMatrix& m : kMatrices) {
    ColumnTensors c(m, 7, GetParam());
    const auto before = c.x.values();
    const auto pool = test::pool();
    scale_columns_host({c.x.view(), c.magnitude.view(), c.norm.view(), {}, c.y.view(), m.parts}, *pool);
    scale_columns_host({c.x.view(), c.magnitude.view(), c.norm.view(), {}, c.x.view(), m.parts}, *pool);
    EXPECT_EQ(test::differing_bits(c.x.values(), c.y.values()), 0u);
    for (std::size_t i = 0; i < before.size(); ++i)
      if (columns_of(m).row_of(static_cast<std::int64_t>(i) % m.rows) < 0) {
        EXPECT_EQ(before[i], c.y.values()[i]) << i;
      }
  }
}

TEST_P(DoraTest, GradientsOfMagnitudesAreAddedToTheSum) {
  const AdaptedMatrix& m = kMatrices[0];
  ColumnTensors c(m, 9, GetParam());
  test::Workspace space(scale_columns_backward_workspace_bytes(9, columns_of(m).rows));
  Tensor sum({columns_of(m).rows}, Values(6).floats(columns_of(m).rows));
  const std::vector<float> before = sum.values();
  ScaleColumnsBackwardWeightArgs args = {c.dy.view(), c.x.view(),   c.norm.view(),
                                         c.dm.view(), space.view(), m.parts};
  scale_columns_backward_weight_host(args, *test::pool());
  args.dm = sum.view();
  args.accumulate = true;
  scale_columns_backward_weight_host(args, *test::pool());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(sum.values()[i], before[i] + c.dm.values()[i]) << i;
}

// A row of zeros gives neither Inf nor NaN, and a NaN is not hidden.
TEST_P(DoraTest, ANormOfZeroScalesToZeroAndANaNStays) {
  const AdaptedMatrix m{3, 4, {{{{0, 3, 1}}}, 1}, 1.0f};
  ColumnTensors c(m, 2, GetParam());
  c.norm = Tensor({3}, {0.0f, std::nanf(""), 2.0f});
  test::Workspace space(scale_columns_backward_workspace_bytes(2, 3));
  scale_columns_host({c.x.view(), c.magnitude.view(), c.norm.view(), {}, c.y.view(), m.parts}, *test::pool());
  scale_columns_backward_weight_host(
      {c.dy.view(), c.x.view(), c.norm.view(), c.dm.view(), space.view(), m.parts}, *test::pool());
  for (const std::vector<float>& values : {c.y.values(), c.dm.values()}) {
    EXPECT_EQ(values[0], 0.0f);
    EXPECT_TRUE(std::isnan(values[1]));
    EXPECT_TRUE(std::isfinite(values[2]));
  }
}

TEST_P(DoraTest, TheDevicesColumnsHaveTheBitsOfTheHosts) {
  const auto run = [&]<class T>(std::type_identity<T>) {
    for (const AdaptedMatrix& m : kMatrices) {
      constexpr std::int64_t kTokens = 50;  // one block of rows
      ColumnTensors c(m, kTokens, GetParam());
      const detail::PartColumns columns = columns_of(m);
      test::Workspace space(scale_columns_backward_workspace_bytes(kTokens, columns.rows));
      scale_columns_host({c.x.view(), c.magnitude.view(), c.norm.view(), c.bias.view(), c.y.view(), m.parts},
                         *test::pool());
      scale_columns_backward_weight_host(
          {c.dy.view(), c.x.view(), c.norm.view(), c.dm.view(), space.view(), m.parts}, *test::pool());
      Tensor y = Tensor::unwritten({kTokens, m.rows}, GetParam());
      const TensorView x = c.x.view(), dy = c.dy.view(), norm = c.norm.view();
      for (std::int64_t i = 0; i < kTokens * m.rows; ++i)
        y.view().as<T>()[i] =
            detail::scaled_column(columns, x.as<T>()[i], i % m.rows, c.magnitude.view().as<float>(),
                                  norm.as<float>(), c.bias.view().as<T>());
      EXPECT_EQ(test::differing_bits(y.values(), c.y.values()), 0u);
      std::vector<float> dm;
      for (std::int64_t row = 0; row < columns.rows; ++row)
        dm.push_back(detail::over_norm(
            detail::product_column(dy.as<T>(), x.as<T>(), columns.column_of(row), m.rows, 0, kTokens),
            norm.as<float>()[row]));
      EXPECT_EQ(test::differing_bits(dm, c.dm.values()), 0u);
    }
  };
  if (GetParam() == DType::f32) run(std::type_identity<float>{});
  if (GetParam() == DType::bf16) run(std::type_identity<bf16>{});
  if (GetParam() == DType::f16) run(std::type_identity<f16>{});
}

INSTANTIATE_TEST_SUITE_P(DTypes, DoraTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(DoraTest, InconsistentArgumentsAreRefusedWithBothNumbers) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor w({8, 5}, std::vector<float>(40)), a({2, 5}, std::vector<float>(10)),
      b({16}, std::vector<float>(16)), norm({8}, std::vector<float>(8)), x({3, 8}, std::vector<float>(24));
  const LoraParts parts = {{{{0, 8, 2}}}, 1};
  test::Workspace space(1 << 12), small(8);
  const auto refused = [&](const LoraParts& of, BufferView workspace, TensorView matrix, QuantizedMatrix q) {
    return std::string(
        dora_norm_async(backend, stream, {matrix, a.view(), b.view(), norm.view(), workspace, of, 1.0f, q})
            .message());
  };
  EXPECT_EQ(refused(parts, space.view(), w.view(), {}), "ok");
  EXPECT_THAT(refused({{{{5, 4, 2}}}, 1}, space.view(), w.view(), {}), HasSubstr("rows 5 to 9 of 8"));
  EXPECT_THAT(refused({{{{0, 8, 1}}}, 1}, space.view(), w.view(), {}), HasSubstr("a is f32 [2, 5]"));
  EXPECT_THAT(refused(parts, small.view(), w.view(), {}), HasSubstr("workspace has 8 bytes"));
  EXPECT_THAT(refused(parts, space.view(), x.view(), {}), HasSubstr("w is f32 [3, 8]"));
  EXPECT_THAT(refused(parts, space.view(), w.view(), {WeightFormat::nf4, 5, {8}}),
              HasSubstr("it must be u8"));
  const auto scaled = [&](const LoraParts& of) {
    return std::string(
        scale_columns_async(backend, stream, {x.view(), norm.view(), norm.view(), {}, x.view(), of})
            .message());
  };
  EXPECT_EQ(scaled(parts), "ok");
  EXPECT_THAT(scaled({{{{0, 7, 1}}}, 1}), HasSubstr("m is f32 [8]; it must be f32 [7]"));
}

}  // namespace
}  // namespace strata::kernels
