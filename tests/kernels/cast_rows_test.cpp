#include <strata/kernels/cast_rows.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>

#include <strata/dispatch/rows.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>

#include "cuda/elementwise/cast_math.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

constexpr float kBetween = 77.0f;  // the value of the gaps between rows, exact in every dtype

/// Rows in a matrix `stride` values wide, with infinities, zeros, subnormals, the limits of f16, and ties of
/// bf16 and f16 among the values.
std::vector<float> matrix(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {kInfinity, -kInfinity, 0.0f,    -0.0f,     1e-45f,    -3e-40f,    6e-8f,
                                65519.0f,  65520.0f,   3.4e38f, 1.001953f, 1.005859f, 1.0004883f, 1.0014648f};
  std::vector<float> all(static_cast<std::size_t>(rows * stride), kBetween);
  const std::vector<float> drawn = Values(1).floats(rows * columns, 4.0);
  for (std::int64_t row = 0, i = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column, ++i)
      all[static_cast<std::size_t>(row * stride + column)] =
          i < std::ssize(kSpecial) ? kSpecial[i] : drawn[static_cast<std::size_t>(i)];
  return all;
}

template <class F>
void with_type(DType dtype, const F& f) {
  if (dtype == DType::bf16) return f(std::type_identity<bf16>{});
  if (dtype == DType::f16) return f(std::type_identity<f16>{});
  f(std::type_identity<float>{});
}

struct CastCase {
  std::int64_t rows, columns, x_stride, y_stride;
  bool adds = false;
};
constexpr CastCase kCases[] = {{1, 1, 1, 1},
                               {3, 40, 40, 40},
                               {5, 24, 64, 24},
                               {7, 24, 24, 56},
                               {4, 1030, 1040, 1032},
                               {6, 13, 17, 19},
                               {3, 12000, 12000, 12000},
                               {5, 24, 64, 24, true},
                               {4, 1030, 1040, 1032, true},
                               {3, 40, 40, 40, true},
                               {6, 13, 17, 19, true}};

class CastRowsTest : public ::testing::TestWithParam<std::pair<DType, DType>> {
 protected:
  /// Bits of y including its gaps, as f32, after cast(args); x and y begin `off` values after a multiple of
  /// 16 bytes.
  template <class Cast>
  std::vector<std::uint32_t> result(const CastCase& c, std::size_t off, const Cast& cast) {
    const auto [from, to] = GetParam();
    const std::vector<float> in = matrix(c.rows, c.columns, c.x_stride);
    Tensor x({c.rows * c.x_stride}, in, from);
    Tensor y({c.rows * c.y_stride},
             std::vector<float>(static_cast<std::size_t>(c.rows * c.y_stride), kBetween), to);
    struct alignas(16) Line {
      std::byte bytes[16];
    };
    std::vector<Line> x_lines(x.view().bytes() / 16 + 2), y_lines(y.view().bytes() / 16 + 2);
    std::byte* const x_at = reinterpret_cast<std::byte*>(x_lines.data()) + off * size_of(from);
    std::byte* const y_at = reinterpret_cast<std::byte*>(y_lines.data()) + off * size_of(to);
    std::memcpy(x_at, x.view().data, x.view().bytes());
    std::memcpy(y_at, y.view().data, y.view().bytes());
    cast(CastRowsArgs{
        {x_at, {c.rows, c.columns}, from}, {y_at, {c.rows, c.columns}, to}, c.x_stride, c.y_stride, c.adds});
    std::memcpy(y.view().data, y_at, y.view().bytes());
    return bits_of(y.values());
  }
  /// The same by the definition of the op.
  std::vector<std::uint32_t> expected(const CastCase& c) {
    const auto [from, to] = GetParam();
    const std::vector<float> in = matrix(c.rows, c.columns, c.x_stride);
    std::vector<float> y(static_cast<std::size_t>(c.rows * c.y_stride), kBetween);
    for (std::int64_t row = 0; row < c.rows; ++row)
      for (std::int64_t column = 0; column < c.columns; ++column) {
        float value = in[static_cast<std::size_t>(row * c.x_stride + column)];
        const auto round = [&](DType dtype) {
          with_type(dtype, [&]<class T>(std::type_identity<T>) { value = to_f32(from_f32<T>(value)); });
        };
        round(from);
        if (c.adds) value += kBetween;
        round(to);
        y[static_cast<std::size_t>(row * c.y_stride + column)] = value;
      }
    return bits_of(y);
  }
  static std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<std::uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
  }
};

TEST_P(CastRowsTest, RoundsEachValueOrSumOnceAndLeavesGapsUnchanged) {
  for (const CastCase& c : kCases)
    for (const int threads : {1, 2})
      EXPECT_EQ(result(c, 0, [&](const CastRowsArgs& args) { cast_rows_host(args, *test::pool(threads)); }),
                expected(c))
          << c.rows << " x " << c.columns;
}

// Runs the code of the device's threads one after another, as the launch does: with vector accesses if all
// rows are aligned.
TEST_P(CastRowsTest, DeviceThreadsCastLikeTheHost) {
  const auto run = [](auto wide, auto adds) {
    return [](const CastRowsArgs& a) {
      const std::int64_t columns = dispatch::row_length(a.x);
      const std::int64_t runs = dispatch::row_count(a.x) * dispatch::ceil_div(columns, detail::kCastVector);
      with_type(a.x.dtype, [&]<class X>(std::type_identity<X>) {
        with_type(a.y.dtype, [&]<class Y>(std::type_identity<Y>) {
          for (std::int64_t i = runs - 1; i >= 0; --i)
            detail::cast_vector<decltype(wide)::value, decltype(adds)::value>(
                a.x.as<X>(), a.x_stride, a.y.as<Y>(), a.y_stride, columns, i);
        });
      });
    };
  };
  const auto expect_in_both_ways = [&](const CastCase& c, auto adds) {
    EXPECT_EQ(result(c, 1, run(std::false_type{}, adds)), expected(c)) << c.rows << " x " << c.columns;
    if (c.x_stride % 8 == 0 && c.y_stride % 8 == 0) {
      EXPECT_EQ(result(c, 0, run(std::true_type{}, adds)), expected(c))
          << c.rows << " x " << c.columns << " at once";
    }
  };
  for (const CastCase& c : kCases)
    if (c.adds)
      expect_in_both_ways(c, std::true_type{});
    else
      expect_in_both_ways(c, std::false_type{});
}

std::vector<std::pair<DType, DType>> pairs() {
  std::vector<std::pair<DType, DType>> all;
  for (const DType from : {DType::f32, DType::bf16, DType::f16})
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) all.emplace_back(from, to);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Dtypes, CastRowsTest, ::testing::ValuesIn(pairs()), [](const auto& dtypes) {
  return str(to_string(dtypes.param.first), "_to_", to_string(dtypes.param.second));
});

// Packs the columns of each part, as for ranks, and puts them back.
TEST(CastRowsOpTest, PackingAndUnpackingPartsRestoresTheMatrix) {
  constexpr std::int64_t rows = 9, columns = 30, parts = 3, part = columns / parts;
  const std::vector<float> values = Values(3).floats(rows * columns);
  Tensor whole({rows, columns}, values), packed = Tensor::unwritten({parts, rows, part}),
                                         again = Tensor::unwritten({rows, columns});
  const auto pool = test::pool();
  const auto columns_of = [&](Tensor& of, std::int64_t i) {
    return TensorView{of.view().data + i * part * 4, {rows, part}, DType::f32};
  };
  const auto piece = [&](std::int64_t i) {
    return TensorView{packed.view().data + i * rows * part * 4, {rows, part}, DType::f32};
  };
  for (std::int64_t i = 0; i < parts; ++i) {
    cast_rows_host({columns_of(whole, i), piece(i), columns, 0}, *pool);
    cast_rows_host({piece(i), columns_of(again, i), 0, columns}, *pool);
  }
  EXPECT_EQ(again.values(), values);
  EXPECT_EQ(packed.values()[rows * part], values[part]);
}

TEST(CastRowsOpTest, ANanStaysANan) {
  Tensor x({2}, {std::nanf(""), 1.0f}), y({2}, {0.0f, 0.0f}, DType::bf16), z({2}, {0.0f, 0.0f}, DType::f16);
  const auto pool = test::pool();
  cast_rows_host({x.view(), y.view()}, *pool);
  cast_rows_host({y.view(), z.view()}, *pool);
  EXPECT_TRUE(std::isnan(z.values()[0]));
  EXPECT_EQ(z.values()[1], 1.0f);
}

TEST(CastRowsOpTest, InconsistentArgumentsAreRefusedWithBothNumbers) {
  SteadyClock clock;
  const auto pool = test::pool();
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  Tensor x = Tensor::unwritten({4, 6}), y = Tensor::unwritten({4, 6}, DType::f16),
         z = Tensor::unwritten({6, 4});
  std::vector<std::int32_t> integers(24);
  const auto message = [&](const CastRowsArgs& args) {
    return std::string(cast_rows_async(*backend, stream, args).message());
  };
  EXPECT_EQ(message({x.view(), y.view()}), "ok");
  EXPECT_EQ(message({x.view(), z.view()}), "cast_rows: y is f32 [6, 4]; it must be f32, 4 rows of 6");
  EXPECT_EQ(message({x.view(), y.view(), 5, 0}),
            "cast_rows: x_stride is 5; it must be 0 or at least the row length 6");
  EXPECT_EQ(message({x.view(), y.view(), 0, -1}),
            "cast_rows: y_stride is -1; it must be 0 or at least the row length 6");
  EXPECT_EQ(message({test::view(integers), y.view()}),
            "cast_rows: x is i32 [24]; it must be f32, bf16 or f16");
  EXPECT_EQ(message({x.view(), test::view(integers)}), "cast_rows: y is i32; it must be f32, bf16 or f16");
  must(backend->synchronize(stream));
}

}  // namespace
}  // namespace strata::kernels
