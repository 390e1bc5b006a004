// What the FlashAttention kernels do when, beside what they compute (device_attention_test.cpp).
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/device/attention_emulation.h"

namespace strata::kernels {
namespace {

using test_attention::AttentionCase;
using test_attention::MaskCounts;

template <int kD, int kM, class Policy>
MaskCounts masks_of(const AttentionCase& c) {
  test_attention::mask_counts() = {};
  test_attention::compare<bf16>(c, 8e-3, &test_attention::run_flash<kD, kM, false, Policy, bf16>);
  return test_attention::mask_counts();
}

template <class Policy>
void expect_masks_at_edges_alone() {
  for (const AttentionCase& c : test_attention::kFlashCases) {
    const MaskCounts counts = masks_of<64, 1, Policy>(c);
    EXPECT_EQ(counts.inner_masked, 0) << c.name;
    EXPECT_EQ(counts.edge_unmasked, 0) << c.name;
    EXPECT_GT(counts.edge, 0) << c.name;
  }
  const MaskCounts counts = masks_of<64, 1, Policy>({"long", 1, 384, 1, 1, 64});
  EXPECT_GT(counts.inner, counts.edge / 2);
}
TEST(FlashScheduleTest, MmaMasksTilesAtEdgesAlone) { expect_masks_at_edges_alone<detail::MmaPolicy>(); }
TEST(FlashScheduleTest, WgmmaMasksTilesAtEdgesAlone) { expect_masks_at_edges_alone<detail::WgmmaPolicy>(); }

// The emulation finds what a device would not: faults of the schedule are made here on purpose, in a block
// that loads two tiles of 64 x 64 through one stage, and each group multiplies them.
enum class Fault {
  none,
  wrong_parity_of_load,
  wrong_parity_of_use,
  released_early,
  read_before_the_wait,
  turn_kept
};

struct Outcome {
  bool is_finished;
  bool is_right;
};
Outcome run_with(Fault fault) {
  using Barriers = detail::RoleBarriers<1, 1>;
  using Rows = detail::SwizzledRows<bf16, 64, 64>;
  struct Registers {
    float sums[1][8][4];
  };
  constexpr std::size_t kWindow = detail::MatrixDescriptor::kWindow;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(kWindow, kWindow), &std::free);
  const std::vector<test_attention::Line> ones = [] {
    std::vector<bf16> values(128 * 64);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = from_f32<bf16>(i < 64 * 64 ? 1.0f : 2.0f);
    std::vector<test_attention::Line> lines = test_attention::lines(values.size() * 2);
    std::memcpy(lines.data(), values.data(), values.size() * 2);
    return lines;
  }();
  const Rows stage{static_cast<bf16*>(memory.get())};
  detail::EmulatedWarpRoles<Barriers> block;
  block.matrices[0] = detail::make_tma_tensor(ones.data(), 1, 128, 64);
  bool is_right = true;
  block.run(
      [&](const auto& producer) {
        for (unsigned tile = 0; tile < 2; ++tile) {
          producer.wait(1, fault == Fault::wrong_parity_of_load ? tile : tile ^ 1);
          producer.completing(0).template tma_load<1, bf16>(detail::TmaOperand::qkv, [&](int, bf16*& at) {
            at = stage.at;
            return detail::BoxCoord{0, static_cast<int>(tile) * 64, 0};
          });
        }
      },
      [&](const auto& group) {
        typename std::decay_t<decltype(group)>::template State<Registers> state;
        if (group.index() == 1) group.pass_turn();
        for (unsigned tile = 0; tile < 2; ++tile) {
          group.wait(0, fault == Fault::wrong_parity_of_use ? tile ^ 1 : tile);
          if (fault == Fault::released_early) group.arrive(1);
          group.wait_turn();
          const auto sums = [](auto& lanes) {
            return [&lanes](int lane, int, int n) { return lanes.values[lane].sums[0][n]; };
          };
          group.for_each_warp(state, [&](const auto& warp, int index, auto& lanes) {
            detail::start_gemm_ss<8>(warp, stage, index % 4 * 16, stage, sums(lanes));
          });
          if ((group.index() == 0 || tile == 0) && fault != Fault::turn_kept) group.pass_turn();
          group.for_each_warp(state, [&](const auto& warp, int, auto& lanes) {
            if (fault != Fault::read_before_the_wait) detail::finish_gemm<0, 8>(warp, sums(lanes));
            is_right = is_right && lanes.values[0].sums[0][0][0] == (tile == 0 ? 64.0f : 256.0f);
            detail::wait_products<0>(warp);
          });
          if (fault != Fault::released_early) group.arrive(1);
        }
      });
  return {block.is_finished(), is_right};
}

TEST(FlashScheduleTest, TheEmulationRunsARightSchedule) {
  const Outcome outcome = run_with(Fault::none);
  EXPECT_TRUE(outcome.is_finished);
  EXPECT_TRUE(outcome.is_right);
}
TEST(FlashScheduleTest, TheEmulationFindsWaitsForTheWrongPhase) {
  const Outcome load = run_with(Fault::wrong_parity_of_load), use = run_with(Fault::wrong_parity_of_use);
  EXPECT_FALSE(load.is_finished && load.is_right);
  EXPECT_FALSE(use.is_finished && use.is_right);
}
TEST(FlashScheduleTest, TheEmulationFindsAStageThatIsOverwrittenTooSoon) {
  EXPECT_FALSE(run_with(Fault::released_early).is_right);
}
TEST(FlashScheduleTest, TheEmulationFindsAProductThatIsReadTooSoon) {
  EXPECT_FALSE(run_with(Fault::read_before_the_wait).is_right);
}
TEST(FlashScheduleTest, TheEmulationFindsATurnThatNobodyPasses) {
  EXPECT_FALSE(run_with(Fault::turn_kept).is_finished);
}

}  // namespace
}  // namespace strata::kernels
