#include <strata/kernels/recurrent/delta_gates.h>

#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

class DeltaGatesTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t rows = 300, n = 5;
  static DType dtype() { return GetParam(); }
  static double tolerance() { return dtype() == DType::f32 ? 1e-6 : dtype() == DType::f16 ? 5e-4 : 4e-3; }
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  Tensor ba{{rows, 2 * n}, Values(1).floats(rows * 2 * n, 12.0), dtype()},
      a_log{{n}, Values(2).floats(n, 2.0)}, dt_bias{{n}, Values(3).floats(n, 4.0, -3.0)},
      dg{{rows, n}, Values(4).floats(rows*n)}, dbeta{{rows, n}, Values(5).floats(rows*n)};

  std::vector<float> forward(int threads = 2) {
    Tensor g = Tensor::unwritten({rows, n}), beta = g;
    delta_gates_forward_host({ba.view(), a_log.view(), dt_bias.view(), g.view(), beta.view()},
                             *test::pool(threads));
    return test::joined({g.values(), beta.values()});
  }
  struct Gradients {
    std::vector<float> ba, a_log, dt_bias;
  };
  Gradients backward(bool in_place = false, int threads = 2) {
    Tensor from = ba, into = Tensor::unwritten({rows, 2 * n}, dtype()), da_log = Tensor::unwritten({n}),
           ddt_bias = da_log;
    test::Workspace space(delta_gates_backward_workspace_bytes(rows, n));
    Tensor& written = in_place ? from : into;
    delta_gates_backward_host({.ba = from.view(),
                               .a_log = a_log.view(),
                               .dt_bias = dt_bias.view(),
                               .dg = dg.view(),
                               .dbeta = dbeta.view(),
                               .dba = written.view(),
                               .da_log = da_log.view(),
                               .ddt_bias = ddt_bias.view(),
                               .workspace = space.view()},
                              *test::pool(threads));
    return {written.values(), da_log.values(), ddt_bias.values()};
  }
};

TEST_P(DeltaGatesTest, FollowTheF64Reference) {
  const auto x = test::widen(ba.values()), log_a = test::widen(a_log.values()),
             bias = test::widen(dt_bias.values()), of_g = test::widen(dg.values()),
             of_beta = test::widen(dbeta.values());
  std::vector<double> g(rows * n), beta(rows * n), dba(rows * 2 * n), da_log(n), ddt_bias(n);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t h = 0; h < n; ++h) {
      const double b = x[index(t * 2 * n + h)], a = x[index(t * 2 * n + n + h)] + bias[index(h)],
                   rate = std::exp(log_a[index(h)]);
      const std::size_t at = index(t * n + h);
      g[at] = -rate * std::log1p(std::exp(a));
      beta[at] = sigmoid(b);
      dba[index(t * 2 * n + h)] = of_beta[at] * sigmoid(b) * (1 - sigmoid(b));
      dba[index(t * 2 * n + n + h)] = -of_g[at] * rate * sigmoid(a);
      da_log[index(h)] += of_g[at] * g[at];
      ddt_bias[index(h)] -= of_g[at] * rate * sigmoid(a);
    }
  const std::vector<float> got = forward();
  EXPECT_LE(test::relative_error(std::vector<float>(got.begin(), got.begin() + rows * n), g), 1e-6);
  EXPECT_LE(test::relative_error(std::vector<float>(got.begin() + rows * n, got.end()), beta), 1e-6);
  const Gradients gradients = backward();
  EXPECT_LE(test::relative_error(gradients.ba, dba), tolerance());
  EXPECT_LE(test::relative_error(gradients.a_log, da_log), 2e-6);
  EXPECT_LE(test::relative_error(gradients.dt_bias, ddt_bias), 2e-6);
}

TEST_P(DeltaGatesTest, BitsDoNotDependOnThreadsOrOnWhereTheGradientGoes) {
  EXPECT_EQ(test::differing_bits(forward(1), forward(3)), 0u);
  const Gradients want = backward(false, 1), got = backward(true, 3);
  EXPECT_EQ(test::differing_bits(got.ba, want.ba), 0u);
  EXPECT_EQ(test::differing_bits(got.a_log, want.a_log), 0u);
  EXPECT_EQ(test::differing_bits(got.dt_bias, want.dt_bias), 0u);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DeltaGatesTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(DeltaGatesLimitsTest, EveryDecayIsRelativelyExact) {
  const std::vector<float> a = {-80, -40, -17, -8, -6.9f, -1, 0, 1, 15, 19.9f, 20.1f, 90};
  const auto n = static_cast<std::int64_t>(a.size());
  std::vector<float> ba(a.size(), 0.0f);
  ba.insert(ba.end(), a.begin(), a.end());
  Tensor x({1, 2 * n}, ba), zeros({n}, std::vector<float>(a.size())), g = Tensor::unwritten({1, n}), beta = g;
  delta_gates_forward_host({x.view(), zeros.view(), zeros.view(), g.view(), beta.view()}, *test::pool());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double want = std::log1p(std::exp(static_cast<double>(a[i])));
    EXPECT_NEAR(-static_cast<double>(g.values()[i]) / want, 1.0, 5e-7) << a[i];
  }
}

TEST(DeltaGatesCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor ba({2, 6}, std::vector<float>(12)), of_heads({3}, {0, 0, 0}), half({3}, {0, 0, 0}, DType::bf16),
      g = Tensor::unwritten({2, 3});
  const auto message = [&](const TensorView& a_log) {
    return std::string(
        delta_gates_forward_async(backend, stream, {ba.view(), a_log, of_heads.view(), g.view(), g.view()})
            .message());
  };
  EXPECT_EQ(message(of_heads.view()), "ok");
  EXPECT_THAT(message(half.view()), ::testing::HasSubstr("a_log is bf16 [3]; it must be f32 [3]"));
}

}  // namespace
}  // namespace strata::kernels
