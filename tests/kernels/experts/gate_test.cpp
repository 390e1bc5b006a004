#include <strata/kernels/experts/gate.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <gmock/gmock.h>

#include "support/isas.h"
#include "support/op_test.h"
#include "support/reference/experts.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using Kind = ExpertGate::Kind;

// No 16-bit value is at the limit, where there is no derivative.
constexpr ExpertGate kGates[] = {{Kind::silu}, {Kind::gelu}, {Kind::clamped, 2.005f, 1.702f}, {Kind::relu2}};

class ExpertGateTest : public ::testing::TestWithParam<std::tuple<DType, int>> {
 protected:
  static constexpr std::int64_t tokens = 9, chosen = 2, rows = tokens * chosen, f = 77;
  DType dtype() const { return std::get<0>(GetParam()); }
  ExpertGate gate() const { return kGates[std::get<1>(GetParam())]; }
  double tolerance() const { return dtype() == DType::f32 ? 1e-6 : dtype() == DType::f16 ? 5e-4 : 4e-3; }

  std::int64_t width() const { return gate().parts() * f; }
  std::int64_t up() const { return width() - f; }  // a gate without ups stands for both

  Tensor gate_up{{rows, width()}, Values(1).floats(rows*width(), 4.0), dtype()},
      da{{rows, f}, Values(2).floats(rows*f), dtype()}, weights{{tokens, chosen}, Values(3).floats(rows)};
  std::vector<std::int32_t> source = shuffled();

  static std::vector<std::int32_t> shuffled() {
    std::vector<std::int32_t> order(rows);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i * 5 % rows);
    return order;
  }
  std::vector<float> forward(int threads = 2) {
    Tensor a = Tensor::unwritten({rows, f}, dtype());
    expert_gate_forward_host({gate_up.view(), weights.view(), test::view(source), a.view(), gate()},
                             *test::pool(threads));
    return a.values();
  }
  struct Gradients {
    std::vector<float> gate_up, weights;
  };
  Gradients backward(bool in_place = false, int threads = 2) {
    Tensor from = gate_up, into = Tensor::unwritten({rows, width()}, dtype()),
           dweights = Tensor::unwritten({tokens, chosen});
    Tensor& written = in_place ? from : into;
    expert_gate_backward_host(
        {from.view(), weights.view(), test::view(source), da.view(), written.view(), dweights.view(), gate()},
        *test::pool(threads));
    return {written.values(), dweights.values()};
  }
  double value(const std::vector<float>& values, std::int64_t r, std::int64_t c) const {
    return static_cast<double>(values[static_cast<std::size_t>(r * width() + c)]);
  }
  double weight(std::int64_t r) const {
    return static_cast<double>(
        weights.values()[static_cast<std::size_t>(source[static_cast<std::size_t>(r)])]);
  }
};

TEST_P(ExpertGateTest, FollowsTheF64Reference) {
  const std::vector<float> values = gate_up.values();
  std::vector<double> want;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < f; ++c)
      want.push_back(weight(r) *
                     test::reference::expert_gate(gate(), value(values, r, c), value(values, r, up() + c)));
  EXPECT_LE(test::relative_error(forward(), want), tolerance());
}

TEST_P(ExpertGateTest, GradientsFollowTheF64Reference) {
  const std::vector<float> values = gate_up.values(), d = da.values();
  std::vector<double> want(static_cast<std::size_t>(rows * width())), want_weights(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < f; ++c) {
      const double g = value(values, r, c), u = value(values, r, up() + c),
                   of_a = static_cast<double>(d[static_cast<std::size_t>(r * f + c)]);
      const auto at = static_cast<std::size_t>(r * width() + c);
      want[at] =
          weight(r) * of_a *
          test::reference::slope([&](double x) { return test::reference::expert_gate(gate(), x, u); }, g);
      if (up() > 0)
        want[at + f] =
            weight(r) * of_a *
            test::reference::slope([&](double x) { return test::reference::expert_gate(gate(), g, x); }, u);
      want_weights[static_cast<std::size_t>(source[static_cast<std::size_t>(r)])] +=
          of_a * test::reference::expert_gate(gate(), g, u);
    }
  const Gradients got = backward();
  EXPECT_LE(test::relative_error(got.gate_up, want), tolerance());
  EXPECT_LE(test::relative_error(got.weights, want_weights), 1e-6);
}

TEST_P(ExpertGateTest, TheGradientMayBeWrittenOverTheInput) {
  const Gradients apart = backward(), in_place = backward(true);
  EXPECT_EQ(test::differing_bits(in_place.gate_up, apart.gate_up), 0u);
  EXPECT_EQ(test::differing_bits(in_place.weights, apart.weights), 0u);
}

TEST_P(ExpertGateTest, BitsDoNotDependOnThreadsOrTheInstructionSet) {
  const std::vector<float> want = forward(1);
  const Gradients gradients = backward(false, 1);
  for (const simd::CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(forward(3), want), 0u) << to_string(name);
    const Gradients got = backward(false, 3);
    EXPECT_EQ(test::differing_bits(got.gate_up, gradients.gate_up), 0u) << to_string(name);
    EXPECT_EQ(test::differing_bits(got.weights, gradients.weights), 0u) << to_string(name);
  }
}

std::string gate_name(const ::testing::TestParamInfo<std::tuple<DType, int>>& each) {
  constexpr const char* kNames[] = {"silu", "gelu", "clamped", "relu2"};
  return std::string(to_string(std::get<0>(each.param))) + "_" + kNames[std::get<1>(each.param)];
}

INSTANTIATE_TEST_SUITE_P(Gates, ExpertGateTest,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Range(0, 4)),
                         gate_name);

TEST(ExpertGateLimitTest, WhatIsBeyondALimitHasNoGradientAndANaNPasses) {
  Tensor gate_up({1, 6}, {3, -9, std::nanf(""), 0, 5, -5}), da({1, 3}, {1, 1, 1}), w({1, 1}, {1.0f}),
      dweights = Tensor::unwritten({1, 1}), a = Tensor::unwritten({1, 3});
  std::vector<std::int32_t> source = {0};
  const ExpertGate gate = {Kind::clamped, 2.0f, 1.0f};
  expert_gate_forward_host({gate_up.view(), w.view(), test::view(source), a.view(), gate}, *test::pool());
  EXPECT_TRUE(std::isnan(a.values()[2]));
  expert_gate_backward_host(
      {gate_up.view(), w.view(), test::view(source), da.view(), gate_up.view(), dweights.view(), gate},
      *test::pool());
  const std::vector<float> d = gate_up.values();
  EXPECT_EQ(d[0], 0.0f);
  EXPECT_NE(d[1], 0.0f);
  EXPECT_TRUE(std::isnan(d[2]));
  EXPECT_NE(d[3], 0.0f);
  EXPECT_EQ(d[4], 0.0f);
  EXPECT_EQ(d[5], 0.0f);
}

TEST(ExpertGateCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor gate_up({2, 8}, std::vector<float>(16)), a({2, 4}, std::vector<float>(8)), w({1, 2}, {1, 1}),
      half({2, 4}, std::vector<float>(8), DType::f16);
  std::vector<std::int32_t> source = {0, 1}, three = {0, 1, 0};
  const auto message = [&](const auto& change) {
    ExpertGateForwardArgs args = {gate_up.view(), w.view(), test::view(source), a.view(), {}};
    change(args);
    return std::string(expert_gate_forward_async(backend, stream, args).message());
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message([](ExpertGateForwardArgs&) {}), "ok");
  EXPECT_THAT(message([&](ExpertGateForwardArgs& c) { c.a = half.view(); }), HasSubstr("a is f16 [2, 4]"));
  EXPECT_THAT(message([&](ExpertGateForwardArgs& c) { c.source = test::view(three); }),
              HasSubstr("source is i32 [3]; it must be i32 with 2 elements"));
  EXPECT_THAT(message([&](ExpertGateForwardArgs& c) { c.gate_up = a.view(); }),
              HasSubstr("gate_up is f32 [2, 4]; it must be f32, 2 rows of 8"));
  EXPECT_THAT(message([](ExpertGateForwardArgs& c) { c.gate.kind = Kind::clamped; }),
              HasSubstr("limit is 0; it must be above 0"));
}

}  // namespace
}  // namespace strata::kernels
