#include <strata/kernels/optimizer.h>

#include <strata/cpuopt/norm.h>

#include "op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

class OptimizerTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  const std::int64_t n = GetParam();
  const std::vector<float> a = test::Values(1).floats(n), b = test::Values(2).floats(n);
};

TEST_P(OptimizerTest, AdamWHasTheBitsOfCpuopt) {
  const cpuopt::OptimizerParams params = {.lr = 1e-2, .weight_decay = 0.1, .step = 3, .grad_factor = 0.5};
  std::vector<float> p = a, m = b, v(a.size(), 0.25f);
  Tensor tp({n}, p), tg({n}, b), tm({n}, m), tv({n}, v);
  must(cpuopt::adamw_update(params, p, b, m, v));
  adamw_host({params, tp.view(), tg.view(), tm.view(), tv.view(), {}}, *test::pool());
  EXPECT_EQ(test::differing_bits(tp.values(), p) + test::differing_bits(tm.values(), m) +
                test::differing_bits(tv.values(), v),
            0u);
}

TEST_P(OptimizerTest, AccumulateAddsElementwise) {
  Tensor acc({n}, a), g({n}, b);
  accumulate_host({acc.view(), g.view()}, *test::pool());
  const auto got = acc.values();
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(got[i], a[i] + b[i]);
}

TEST_P(OptimizerTest, NormLeavesHaveTheBitsOfCpuopt) {
  std::vector<double> want(static_cast<std::size_t>(cpuopt::norm_leaves(n))), got = want;
  must(cpuopt::square_sum_leaves(a, want));
  Tensor x({n}, a);
  square_sum_leaves_host({x.view(), test::view(got)}, *test::pool());
  EXPECT_EQ(test::differing_bits(got, want), 0u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, OptimizerTest, ::testing::Values(0, 1, 4097, 65536, 140001));

TEST(OptimizerTest, AFactorInMemoryReplacesTheParameter) {
  const std::vector<float> start = test::Values(5).floats(9);
  const auto run = [&](double by_value, TensorView in_memory) {
    Tensor p({9}, start), g({9}, start), m({9}, start), v({9}, std::vector<float>(9, 1.0f));
    adamw_host({{.grad_factor = by_value}, p.view(), g.view(), m.view(), v.view(), in_memory}, *test::pool());
    return p.values();
  };
  Tensor factor({1}, {0.125f});
  EXPECT_EQ(run(7.0, factor.view()), run(0.125, {}));
  EXPECT_NE(run(7.0, {}), run(0.125, {}));
}

}  // namespace
}  // namespace strata::kernels
