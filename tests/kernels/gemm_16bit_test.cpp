#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "support/op_test.h"

// Linear layers with 16-bit activations and weights, by the CPU's bf16 instructions if it has them, and with
// operands widened to f32.
namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// Forces the widened GEMM within a scope, or leaves the choice to the CPU.
class GemmScope {
 public:
  explicit GemmScope(bool widened) { force_widened_bf16_gemm(widened); }
  ~GemmScope() { force_widened_bf16_gemm(false); }
  GemmScope(const GemmScope&) = delete;
  GemmScope& operator=(const GemmScope&) = delete;
};

struct Sizes {
  std::int64_t rows, n, k;
};

/// The three GEMMs of one linear layer, with a bias and accumulation.
struct Layer {
  Sizes s;
  DType storage;
  bool f32_gradient;
  Tensor x{{s.rows, s.k}, Values(1).floats(s.rows* s.k), storage};
  Tensor w{{s.n, s.k}, Values(2).floats(s.n* s.k), storage};
  Tensor b{{s.n}, Values(3).floats(s.n, 30.0), storage};
  Tensor dy{{s.rows, s.n}, Values(4).floats(s.rows* s.n), storage};
  Tensor dx{{s.rows, s.k}, Values(5).floats(s.rows* s.k, 30.0), storage};  // added to
  Tensor dw{{s.n, s.k}, Values(6).floats(s.n* s.k, 30.0), f32_gradient ? DType::f32 : storage};
  Tensor y = Tensor::unwritten({s.rows, s.n}, storage);
  Tensor no_bias = y;

  void run(ThreadPool& pool) {
    linear_forward_host({x.view(), w.view(), b.view(), y.view()}, pool);
    linear_forward_host({x.view(), w.view(), {}, no_bias.view()}, pool);
    linear_backward_input_host({dy.view(), w.view(), dx.view(), true}, pool);
    linear_backward_weight_host({dy.view(), x.view(), dw.view(), f32_gradient}, pool);
  }
  std::vector<float> results() const {
    return test::joined({y.values(), no_bias.values(), dx.values(), dw.values()});
  }
};

/// Element (i, j) of a GEMM with inner extent k in f64, and the sum of its terms' magnitudes.
struct Sum {
  double value = 0.0, magnitude = 0.0;
  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
};

/// Number of elements of `got` whose distance from `want` exceeds the error of one rounding to the dtype plus
/// that of f32 sums in any order.
template <class Want>
std::size_t wrong(const Tensor& got, std::int64_t columns, const Want& want) {
  const double unit = got.dtype() == DType::bf16 ? 0x1p-8 : got.dtype() == DType::f16 ? 0x1p-11 : 0x1p-24;
  const std::vector<float> values = got.values();
  std::size_t n = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const Sum sum = want(at / columns, at % columns);
    const double bound = unit * std::abs(sum.value) + 4e-6 * sum.magnitude + 0x1p-25;
    n += !(std::abs(static_cast<double>(values[i]) - sum.value) <= bound);
  }
  return n;
}

constexpr Sizes kSizes[] = {{1, 1, 1}, {3, 17, 5}, {5, 4, 0}, {140, 270, 40}, {70, 40, 1100}};

/// Parameters: a dtype, and whether its GEMM is widened. Tests layers of every size with both gradient
/// dtypes.
class Gemm16BitTest : public ::testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  template <class Check>
  static void for_each_layer(const Check& check) {
    for (const Sizes& s : kSizes)
      for (const bool f32_gradient : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << s.rows << " x " << s.n << " x " << s.k << (f32_gradient ? ", gradient in f32" : ""));
        check(Layer{s, std::get<0>(GetParam()), f32_gradient});
      }
  }
  const GemmScope scope{std::get<1>(GetParam())};
};

void expect_follows_the_f64_reference(const Layer& given) {
  const Sizes s = given.s;
  Layer layer = given;
  layer.run(*test::pool());
  const auto x = layer.x.values(), w = layer.w.values(), b = layer.b.values(), dy = layer.dy.values();
  const auto dx = given.dx.values(), dw = given.dw.values();
  const auto at = [](const std::vector<float>& v, std::int64_t i) {
    return static_cast<double>(v[static_cast<std::size_t>(i)]);
  };
  const auto dot = [&](std::int64_t i, std::int64_t j) {
    Sum sum;
    for (std::int64_t p = 0; p < s.k; ++p) sum.add(at(x, i * s.k + p) * at(w, j * s.k + p));
    return sum;
  };
  EXPECT_EQ(wrong(layer.no_bias, s.n, dot), 0u);
  EXPECT_EQ(wrong(layer.y, s.n,
                  [&](std::int64_t i, std::int64_t j) {
                    Sum sum = dot(i, j);
                    sum.add(at(b, j));
                    return sum;
                  }),
            0u);
  EXPECT_EQ(wrong(layer.dx, s.k,
                  [&](std::int64_t i, std::int64_t j) {
                    Sum sum;
                    for (std::int64_t p = 0; p < s.n; ++p) sum.add(at(dy, i * s.n + p) * at(w, p * s.k + j));
                    sum.add(at(dx, i * s.k + j));
                    return sum;
                  }),
            0u);
  EXPECT_EQ(wrong(layer.dw, s.k,
                  [&](std::int64_t i, std::int64_t j) {
                    Sum sum;
                    for (std::int64_t p = 0; p < s.rows; ++p)
                      sum.add(at(dy, p * s.n + i) * at(x, p * s.k + j));
                    if (given.f32_gradient) sum.add(at(dw, i * s.k + j));
                    return sum;
                  }),
            0u);
}

TEST_P(Gemm16BitTest, FollowsTheF64Reference) { for_each_layer(expect_follows_the_f64_reference); }

TEST_P(Gemm16BitTest, NeitherThreadsNorEarlierCallsChangeABit) {
  for_each_layer([](const Layer& given) {
    Layer first = given;
    first.run(*test::pool(1));
    for (const int threads : {2, 8}) {
      Layer again = given;
      again.run(*test::pool(threads));
      EXPECT_EQ(test::differing_bits(again.results(), first.results()), 0u) << threads << " threads";
    }
  });
}

TEST_P(Gemm16BitTest, AWarmLayerDoesNotAllocateItself) {
  ASSERT_TRUE(AllocCounter::hooked());
  for_each_layer([](const Layer& given) {
    Layer layer = given;
    const auto pool = test::pool();
    layer.run(*pool);
    const std::uint64_t before = AllocCounter::count();
    AllocCounter::set_armed(true);
    layer.run(*pool);
    AllocCounter::set_armed(false);
    EXPECT_EQ(AllocCounter::count() - before, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(Gemms, Gemm16BitTest,
                         ::testing::Combine(::testing::Values(DType::bf16, DType::f16), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(to_string(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) ? "_widened" : "");
                         });

TEST(Bf16GemmTest, BothPathsAreMeasuredWhereTheCpuHasInstructionsWhateverIsForced) {
  const GemmScope scope(true);
  const Bf16GemmTimes times = measure_bf16_gemm();
  EXPECT_EQ(times.native_s > 0, native_bf16_gemm() != Bf16Gemm::widened);
  EXPECT_EQ(times.widened_s > 0, native_bf16_gemm() != Bf16Gemm::widened);
  EXPECT_EQ(bf16_gemm(), Bf16Gemm::widened) << "it leaves the choice alone";
}

TEST(Bf16GemmTest, ForcingTheWidenedGemmIsSeenAndUndone) {
  const Bf16Gemm native = bf16_gemm();
  {
    const GemmScope scope(true);
    EXPECT_EQ(bf16_gemm(), Bf16Gemm::widened);
    EXPECT_STREQ(bf16_gemm_kind(), "widened to f32");
  }
  EXPECT_EQ(bf16_gemm(), native);
}

}  // namespace
}  // namespace strata::kernels
