#include <strata/state_kernels/update.h>

#include <strata/simd/norm.h>

#include "cpuopt/optimizer_cases.h"
#include "state_kernels/step_by_ops.h"
#include "support/op_test.h"

namespace strata::state_kernels {
namespace {

using cpuopt::MasterLayout;
using cpuopt::test::StoredTensor;

class UpdateTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  const std::int64_t n = GetParam();
  const std::vector<float> a = test::Values(1).floats(n), b = test::Values(2).floats(n);
};

// Compares ops over a whole tensor with cpuopt's functions over blocks.
TEST_P(UpdateTest, EveryOptimizerLayoutAndFormatHasTheBitsOfCpuopt) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  std::vector<double> partials(static_cast<std::size_t>(2 * simd::norm_partial_count(n)));
  float trust = 0;
  for (const cpuopt::OptimizerParams& each : cpuopt::test::every_optimizer())
    for (const MasterLayout layout :
         {MasterLayout::f32, MasterLayout::bf16_split, MasterLayout::bf16_shadow, MasterLayout::f16_shadow})
      for (const StateFormat states : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
        StoredTensor want(each, layout, states, a), got(each, layout, states, a);
        want.step(1, b, DType::f32, 65536);
        cpuopt::UpdateBlock block = got.block();
        block.g = b.data();
        cpuopt::OptimizerParams params = each;
        params.step = 1;
        test::step_by_ops(backend, stream, params, block, n, cpuopt::rounding_noise(17, 3, 1, 0),
                          {partials.data(), partials.data() + simd::norm_partial_count(n), &trust});
        EXPECT_EQ(got.differing_bits_from(want), 0u) << cpuopt::test::name_of(each) << ", layout "
                                                     << static_cast<int>(layout) << ", " << to_string(states);
      }
}

TEST_P(UpdateTest, TheMovingAverageHasTheBitsOfCpuopt) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  for (const MasterLayout layout :
       {MasterLayout::f32, MasterLayout::bf16_split, MasterLayout::bf16_shadow, MasterLayout::f16_shadow})
    for (const float weight : {0.001f, 1.0f}) {
      StoredTensor stored({}, layout, StateFormat::fp32, a);
      cpuopt::UpdateBlock block = stored.block();
      std::vector<float> want = b, got = b;
      block.ema = want.data();
      cpuopt::update_ema_block(weight, block, n);
      block.ema = got.data();
      must(ema_async(backend, stream, {weight, block, n}));
      EXPECT_EQ(test::differing_bits(got, want), 0u) << static_cast<int>(layout) << ", weight " << weight;
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, UpdateTest, ::testing::Values(1, 4097, 65536, 140001));

}  // namespace
}  // namespace strata::state_kernels
