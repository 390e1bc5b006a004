#include <strata/kernels/fp8.h>

#include <cmath>
#include <limits>

#include "cuda/quant/fp8_math.h"
#include "support/op_test.h"

#include <strata/runtime/clock.h>
#include <strata/runtime/backend/host_backend.h>

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// A tensor of e4m3 or e5m2, which test::Tensor does not support.
struct Fp8Tensor {
  std::vector<std::uint8_t> bytes;
  Shape shape;
  DType dtype;
  Fp8Tensor(Shape of, DType type)
      : bytes(static_cast<std::size_t>(of.n_elems()), 0xCB), shape(of), dtype(type) {}
  TensorView view() { return {reinterpret_cast<std::byte*>(bytes.data()), shape, dtype}; }
  float value(std::size_t i) const {
    return dtype == DType::e4m3 ? e4m3_to_f32(bytes[i]) : e5m2_to_f32(bytes[i]);
  }
};

struct CastResult {
  Fp8Tensor rows, columns;
  float inverse = 0;
};
CastResult cast(const std::vector<float>& x, Shape shape, DType dtype, DType stored_dtype = DType::bf16,
                int threads = 2) {
  Tensor in(shape, x, stored_dtype), inverse = Tensor::unwritten({1});
  CastResult out{Fp8Tensor(shape, dtype), Fp8Tensor({shape.dim(1), shape.dim(0)}, dtype)};
  test::Workspace workspace(fp8_cast_workspace_bytes());
  fp8_cast_host({in.view(), out.rows.view(), out.columns.view(), inverse.view(), workspace.view()},
                *test::pool(threads));
  out.inverse = inverse.values()[0];
  return out;
}

TEST(Fp8CastTest, TheScaleIsTheLargestPowerOfTwoThatFits) {
  for (const auto& [dtype, max_value] : {std::pair{DType::e4m3, kMaxE4M3}, std::pair{DType::e5m2, kMaxE5M2}})
    for (const float largest : {1.0f, 1.75f, 1.7500001f, 1.99f, 3e-30f, 2e30f, 448.0f, 57344.0f, 1e-44f}) {
      std::vector<float> x(16 * 16, 0.0f);
      x[37] = -largest;
      const CastResult got = cast(x, {16, 16}, dtype, DType::f32);
      int exponent = 0;
      EXPECT_EQ(std::frexp(got.inverse, &exponent), 0.5f) << largest;
      EXPECT_LE(largest / got.inverse, max_value) << largest;
      EXPECT_TRUE(2 * (largest / got.inverse) > max_value || got.inverse == std::ldexp(1.0f, -126))
          << largest;
      if (largest < 1e-37f) continue;  // too small to be represented with any allowed scale
      EXPECT_NEAR(got.rows.value(37) * got.inverse, -largest, largest / 8);
    }
}

// 5 x 3 tiles, the last of which are partial in both directions.
TEST(Fp8CastTest, CastsAreThoseOfTheScaledValuesAlsoTransposed) {
  const std::int64_t rows = 272, k = 144;
  const auto x = Values(1).floats(rows * k, 3.0);
  for (const DType dtype : {DType::e4m3, DType::e5m2})
    for (const DType stored_dtype : {DType::f32, DType::bf16, DType::f16}) {
      const std::vector<float> stored = Tensor({rows, k}, x, stored_dtype).values();
      const CastResult got = cast(x, {rows, k}, dtype, stored_dtype);
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t i = 0; i < k; ++i) {
          const auto at = static_cast<std::size_t>(t * k + i),
                     across = static_cast<std::size_t>(i * rows + t);
          const float scaled = stored[at] / got.inverse;
          ASSERT_EQ(got.rows.bytes[at], dtype == DType::e4m3 ? f32_to_e4m3(scaled) : f32_to_e5m2(scaled));
          ASSERT_EQ(got.columns.bytes[across], got.rows.bytes[at]) << t << ", " << i;
        }
      const CastResult alone = cast(x, {rows, k}, dtype, stored_dtype, 1);
      EXPECT_EQ(alone.rows.bytes, got.rows.bytes);
      EXPECT_EQ(alone.inverse, got.inverse);
    }
}

TEST(Fp8CastTest, ASingleLayoutHasTheSameBits) {
  const auto x = Values(1).floats(80 * 96);
  const CastResult both = cast(x, {80, 96}, DType::e4m3);
  Tensor in({80, 96}, x, DType::bf16), inverse = Tensor::unwritten({1});
  Fp8Tensor rows({80, 96}, DType::e4m3), columns({96, 80}, DType::e4m3);
  test::Workspace workspace(fp8_cast_workspace_bytes());
  fp8_cast_host({in.view(), rows.view(), {}, inverse.view(), workspace.view()}, *test::pool());
  fp8_cast_host({in.view(), {}, columns.view(), inverse.view(), workspace.view()}, *test::pool());
  EXPECT_EQ(rows.bytes, both.rows.bytes);
  EXPECT_EQ(columns.bytes, both.columns.bytes);
}

TEST(Fp8CastTest, ZerosStayZerosAndANonFiniteValueSpreads) {
  const CastResult zeros = cast(std::vector<float>(256, 0.0f), {16, 16}, DType::e4m3);
  EXPECT_EQ(zeros.inverse, 1.0f);
  EXPECT_EQ(zeros.rows.bytes, std::vector<std::uint8_t>(256, 0));
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(256, 1.0f);
    x[200] = bad;
    EXPECT_TRUE(std::isnan(cast(x, {16, 16}, DType::e5m2).inverse));
  }
}

struct Sides {
  std::int64_t m, n, k;
};
class Fp8GemmTest : public ::testing::TestWithParam<Sides> {};

TEST_P(Fp8GemmTest, IsTheGemmOfTheDequantizedOperands) {
  const auto [m, n, k] = GetParam();
  CastResult a = cast(Values(1).floats(m * k, 0.02), {m, k}, DType::e5m2);
  CastResult b = cast(Values(2).floats(n * k, 300.0), {n, k}, DType::e4m3);
  Tensor a_scale_inv({1}, {a.inverse}), b_scale_inv({1}, {b.inverse});
  const auto bias = Values(3).floats(n);
  std::vector<double> want(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += static_cast<double>(a.rows.value(static_cast<std::size_t>(i * k + l))) * a.inverse *
               b.rows.value(static_cast<std::size_t>(j * k + l)) * b.inverse;
      want[static_cast<std::size_t>(i * n + j)] = sum;
    }
  for (const DType stored_dtype : {DType::bf16, DType::f16}) {
    Tensor of_bias({n}, bias, stored_dtype), c = Tensor::unwritten({m, n}, stored_dtype);
    fp8_gemm_host(
        {a.rows.view(), a_scale_inv.view(), b.rows.view(), b_scale_inv.view(), of_bias.view(), c.view()},
        *test::pool());
    std::vector<double> sums = want;
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += of_bias.values()[i % static_cast<std::size_t>(n)];
    EXPECT_LE(test::relative_error(c.values(), sums), stored_dtype == DType::f16 ? 4e-4 : 3e-3);
  }
  const auto before = Values(4).floats(m * n);
  Tensor c({m, n}, before);
  fp8_gemm_host({a.rows.view(), a_scale_inv.view(), b.rows.view(), b_scale_inv.view(), {}, c.view(), true},
                *test::pool());
  std::vector<double> sums = want;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += before[i];
  EXPECT_LE(test::relative_error(c.values(), sums), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Sides, Fp8GemmTest,
                         ::testing::Values(Sides{16, 16, 16}, Sides{272, 528, 48}, Sides{32, 144, 1040}));

TEST(Fp8GemmTest, ThreadsChangeNoBitAndANaNSpreads) {
  CastResult a = cast(Values(1).floats(304 * 64), {304, 64}, DType::e4m3);
  Tensor inverse({1}, {a.inverse}), none({1}, {std::nanf("")});
  Tensor one = Tensor::unwritten({304, 304}, DType::bf16), three = one, bad = one;
  fp8_gemm_host({a.rows.view(), inverse.view(), a.rows.view(), inverse.view(), {}, one.view()},
                *test::pool(1));
  fp8_gemm_host({a.rows.view(), inverse.view(), a.rows.view(), inverse.view(), {}, three.view()},
                *test::pool(3));
  EXPECT_EQ(test::differing_bits(one.values(), three.values()), 0u);
  fp8_gemm_host({a.rows.view(), none.view(), a.rows.view(), inverse.view(), {}, bad.view()}, *test::pool());
  for (const float value : bad.values()) ASSERT_TRUE(std::isnan(value));
}

TEST(Fp8OpsTest, InconsistentArgumentsAreRefusedWithBothNumbers) {
  SteadyClock clock;
  const auto pool = test::pool();
  const auto backend = must(create_host_backend({}, *pool, clock));
  Stream stream = must(backend->create_stream(StreamRole::compute));
  Tensor x = Tensor::unwritten({16, 24}, DType::bf16), inverse({1}, {1.0f}), c = Tensor::unwritten({16, 32});
  Fp8Tensor rows({16, 24}, DType::e4m3), wide({16, 32}, DType::e4m3), b({32, 16}, DType::e4m3),
      e5m2({32, 32}, DType::e5m2);
  test::Workspace workspace(fp8_cast_workspace_bytes());
  const auto message = [](const Status& status) { return status.message(); };
  EXPECT_NE(
      message(fp8_cast_async(*backend, stream, {x.view(), rows.view(), {}, inverse.view(), workspace.view()}))
          .find("x is [16, 24]; both extents must be multiples of 16"),
      std::string::npos);
  Tensor even = Tensor::unwritten({16, 32}, DType::bf16);
  EXPECT_NE(message(fp8_cast_async(*backend, stream, {even.view(), {}, {}, inverse.view(), workspace.view()}))
                .find("neither rowwise nor columnwise"),
            std::string::npos);
  EXPECT_NE(
      message(fp8_cast_async(*backend, stream, {even.view(), b.view(), {}, inverse.view(), workspace.view()}))
          .find("rowwise is e4m3 [32, 16]; it must be e4m3 [16, 32]"),
      std::string::npos);
  EXPECT_NE(message(fp8_gemm_async(*backend, stream,
                                   {wide.view(), inverse.view(), e5m2.view(), inverse.view(), {}, c.view()}))
                .find("b is e5m2 [32, 32]; it must be e4m3 [32, 32]"),
            std::string::npos);
  EXPECT_NE(message(fp8_gemm_async(*backend, stream,
                                   {wide.view(), inverse.view(), b.view(), inverse.view(), {}, c.view()}))
                .find("b is e4m3 [32, 16]; it must be e4m3 [32, 32]"),
            std::string::npos);
}

}  // namespace
}  // namespace strata::kernels
