#include <strata/kernels/recurrent/scan_gates.h>

#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

class ScanGatesTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t rows = 300, n = 5;
  static constexpr StepLimits limits = {.low = 0.01f, .high = 2.0f};
  static DType dtype() { return GetParam(); }
  static double tolerance() { return dtype() == DType::f32 ? 1e-6 : dtype() == DType::f16 ? 5e-4 : 4e-3; }
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  Tensor dt{{rows, n}, Values(1).floats(rows*n, 8.0), dtype()}, a_log{{n}, Values(2).floats(n, 2.0)},
      dt_bias{{n}, Values(3).floats(n, 2.0, -1.0)}, dstep{{rows, n}, Values(4).floats(rows*n)},
      dg{{rows, n}, Values(5).floats(rows*n)};

  std::vector<float> forward(int threads = 2) {
    Tensor step = Tensor::unwritten({rows, n}), g = step;
    scan_gates_forward_host({dt.view(), a_log.view(), dt_bias.view(), step.view(), g.view(), limits},
                            *test::pool(threads));
    return test::joined({step.values(), g.values()});
  }
  struct Gradients {
    std::vector<float> dt, a_log, dt_bias;
  };
  Gradients backward(bool in_place = false, int threads = 2, bool has_steps = true) {
    Tensor from = dt, into = Tensor::unwritten({rows, n}, dtype()), da_log = Tensor::unwritten({n}),
           ddt_bias = da_log;
    test::Workspace space(scan_gates_backward_workspace_bytes(rows, n));
    Tensor& written = in_place ? from : into;
    scan_gates_backward_host({.dt = from.view(),
                              .a_log = a_log.view(),
                              .dt_bias = dt_bias.view(),
                              .dstep = has_steps ? dstep.view() : TensorView{},
                              .dg = dg.view(),
                              .ddt = written.view(),
                              .da_log = da_log.view(),
                              .ddt_bias = ddt_bias.view(),
                              .limits = limits,
                              .workspace = space.view()},
                             *test::pool(threads));
    return {written.values(), da_log.values(), ddt_bias.values()};
  }
};

TEST_P(ScanGatesTest, FollowTheF64Reference) {
  const auto x = test::widen(dt.values()), log_a = test::widen(a_log.values()),
             bias = test::widen(dt_bias.values()), of_step = test::widen(dstep.values()),
             of_g = test::widen(dg.values());
  std::vector<double> step(rows * n), g(rows * n), ddt(rows * n), da_log(n), ddt_bias(n);
  const auto low = static_cast<double>(limits.low), high = static_cast<double>(limits.high);
  std::int64_t limited = 0;
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t h = 0; h < n; ++h) {
      const std::size_t at = index(t * n + h);
      const double z = x[at] + bias[index(h)], free = std::log1p(std::exp(z)),
                   rate = std::exp(log_a[index(h)]);
      const bool is_free = free >= low && free <= high;
      limited += is_free ? 0 : 1;
      step[at] = std::min(std::max(free, low), high);
      g[at] = -rate * step[at];
      if (is_free) ddt[at] = (of_step[at] - of_g[at] * rate) / (1 + std::exp(-z));
      da_log[index(h)] += of_g[at] * g[at];
      ddt_bias[index(h)] += ddt[at];
    }
  EXPECT_GT(limited, rows / 2);  // on both sides
  const std::vector<float> got = forward();
  EXPECT_LE(test::relative_error(std::vector<float>(got.begin(), got.begin() + rows * n), step), 1e-6);
  EXPECT_LE(test::relative_error(std::vector<float>(got.begin() + rows * n, got.end()), g), 1e-6);
  const Gradients gradients = backward();
  EXPECT_LE(test::relative_error(gradients.dt, ddt), tolerance());
  EXPECT_LE(test::relative_error(gradients.a_log, da_log), 2e-6);
  EXPECT_LE(test::relative_error(gradients.dt_bias, ddt_bias), 2e-6);
}

TEST_P(ScanGatesTest, BitsDoNotDependOnThreadsOrOnWhereTheGradientGoes) {
  EXPECT_EQ(test::differing_bits(forward(1), forward(3)), 0u);
  const Gradients want = backward(false, 1), got = backward(true, 3);
  EXPECT_EQ(test::differing_bits(got.dt, want.dt), 0u);
  EXPECT_EQ(test::differing_bits(got.a_log, want.a_log), 0u);
  EXPECT_EQ(test::differing_bits(got.dt_bias, want.dt_bias), 0u);
}

TEST_P(ScanGatesTest, AGradientThatIsAbsentIsZero) {
  const Gradients got = backward(false, 2, false);
  dstep = Tensor({rows, n}, std::vector<float>(rows * n, 0.0f));
  const Gradients want = backward();
  EXPECT_EQ(test::differing_bits(got.dt, want.dt), 0u);
  EXPECT_EQ(test::differing_bits(got.dt_bias, want.dt_bias), 0u);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ScanGatesTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(ScanGatesLimitsTest, WithoutLimitsEveryStepIsRelativelyExact) {
  const std::vector<float> x = {-80, -40, -17, -8, -6.9f, -1, 0, 1, 15, 19.9f, 20.1f, 90};
  const auto n = static_cast<std::int64_t>(x.size());
  Tensor dt({1, n}, x), zeros({n}, std::vector<float>(x.size())), step = Tensor::unwritten({1, n}), g = step;
  scan_gates_forward_host({dt.view(), zeros.view(), zeros.view(), step.view(), g.view(), {}}, *test::pool());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = std::log1p(std::exp(static_cast<double>(x[i])));
    EXPECT_NEAR(static_cast<double>(step.values()[i]) / want, 1.0, 5e-7) << x[i];
    EXPECT_EQ(g.values()[i], -step.values()[i]);
  }
}

TEST(ScanGatesCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor dt({2, 3}, std::vector<float>(6)), of_heads({3}, {0, 0, 0}), half({3}, {0, 0, 0}, DType::bf16),
      g = Tensor::unwritten({2, 3});
  const auto message = [&](const TensorView& a_log, const StepLimits& limits) {
    return std::string(scan_gates_forward_async(
                           backend, stream, {dt.view(), a_log, of_heads.view(), g.view(), g.view(), limits})
                           .message());
  };
  EXPECT_EQ(message(of_heads.view(), {}), "ok");
  EXPECT_THAT(message(half.view(), {}), ::testing::HasSubstr("a_log is bf16 [3]; it must be f32 [3]"));
  EXPECT_THAT(message(of_heads.view(), {.low = 0.5f, .high = 0.25f}),
              ::testing::HasSubstr("steps are limited to 0.5 to 0.25"));
  EXPECT_THAT(message(of_heads.view(), {.low = -1.0f}), ::testing::HasSubstr("the first must be 0 or more"));
}

}  // namespace
}  // namespace strata::kernels
