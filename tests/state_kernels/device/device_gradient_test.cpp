// Ops on gradients on the GPU have the bits of the host's. Skipped without a GPU.
#include <gtest/gtest.h>

#include <strata/simd/norm.h>
#include <strata/state_kernels/gradient.h>

#include "support/device_fixture.h"

namespace strata::state_kernels {
namespace {

class DeviceGradientTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
};

TEST_P(DeviceGradientTest, GradientsAndTheirNorms) {
  constexpr std::int64_t n = 3 * 4096 + 77;
  const TensorView g = in({n}, 2);
  for (const bool first : {true, false})
    expect_same_bits<AccumulateArgs>("accumulate", {in({n}, 1, 1.0, DType::f32), g, first}, &accumulate_host,
                                     &accumulate_async, {&AccumulateArgs::acc});
  expect_same_bits<SquareSumPartialsArgs>(
      "partials", {g, unwritten({simd::norm_partial_count(n)}, DType::f64)}, &square_sum_partials_host,
      &square_sum_partials_async, {&SquareSumPartialsArgs::partials});
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceGradientTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::state_kernels
