// Runs the device's norm partials on the host, one lane after the other.
#include "cuda/square_sum.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <strata/simd/norm.h>
#include <strata/dispatch/cuda/emulation/half_warp.h>

#include "support/numeric.h"

namespace strata::state_kernels {
namespace {

// Partials are staged by packs or, at the end of a tensor and off a pack's addresses, by single elements.
template <class T>
void expect_partials_of_the_host(DType dtype) {
  using Stage = detail::PartialStage<T>;
  for (const std::int64_t n : {1, 17, 4096, 5000, 4 * 4096, 9 * 4096 + 3})
    for (const bool is_aligned : {false, true}) {
      std::vector<T> x;
      for (const float value : test::Values(1).floats(n)) x.push_back(from_f32<T>(value));
      const std::int64_t count = simd::norm_partial_count(n);
      std::vector<double> want(static_cast<std::size_t>(count)), got(want.size());
      simd::square_sum_partials(dtype, x.data(), n, want.data());
      for (std::int64_t begin = 0; begin < count; begin += Stage::kPartials) {
        Stage stage;
        std::memset(static_cast<void*>(&stage), 0xFF, sizeof(stage));
        for (int thread = 0; thread < Stage::kThreads; ++thread)
          detail::stage_partials(thread, x.data() + begin * 4096, n - begin * 4096, is_aligned, stage);
        for (std::int64_t i = begin; i < std::min(count, begin + Stage::kPartials); ++i)
          got[static_cast<std::size_t>(i)] =
              detail::square_sum(dispatch::EmulatedHalfWarp(), stage.at + (i - begin) * Stage::kStride,
                                 std::min<std::int64_t>(4096, n - i * 4096));
      }
      EXPECT_EQ(test::differing_bits(got, want), 0u) << n << ", " << is_aligned;
    }
}

TEST(DeviceSquareSumTest, NormPartialsMatchTheHost) {
  expect_partials_of_the_host<float>(DType::f32);
  expect_partials_of_the_host<bf16>(DType::bf16);
  expect_partials_of_the_host<f16>(DType::f16);
}

}  // namespace
}  // namespace strata::state_kernels
