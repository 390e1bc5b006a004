#include <strata/cpuopt/adamw.h>
#include <strata/simd/convert.h>
#include <strata/simd/gradient.h>
#include <strata/cpuopt/master.h>

#include <limits>
#include <tuple>

#include <gtest/gtest.h>

#include "support/isas.h"
#include "support/numeric.h"

namespace strata::cpuopt {
namespace {

using test::differing_bits;
using test::IsaScope;
using test::Values;

constexpr OptimizerParams kParams = {
    .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

struct State {
  explicit State(std::int64_t n) : p(Values(1).floats(n)), m(p.size()), v(p.size()) {}
  std::vector<float> p, m, v;
};

std::vector<float> gradient(std::int64_t n, std::int64_t step) {
  return Values(100 + static_cast<std::uint64_t>(step)).floats(n, 0.1);
}

void run(State& state, std::int64_t steps) {
  OptimizerParams params = kParams;
  for (params.step = 1; params.step <= steps; ++params.step)
    must(adamw_update(params, state.p, gradient(static_cast<std::int64_t>(state.p.size()), params.step),
                      state.m, state.v));
}

TEST(AdamWTest, FiftyStepsFollowTheF64Reference) {
  State state(1001);
  std::vector<double> p = test::widen(state.p), m(p.size()), v(p.size());
  run(state, 50);
  for (std::int64_t step = 1; step <= 50; ++step) {
    const std::vector<float> g = gradient(1001, step);
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * static_cast<double>(g[i]);
      v[i] = 0.95 * v[i] + 0.05 * static_cast<double>(g[i]) * static_cast<double>(g[i]);
      const double m_hat = m[i] / (1.0 - std::pow(0.9, step));
      const double v_hat = v[i] / (1.0 - std::pow(0.95, step));
      p[i] = p[i] * (1.0 - 3e-3 * 0.1) - 3e-3 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
  }
  EXPECT_LE(test::relative_error(state.p, p), 1e-6);
  EXPECT_LE(test::relative_error(state.m, m), 1e-6);
  EXPECT_LE(test::relative_error(state.v, v), 1e-6);
}

class AdamWSizes : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(AdamWSizes, EveryInstructionSetGivesTheSameBits) {
  State scalar(GetParam());
  {
    const IsaScope isa(CpuIsa::scalar);
    run(scalar, 10);
  }
  for (const CpuIsa name : test::supported_isas()) {
    const IsaScope isa(name);
    State state(GetParam());
    run(state, 10);
    EXPECT_EQ(differing_bits(state.p, scalar.p) + differing_bits(state.m, scalar.m) +
                  differing_bits(state.v, scalar.v),
              0u)
        << to_string(name);
  }
}

TEST_P(AdamWSizes, SplitAndMisalignedRangesGiveTheSameBits) {
  const std::int64_t n = GetParam();
  State whole(n), parts(n);
  const std::vector<float> g = gradient(n, 1);
  must(adamw_update(kParams, whole.p, g, whole.m, whole.v));
  const std::size_t size = parts.p.size();
  for (std::size_t at = 0, len = 1; at < size; at += len, len = std::min(len + 2, size - at)) {
    const std::span<float> p(parts.p), m(parts.m), v(parts.v);
    must(adamw_update(kParams, p.subspan(at, len), std::span(g).subspan(at, len), m.subspan(at, len),
                      v.subspan(at, len)));
  }
  EXPECT_EQ(
      differing_bits(whole.p, parts.p) + differing_bits(whole.m, parts.m) + differing_bits(whole.v, parts.v),
      0u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AdamWSizes, ::testing::Values(0, 1, 15, 16, 17, 1003));

TEST(AdamWTest, SpecialValuesGiveTheSameBitsOnEveryInstructionSet) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> g = {
      std::numeric_limits<float>::quiet_NaN(), inf, -inf, 1e-42f, -1e-45f, 0.0f, -0.0f, 3e38f, 1e-20f};
  const auto step = [&](CpuIsa name) {
    const IsaScope isa(name);
    State state(static_cast<std::int64_t>(g.size()));
    must(adamw_update(kParams, state.p, g, state.m, state.v));
    return state;
  };
  const State scalar = step(CpuIsa::scalar);
  EXPECT_TRUE(std::isnan(scalar.p[0]));
  EXPECT_NE(scalar.m[3], 0.0f) << "a denormal was flushed";
  for (const CpuIsa name : test::supported_isas()) {
    const State state = step(name);
    EXPECT_EQ(differing_bits(state.p, scalar.p) + differing_bits(state.m, scalar.m) +
                  differing_bits(state.v, scalar.v),
              0u)
        << to_string(name);
  }
}

TEST(AdamWTest, TheGradientFactorMultipliesTheGradientFirst) {
  State scaled(37), plain(37);
  std::vector<float> g = gradient(37, 1);
  OptimizerParams params = kParams;
  params.grad_factor = 0.25;
  must(adamw_update(params, scaled.p, g, scaled.m, scaled.v));
  for (float& x : g) x *= 0.25f;
  must(adamw_update(kParams, plain.p, g, plain.m, plain.v));
  EXPECT_EQ(differing_bits(scaled.p, plain.p), 0u);
}

TEST(AdamWTest, DifferentLengthsAreRefusedWithTheNumbers) {
  State state(8);
  const Status status = adamw_update(kParams, state.p, std::vector<float>(7), state.m, state.v);
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("8 parameters, but 7 gradients"), std::string_view::npos)
      << status.message();
}

template <class T>
std::vector<T> narrowed(const std::vector<float>& x) {
  std::vector<T> out(x.size());
  narrow(x.data(), out.data(), std::ssize(x));
  return out;
}
template <class T>
std::vector<float> widened(const std::vector<T>& x) {
  std::vector<float> out(x.size());
  widen(x.data(), out.data(), std::ssize(x));
  return out;
}

// Narrow gradients and shadows do not change masters and moments: they are those of an f32 step with the same
// gradient values.
template <class T>
void expect_the_same_with_gradients_of() {
  State plain(1003), narrow_g(1003), shadowed(1003);
  const std::vector<T> g = narrowed<T>(gradient(1003, 1));
  std::vector<T> shadow(1003);
  must(adamw_update(kParams, plain.p, widened(g), plain.m, plain.v));
  must(adamw_update(kParams, narrow_g.p, g, narrow_g.m, narrow_g.v));
  must(adamw_update(kParams, shadowed.p, g, shadowed.m, shadowed.v, shadow));
  EXPECT_EQ(differing_bits(narrow_g.p, plain.p) + differing_bits(narrow_g.v, plain.v), 0u);
  EXPECT_EQ(differing_bits(shadowed.p, plain.p) + differing_bits(shadowed.v, plain.v), 0u);
  EXPECT_EQ(differing_bits(widened(shadow), widened(narrowed<T>(plain.p))), 0u);
}
TEST(AdamWTest, NarrowGradientsAndShadowsChangeNoMaster) {
  expect_the_same_with_gradients_of<bf16>();
  expect_the_same_with_gradients_of<f16>();
}

TEST(AdamWTest, ASplitMasterHasTheBitsOfAnF32Master) {
  State plain(1003), halves(1003);
  const std::vector<bf16> g = narrowed<bf16>(gradient(1003, 1));
  std::vector<bf16> high(1003);
  std::vector<std::uint16_t> low(1003);
  split_masters(halves.p, MasterLayout::bf16_split, high.data(), low.data());
  must(adamw_update(kParams, plain.p, widened(g), plain.m, plain.v));
  must(adamw_update(kParams, high, low, g, halves.m, halves.v));
  join_masters(MasterLayout::bf16_split, high.data(), low.data(), halves.p);
  EXPECT_EQ(differing_bits(halves.p, plain.p) + differing_bits(halves.m, plain.m), 0u);
  const Status status = adamw_update(kParams, high, std::span(low).first(5), g, halves.m, halves.v);
  EXPECT_NE(status.message().find("1003 parameters, but 5 lower halves"), std::string_view::npos);
}

// SIMD kernels check many masters at once for a NaN, so a single NaN is tested in every position.
TEST(AdamWTest, ASingleNanInAnyPositionGivesTheSameHalvesOnEveryInstructionSet) {
  constexpr std::size_t kSize = 64 + 7;
  struct Halves {
    std::vector<std::uint16_t> high, low;
    bool operator==(const Halves&) const = default;
  };
  const auto step = [&](CpuIsa name, std::size_t place) {
    const IsaScope isa(name);
    State state(kSize);
    std::vector<bf16> g = narrowed<bf16>(gradient(kSize, 1)), high(kSize);
    g[place].bits = 0x7FFF;
    Halves halves{.high = {}, .low = std::vector<std::uint16_t>(kSize)};
    split_masters(state.p, MasterLayout::bf16_split, high.data(), halves.low.data());
    must(adamw_update(kParams, high, halves.low, g, state.m, state.v));
    for (const bf16 x : high) halves.high.push_back(x.bits);
    return halves;
  };
  for (std::size_t place = 0; place < kSize; ++place) {
    const Halves scalar = step(CpuIsa::scalar, place);
    EXPECT_EQ(scalar.high[place], 0x7FC0);
    EXPECT_EQ(scalar.low[place], 0);
    for (const CpuIsa name : test::supported_isas())
      EXPECT_TRUE(step(name, place) == scalar) << to_string(name) << " at " << place;
  }
}

TEST(AccumulateTest, AddsElementwiseWithTheSameBitsEverywhere) {
  for (const CpuIsa name : test::supported_isas()) {
    const IsaScope isa(name);
    std::vector<float> acc = Values(5).floats(131);
    const std::vector<float> before = acc, g = Values(6).floats(131);
    accumulate(acc, DType::f32, g.data(), false);
    for (std::size_t i = 0; i < acc.size(); ++i) EXPECT_EQ(acc[i], before[i] + g[i]);
    std::vector<std::uint16_t> half(g.size());
    narrow(g.data(), reinterpret_cast<bf16*>(half.data()), 131);
    accumulate(acc, DType::bf16, half.data(), true);
    for (std::size_t i = 0; i < acc.size(); ++i) EXPECT_EQ(acc[i], bf16_to_f32(half[i]));
  }
}

}  // namespace
}  // namespace strata::cpuopt
