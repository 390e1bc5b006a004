#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include <strata/cpuopt/adamw.h>
#include <strata/cpuopt/math/master.h>
#include <strata/cpuopt/norm.h>
#include <strata/runtime/convert.h>

#include "support/isas.h"
#include "support/numeric.h"

namespace strata::cpuopt {
namespace {

using test::differing_bits;
using test::IsaScope;
using test::Values;

constexpr AdamWParams kParams = {
    .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_factor = 0.37};

std::vector<float> edge_values() {
  std::vector<float> values = Values(3).floats(131);
  for (const std::uint32_t bits :
       {0x00000000u, 0x80000000u, 0x00000001u, 0x007FFFFFu, 0x3F808000u, 0x3F807FFFu, 0xBF808000u,
        0x7F7FFFFFu, 0xFF7FFFFFu, 0x7F800000u, 0xFF800000u, 0x3F80FFFFu, 0x00008000u})
    values.push_back(std::bit_cast<float>(bits));
  return values;
}

struct Halves {
  explicit Halves(std::size_t n) : param(n * 4), master(n * 4) {}
  std::vector<std::byte> param, master;  // long enough for every format
};

class StateFormatTest : public ::testing::TestWithParam<DType> {};

TEST_P(StateFormatTest, AMasterComesBackWithTheSameBitsOnEveryInstructionSet) {
  const std::vector<float> values = edge_values();
  Halves scalar(values.size());
  for (const CpuIsa name : test::supported_isas()) {
    const IsaScope isa(name);
    Halves halves(values.size());
    split_masters(values, GetParam(), halves.param.data(), halves.master.data());
    std::vector<float> back(values.size());
    join_masters(GetParam(), halves.param.data(), halves.master.data(), back);
    EXPECT_EQ(differing_bits(back, values), 0u) << to_string(name);
    if (name == CpuIsa::scalar) scalar = halves;
    EXPECT_EQ(halves.param, scalar.param) << to_string(name);
    EXPECT_EQ(halves.master, scalar.master) << to_string(name);
  }
}

TEST(SplitMasterTest, TheUpperHalfIsRoundedHalfAwayAndANanIsTheQuietOne) {
  const auto split = [](std::uint32_t bits) { return split_master(std::bit_cast<float>(bits)); };
  EXPECT_EQ(split(0x3F808000u).high.bits, 0x3F81u);  // nearest even would say 3F80
  EXPECT_EQ(split(0x3F807FFFu).high.bits, 0x3F80u);
  EXPECT_EQ(split(0xBF808000u).high.bits, 0xBF81u);
  EXPECT_EQ(split(0x7F7FFFFFu).high.bits, 0x7F80u);  // infinity to compute with; the master is not lost
  for (const std::uint32_t nan : {0x7FFFFFFFu, 0xFFFFFFFFu, 0x7F800001u}) {
    EXPECT_EQ(split(nan).high.bits, 0x7FC0u);
    EXPECT_EQ(split(nan).low, 0u);
  }
}

// The format changes what is stored, not what is computed: masters and moments are those of an f32 run with
// the same gradients.
TEST_P(StateFormatTest, TheUpdateIsThatOfF32) {
  for (const DType grad : {DType::f32, GetParam()})
    for (const CpuIsa name : test::supported_isas()) {
      const IsaScope isa(name);
      constexpr std::size_t n = 131;
      std::vector<float> p = Values(1).floats(n), m(n), v(n), m2(n), v2(n), back(n);
      Halves halves(n);
      split_masters(p, GetParam(), halves.param.data(), halves.master.data());
      AdamWParams params = kParams;
      for (params.step = 1; params.step <= 5; ++params.step) {
        std::vector<std::byte> raw(n * size_of(grad));
        std::vector<float> g = Values(100 + static_cast<std::uint64_t>(params.step)).floats(n, 0.1);
        must(narrow_from_f32(g, grad, raw));
        must(widen_to_f32(grad, raw, g));
        must(adamw_update(params, p, g, m, v));
        adamw_update_block(adamw_scalars(params), static_cast<float>(params.grad_factor),
                           {.compute = GetParam(),
                            .grad = grad,
                            .param = halves.param.data(),
                            .master = halves.master.data(),
                            .m = m2.data(),
                            .v = v2.data(),
                            .g = raw.data()},
                           n);
      }
      join_masters(GetParam(), halves.param.data(), halves.master.data(), back);
      EXPECT_EQ(differing_bits(back, p) + differing_bits(m2, m) + differing_bits(v2, v), 0u)
          << to_string(name) << ", gradient " << to_string(grad);
    }
}

TEST_P(StateFormatTest, LeavesOfANormAreThoseOfTheWidenedValues) {
  constexpr std::int64_t n = 4096 + 517;
  std::vector<float> x = Values(9).floats(n);
  std::vector<std::byte> raw(x.size() * size_of(GetParam()));
  must(narrow_from_f32(x, GetParam(), raw));
  must(widen_to_f32(GetParam(), raw, x));
  std::vector<double> want(2), got(2);
  must(square_sum_leaves(x, want));
  for (const CpuIsa name : test::supported_isas()) {
    const IsaScope isa(name);
    square_sum_leaves(GetParam(), raw.data(), n, got.data());
    EXPECT_EQ(got, want) << to_string(name);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, StateFormatTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::cpuopt
