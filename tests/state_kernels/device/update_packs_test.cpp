// Runs the update kernels of a GPU thread by thread on the host: packs, single elements and the tail of a
// range have the bits of cpuopt for every optimizer, layout, format and dtype of gradients.
#include "cuda/update_packs.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <strata/simd/norm.h>
#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/runtime/str.h>

#include "cpuopt/optimizer_cases.h"

namespace strata::state_kernels {
namespace {

using cpuopt::MasterLayout;
using cpuopt::MomentKind;
using cpuopt::UpdateBlock;
using cpuopt::test::StoredTensor;
using detail::thread_range;

constexpr MasterLayout kLayouts[] = {MasterLayout::f32, MasterLayout::bf16_split, MasterLayout::bf16_shadow,
                                     MasterLayout::f16_shadow};
constexpr StateFormat kFormats[] = {StateFormat::fp32, StateFormat::bf16, StateFormat::int8};

/// Calls f(std::integral_constant of the layout).
template <class F>
void with_layout(MasterLayout layout, const F& f) {
  const auto call = [&]<std::size_t... kLayout>(std::index_sequence<kLayout...>) {
    ((static_cast<std::size_t>(layout) == kLayout
          ? f(std::integral_constant<MasterLayout, static_cast<MasterLayout>(kLayout)>())
          : void()),
     ...);
  };
  call(std::make_index_sequence<cpuopt::kMasterLayouts>());
}

/// One launch of update_elements: warps of 32 threads, whose maxima are found between their two halves.
template <class Rule, MasterLayout kLayout>
void run_update(const cpuopt::UpdateStep& step, const UpdateBlock& b, std::int64_t n,
                const cpuopt::RoundingNoise& noise, bool are_aligned) {
  for (std::int64_t first = 0; first < n; first += kMomentBlock) {
    detail::UpdateThread<Rule, kLayout> threads[32];
    std::uint32_t m_bits = 0, v_bits = 0;
    const auto range = [&](int lane) {
      return thread_range(first / detail::kThreadElems + lane, n, are_aligned);
    };
    for (int lane = 0; lane < 32; ++lane) {
      threads[lane].step(step.scalars, b, range(lane));
      m_bits = std::max(m_bits, detail::max_bits(range(lane), threads[lane].m));
      v_bits = std::max(v_bits, detail::max_bits(range(lane), threads[lane].v));
    }
    for (int lane = 0; lane < 32; ++lane) threads[lane].store_moments(b, range(lane), noise, m_bits, v_bits);
  }
}
template <class... Rules>
void run_rule(cpuopt::RuleList<Rules...>, const cpuopt::UpdateStep& step, const UpdateBlock& b,
              std::int64_t n, const cpuopt::RoundingNoise& noise, bool are_aligned) {
  int rule = 0;
  ((rule++ == step.rule
        ? with_layout(b.layout,
                      [&](auto layout) { run_update<Rules, layout()>(step, b, n, noise, are_aligned); })
        : void()),
   ...);
}
/// The second pass of lamb, its norms by emulated half warps.
void run_lamb(const cpuopt::UpdateStep& step, const UpdateBlock& b, std::int64_t n, bool are_aligned) {
  std::vector<double> masters, directions;
  with_layout(b.layout, [&](auto layout) {
    for (std::int64_t at = 0; at < n; at += simd::kNormPartialElems) {
      const std::int64_t length = std::min(simd::kNormPartialElems, n - at);
      const auto sums = [&](auto format) {
        return detail::lamb_square_sums<layout(), format()>(dispatch::EmulatedHalfWarp(), step.scalars, b, at,
                                                            length);
      };
      const detail::LambSquareSums of_partial =
          b.states == StateFormat::fp32   ? sums(std::integral_constant<StateFormat, StateFormat::fp32>())
          : b.states == StateFormat::bf16 ? sums(std::integral_constant<StateFormat, StateFormat::bf16>())
                                          : sums(std::integral_constant<StateFormat, StateFormat::int8>());
      masters.push_back(of_partial.masters);
      directions.push_back(of_partial.directions);
    }
    const float trust = cpuopt::lamb_trust_ratio(simd::tree_sum(masters), simd::tree_sum(directions));
    for (std::int64_t thread = 0; thread * detail::kThreadElems < n; ++thread)
      detail::apply_lamb<layout()>(step.scalars, b, thread_range(thread, n, are_aligned), trust);
  });
}

class UpdatePacksTest : public ::testing::TestWithParam<std::tuple<std::int64_t, DType>> {
 protected:
  /// Three steps of every optimizer, layout and format.
  void expect_the_bits_of_cpuopt(bool are_aligned) {
    const auto [n, grad] = GetParam();
    const std::vector<float> start = test::Values(1).floats(n);
    for (const cpuopt::OptimizerParams& each : cpuopt::test::every_optimizer())
      for (const MasterLayout layout : kLayouts)
        for (const StateFormat states : kFormats) {
          StoredTensor want(each, layout, states, start), got(each, layout, states, start);
          cpuopt::OptimizerParams params = each;
          for (params.step = 1; params.step <= 3; ++params.step) {
            const std::vector<float> g =
                test::Values(100 + static_cast<std::uint64_t>(params.step)).floats(n, 0.1);
            want.step(params.step, g, grad, 65536);
            std::vector<std::byte> raw(g.size() * size_of(grad));
            must(narrow_from_f32(g, grad, raw));
            UpdateBlock block = got.block();
            block.grad = grad;
            block.g = raw.data();
            const cpuopt::UpdateStep step = cpuopt::make_update_step(params);
            run_rule(cpuopt::UpdateRules(), step, block, n, cpuopt::rounding_noise(17, 3, params.step, 0),
                     are_aligned);
            if (each.optimizer == cpuopt::Optimizer::lamb) run_lamb(step, block, n, are_aligned);
          }
          EXPECT_EQ(got.differing_bits_from(want), 0u)
              << cpuopt::test::name_of(each) << ", layout " << static_cast<int>(layout) << ", "
              << to_string(states);
        }
  }
};

TEST_P(UpdatePacksTest, PacksHaveTheBitsOfCpuopt) { expect_the_bits_of_cpuopt(true); }
TEST_P(UpdatePacksTest, SingleElementsHaveTheBitsOfCpuopt) { expect_the_bits_of_cpuopt(false); }

INSTANTIATE_TEST_SUITE_P(Sizes, UpdatePacksTest,
                         ::testing::Combine(::testing::Values(1, 8, 255, 4096 + 77),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)));

TEST(MovingAveragePacksTest, HasTheBitsOfCpuopt) {
  constexpr std::int64_t n = 1003;
  const std::vector<float> masters = test::Values(1).floats(n), before = test::Values(2).floats(n);
  for (const MasterLayout layout : kLayouts)
    for (const float weight : {0.001f, 1.0f})
      for (const bool are_aligned : {false, true}) {
        StoredTensor stored({}, layout, StateFormat::fp32, masters);
        UpdateBlock block = stored.block();
        std::vector<float> want = before, got = before;
        block.ema = want.data();
        cpuopt::update_ema_block(weight, block, n);
        block.ema = got.data();
        with_layout(layout, [&](auto constant) {
          for (std::int64_t thread = 0; thread < n; ++thread)
            detail::update_ema<constant()>(weight, block, thread_range(thread, n, are_aligned));
        });
        EXPECT_EQ(test::differing_bits(got, want), 0u) << static_cast<int>(layout) << ", weight " << weight;
      }
}

// Packs are loaded only where every address allows it, and a thread never has elements behind the end.
TEST(UpdatePacksRangeTest, PacksAreWholeAndAligned) {
  alignas(16) float values[8] = {};
  UpdateBlock b{.param = values, .g = values};
  EXPECT_TRUE(detail::are_pack_aligned(b));
  b.v.values = values + 1;
  EXPECT_FALSE(detail::are_pack_aligned(b));
  EXPECT_TRUE(thread_range(1, 16, true).is_pack);
  EXPECT_FALSE(thread_range(1, 15, true).is_pack);
  EXPECT_EQ(thread_range(1, 15, true).count, 7);
  EXPECT_EQ(thread_range(2, 15, true).count, 0);
}

}  // namespace
}  // namespace strata::state_kernels
