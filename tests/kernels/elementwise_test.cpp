#include <strata/kernels/elementwise.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

class ElementwiseTest : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(ElementwiseTest, GeluFollowsTheF64Reference) {
  const std::int64_t n = GetParam();
  const auto x = test::Values(1).floats(n, 6.0), dy = test::Values(2).floats(n);
  Tensor in({n}, x), d({n}, dy), y = Tensor::unwritten({n}), dx = Tensor::unwritten({n});
  gelu_forward_host({in.view(), y.view()}, *test::pool());
  gelu_backward_host({in.view(), d.view(), dx.view()}, *test::pool());
  EXPECT_LE(test::relative_error(y.values(), test::reference::gelu_forward(test::widen(x))), 3e-7);
  // An element far from 0 has the rounding error of the exponent's argument, |2u| 2^-24.
  EXPECT_LE(
      test::relative_error(dx.values(), test::reference::gelu_backward(test::widen(x), test::widen(dy))),
      3e-6);
}

TEST_P(ElementwiseTest, AddMayWriteOverAnInput) {
  const std::int64_t n = GetParam();
  const auto a = test::Values(1).floats(n), b = test::Values(2).floats(n);
  Tensor left({n}, a), right({n}, b);
  add_host({left.view(), right.view(), left.view()}, *test::pool());
  const auto got = left.values();
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(got[i], a[i] + b[i]);
}

TEST_P(ElementwiseTest, FillWritesEveryElement) {
  Tensor x = Tensor::unwritten({GetParam()});
  fill_host({x.view(), 2.5f}, *test::pool());
  EXPECT_EQ(x.values(), std::vector<float>(static_cast<std::size_t>(GetParam()), 2.5f));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ElementwiseTest, ::testing::Values(0, 1, 15, 16, 33, 16384, 40001));

TEST(GeluTest, TailsKeepTheirRelativeAccuracy) {
  for (float x = -9.0f; x < 0.0f; x += 0.01f) {
    Tensor in({1}, {x}), y = Tensor::unwritten({1});
    gelu_forward_host({in.view(), y.view()}, *test::pool(1));
    // The reference also uses x times a sigmoid, since 1 + tanh would cancel.
    const double u2 =
        2.0 * std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * std::pow(static_cast<double>(x), 3));
    const double want = x / (1.0 + std::exp(-u2));
    ASSERT_NEAR(y.values()[0] / want, 1.0, 2e-5) << x;  // near u2 = -87, rounding u2 alone is 87 * 2^-24
  }
}

TEST(GeluTest, LargeValuesPassAndNaNStays) {
  Tensor x({4}, {50.0f, -50.0f, std::nanf(""), 1e-40f}), y = Tensor::unwritten({4});
  Tensor dy({4}, {1.0f, 1.0f, 1.0f, 1.0f}), dx = Tensor::unwritten({4});
  gelu_forward_host({x.view(), y.view()}, *test::pool());
  gelu_backward_host({x.view(), dy.view(), dx.view()}, *test::pool());
  EXPECT_EQ(y.values()[0], 50.0f);
  EXPECT_NEAR(y.values()[1], 0.0f, 1e-30f);
  EXPECT_TRUE(std::isnan(y.values()[2]));
  EXPECT_EQ(y.values()[3], 0.5f * 1e-40f);
  EXPECT_EQ(dx.values()[0], 1.0f);
  EXPECT_NEAR(dx.values()[1], 0.0f, 1e-30f);
  EXPECT_TRUE(std::isnan(dx.values()[2]));
}

TEST(ReluTest, KeepsPositiveValuesForwardAndBackwardAndPassesNaN) {
  const float nan = std::nanf("");
  Tensor x({5}, {-1.0f, 0.0f, 2.0f, nan, -0.0f}), y = Tensor::unwritten({5}), dy({5}, {1, 2, 3, 4, 5}),
                                                  dx = Tensor::unwritten({5});
  relu_forward_host({x.view(), y.view()}, *test::pool());
  EXPECT_EQ(y.values()[0], 0.0f);
  EXPECT_EQ(y.values()[2], 2.0f);
  EXPECT_TRUE(std::isnan(y.values()[3]));
  relu_backward_host({x.view(), dy.view(), dx.view()}, *test::pool());
  EXPECT_EQ(dx.values(), (std::vector<float>{0, 0, 3, 0, 0}));
}

TEST(ReluTest, SquaresPositiveValuesForwardAndBackwardAndPassesNaN) {
  const float nan = std::nanf("");
  Tensor x({5}, {-1.0f, 0.0f, 3.0f, nan, -0.0f}), y = Tensor::unwritten({5}), dy({5}, {1, 2, 5, 4, 5}),
                                                  dx = Tensor::unwritten({5});
  relu_forward_host({x.view(), y.view(), true}, *test::pool());
  EXPECT_EQ(y.values()[0], 0.0f);
  EXPECT_EQ(y.values()[2], 9.0f);
  EXPECT_TRUE(std::isnan(y.values()[3]));
  relu_backward_host({x.view(), dy.view(), dx.view(), true}, *test::pool());
  EXPECT_EQ(dx.values(), (std::vector<float>{0, 0, 30, 0, 0}));
}

class GatedTest : public ::testing::TestWithParam<bool> {};

TEST_P(GatedTest, FollowsTheF64ReferenceForwardAndBackward) {
  const bool gelu = GetParam();
  for (const std::int64_t f : {1, 5, 33}) {
    const std::int64_t rows = 7;
    const auto x = test::Values(1).floats(rows * 2 * f, 6.0), dy = test::Values(2).floats(rows * f);
    Tensor in({rows, 2 * f}, x), y = Tensor::unwritten({rows, f}), d({rows, f}, dy);
    swiglu_forward_host({in.view(), y.view(), gelu}, *test::pool());
    const auto forward = [&](const test::reference::Vec& v) {
      const auto n = static_cast<std::size_t>(f);
      return gelu ? test::reference::geglu_forward(v, n) : test::reference::swiglu_forward(v, n);
    };
    EXPECT_LE(test::relative_error(y.values(), forward(test::widen(x))), 1e-6);
    swiglu_backward_host({in.view(), d.view(), in.view(), gelu}, *test::pool());  // in place
    const auto want = test::reference::central_differences(
        [&](const test::reference::Vec& v) { return test::reference::dot(test::widen(dy), forward(v)); },
        test::widen(x));
    EXPECT_LE(test::relative_error(in.values(), want), 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, GatedTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "GeGlu" : "SwiGlu"; });

class SigmoidGateKindTest : public ::testing::TestWithParam<bool> {};

TEST_P(SigmoidGateKindTest, FollowsTheF64ReferenceForwardAndBackward) {
  const std::int64_t n = 517;
  const bool silu = GetParam();
  const auto x = test::Values(1).floats(n, 3.0), gate = test::Values(2).floats(n, 6.0),
             dy = test::Values(3).floats(n);
  Tensor in({n}, x), gates({n}, gate), y = Tensor::unwritten({n}), d({n}, dy);
  sigmoid_gate_forward_host({in.view(), gates.view(), y.view(), silu}, *test::pool());
  test::reference::Vec want_y, want_dx, want_dgate;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto g = static_cast<double>(gate[i]);
    const double s = 1 / (1 + std::exp(-g)), by = silu ? g * s : s;
    want_y.push_back(x[i] * by);
    want_dx.push_back(dy[i] * by);
    want_dgate.push_back(static_cast<double>(dy[i]) * x[i] * (silu ? s + g * s * (1 - s) : s * (1 - s)));
  }
  EXPECT_LE(test::relative_error(y.values(), want_y), 1e-6);
  sigmoid_gate_backward_host({in.view(), gates.view(), d.view(), in.view(), gates.view(), silu},
                             *test::pool());  // in place
  EXPECT_LE(test::relative_error(in.values(), want_dx), 1e-6);
  EXPECT_LE(test::relative_error(gates.values(), want_dgate), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SigmoidGateKindTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Silu" : "Sigmoid"; });

TEST(MultiplyTest, RoundsOnce) {
  const auto a = test::Values(1).floats(533, 3.0), b = test::Values(2).floats(533, 3.0);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensor one({533}, a, dtype), other({533}, b, dtype), y = Tensor::unwritten({533}, dtype);
    multiply_host({one.view(), other.view(), y.view()}, *test::pool());
    std::vector<float> want = one.values();
    for (std::size_t i = 0; i < want.size(); ++i) want[i] *= other.values()[i];
    EXPECT_EQ(y.values(), Tensor({533}, want, dtype).values());
  }
}

TEST(SigmoidGateTest, RoundsOnceInSixteenBits) {
  const std::int64_t n = 300;
  const auto x = test::Values(1).floats(n, 3.0), gate = test::Values(2).floats(n, 6.0);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor in({n}, x, dtype), gates({n}, gate, dtype), y = Tensor::unwritten({n}, dtype);
    sigmoid_gate_forward_host({in.view(), gates.view(), y.view()}, *test::pool());
    Tensor wide({n}, in.values()), wide_gates({n}, gates.values()), wide_y = Tensor::unwritten({n});
    sigmoid_gate_forward_host({wide.view(), wide_gates.view(), wide_y.view()}, *test::pool());
    EXPECT_EQ(y.values(), Tensor({n}, wide_y.values(), dtype).values());
  }
}

TEST(ScaleTest, MultipliesAndRoundsOnce) {
  const auto x = test::Values(1).floats(5003, 3.0);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensor in({5003}, x, dtype), y = Tensor::unwritten({5003}, dtype);
    scale_host({in.view(), y.view(), 6.5f}, *test::pool());
    std::vector<float> want = in.values();
    for (float& v : want) v *= 6.5f;
    EXPECT_EQ(y.values(), Tensor({5003}, want, dtype).values());
    Tensor by({1}, {13.0f}), in_two = Tensor::unwritten({5003}, dtype);
    scale_host({in.view(), in_two.view(), 0.5f, by.view()}, *test::pool());
    EXPECT_EQ(in_two.values(), y.values());
    scale_host({in.view(), in.view(), 6.5f}, *test::pool());
    EXPECT_EQ(in.values(), y.values());
  }
}

TEST(SoftcapTest, FollowsTheF64ReferenceAndLetsNaNPass) {
  auto x = test::Values(1).floats(20011, 80.0);
  x[7] = std::nanf("");
  x[8] = INFINITY;
  Tensor in({20011}, x), y = Tensor::unwritten({20011});
  softcap_host({in.view(), y.view(), 30.0f}, *test::pool());
  const std::vector<float> got = y.values();
  EXPECT_TRUE(std::isnan(got[7]));
  EXPECT_EQ(got[8], 30.0f);
  for (std::size_t i = 9; i < x.size(); ++i)
    ASSERT_NEAR(got[i], 30.0 * std::tanh(static_cast<double>(x[i]) / 30.0), 8e-6) << x[i];
}

}  // namespace
}  // namespace strata::kernels
