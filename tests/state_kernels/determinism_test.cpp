#include <cmath>

#include <strata/state_kernels/gradient.h>
#include <strata/state_kernels/update.h>

#include "support/op_test.h"
#include "support/isas.h"

// Contract C1: the bits do not depend on the number of threads or on the instruction set of the SIMD kernels.
namespace strata::state_kernels {
namespace {

using test::joined;
using test::Tensor;
using test::Values;

std::vector<float> all_ops(ThreadPool& pool) {
  const std::int64_t n = 200003;
  Tensor p({n}, Values(1).floats(n)), g({n}, Values(2).floats(n)), m({n}, Values(3).floats(n)),
      v({n}, Values(4).floats(n, 0.5, 0.5));
  const auto values = [](Tensor& tensor) { return tensor.view().as<float>(); };
  const cpuopt::UpdateStep step =
      cpuopt::make_update_step({.weight_decay = 0.1, .step = 7, .grad_factor = 0.3});
  update_host(
      {step, {.param = values(p), .m = {values(m), nullptr}, .v = {values(v), nullptr}, .g = values(g)}, n},
      pool);
  accumulate_host({m.view(), p.view()}, pool);
  std::vector<double> partials(49);
  square_sum_partials_host({v.view(), test::view(partials)}, pool);
  std::vector<float> halves;  // each partial rounded to float, and the remainder
  for (const double partial : partials) {
    halves.push_back(static_cast<float>(partial));
    halves.push_back(static_cast<float>(partial - static_cast<double>(halves.back())));
  }
  return joined({p.values(), m.values(), v.values(), halves});
}

TEST(StateDeterminismTest, ThreadsNeverChangeABit) {
  const std::vector<float> want = all_ops(*test::pool(1));
  for (const int threads : {2, 3, 8})
    EXPECT_EQ(test::differing_bits(all_ops(*test::pool(threads)), want), 0u) << threads << " threads";
}

TEST(StateDeterminismTest, InstructionSetsNeverChangeABit) {
  const auto pool = test::pool(1);
  const std::vector<float> want = all_ops(*pool);
  for (const simd::CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(test::differing_bits(all_ops(*pool), want), 0u) << to_string(name);
  }
}

TEST(StateDeterminismTest, AllResultsAreFinite) {
  std::size_t not_finite = 0;
  for (const float x : all_ops(*test::pool())) not_finite += !std::isfinite(x);
  EXPECT_EQ(not_finite, 0u);
}

}  // namespace
}  // namespace strata::state_kernels
