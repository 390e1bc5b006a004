#include <strata/state_kernels/gradient.h>

#include <strata/simd/norm.h>

#include "support/op_test.h"

namespace strata::state_kernels {
namespace {

using test::Tensor;

class GradientTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  const std::int64_t n = GetParam();
  const std::vector<float> a = test::Values(1).floats(n), b = test::Values(2).floats(n);
};

TEST_P(GradientTest, AccumulateAddsElementwise) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool first : {true, false}) {
      Tensor acc({n}, a), g({n}, b, dtype);
      const std::vector<float> rounded = g.values();
      accumulate_host({acc.view(), g.view(), first}, *test::pool());
      const std::vector<float> got = acc.values();
      for (std::size_t i = 0; i < a.size(); ++i)
        ASSERT_EQ(got[i], first ? rounded[i] : a[i] + rounded[i]) << to_string(dtype);
    }
}

TEST_P(GradientTest, NormPartialsHaveTheBitsOfCpuopt) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<double> want(static_cast<std::size_t>(simd::norm_partial_count(n))), got = want;
    Tensor x({n}, a, dtype);
    simd::square_sum_partials(dtype, x.view().data, n, want.data());
    square_sum_partials_host({x.view(), test::view(got)}, *test::pool());
    EXPECT_EQ(test::differing_bits(got, want), 0u) << to_string(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GradientTest, ::testing::Values(1, 4097, 65536, 140001));

}  // namespace
}  // namespace strata::state_kernels
