// Runs the device's norm partials on the host, one lane after the other.
#include "cuda/square_sum.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <strata/simd/norm.h>
#include <strata/dispatch/cuda/emulation/half_warp.h>

#include "support/numeric.h"

namespace strata::state_kernels {
namespace {

TEST(DeviceSquareSumTest, NormPartialsMatchTheHost) {
  for (const std::int64_t n : {1, 17, 4096, 5000}) {
    const std::vector<float> x = test::Values(1).floats(n);
    std::vector<double> want(static_cast<std::size_t>(simd::norm_partial_count(n)));
    must(simd::square_sum_partials(x, want));
    for (std::int64_t partial = 0; partial < simd::norm_partial_count(n); ++partial)
      EXPECT_EQ(detail::square_sum(dispatch::EmulatedHalfWarp(), x.data() + partial * 4096,
                                   std::min<std::int64_t>(4096, n - partial * 4096)),
                want[static_cast<std::size_t>(partial)]);
  }
}

}  // namespace
}  // namespace strata::state_kernels
