// Runs the device's attention on the host, tile by tile and one thread after the other, and compares it with
// the host's op.
#include <vector>

#include <gmock/gmock.h>

#include "kernels/device/attention_emulation.h"

namespace strata::kernels {
namespace {

using namespace test_attention;

constexpr AttentionCase kTileCases[] = {
    {"plain", 2, 70, 2, 2, 16},
    {"groups", 1, 64, 6, 2, 24},
    {"one token", 3, 1, 2, 1, 8},
    {"both ways", 1, 50, 2, 1, 16, false},
    {"alibi", 1, 65, 3, 3, 16, true, true},
    {"documents", 2, 97, 4, 2, 16, true, false, true},
    {"alibi of documents", 1, 80, 4, 4, 8, true, true, true},
    {"a window", 2, 150, 4, 2, 16, true, false, false, 20},
    {"a window of a tile", 1, 150, 2, 2, 16, true, false, false, 32},
    {"a window of one key", 1, 70, 2, 1, 16, true, false, false, 1},
    {"a window of documents", 2, 150, 4, 2, 16, true, false, true, 30},
    {"a soft cap", 1, 97, 4, 2, 16, true, false, false, 0, 1.5f},
    {"sinks", 2, 97, 4, 2, 16, true, false, true, 40, 0, 0, 0, true},
    {"heads of 512", 1, 40, 2, 1, 512, true, false, true, 20, 0, 1.0f / 16},
    {"all of it", 2, 150, 4, 2, 16, true, false, true, 40, 2.0f, 0.5f}};

TEST(DeviceAttentionTest, SharedMemoryTilesMatchTheHost) {
  for (const AttentionCase& c : kTileCases) {
    using Order = EmulatedAttentionThreads<false>;
    using ReverseOrder = EmulatedAttentionThreads<true>;
    compare<float>(c, 2e-6, &run_tiles<F32Math, 32, float, Order>);
    compare<float>(c, 2e-6, &run_tiles<F32Math, 32, float, ReverseOrder>);
    compare<float>(c, 2e-6, &run_tiles<F32Math, 16, float, Order>);
    compare<bf16>(c, 4e-3, &run_tiles<F32Math, 32, bf16, Order>);
    compare<f16>(c, 5e-4, &run_tiles<F32Math, 16, f16, Order>);
    if (!EmulatedMmaMath<bf16>::supports(c.d)) continue;
    compare<bf16>(c, 8e-3, &run_tiles<EmulatedMmaMath<bf16>, 64, bf16, Order>);
    compare<bf16>(c, 8e-3, &run_tiles<EmulatedMmaMath<bf16>, 64, bf16, ReverseOrder>);
    compare<bf16>(c, 8e-3, &run_tiles<EmulatedMmaMath<bf16>, 32, bf16, Order>);
    compare<bf16>(c, 8e-3, &run_tiles<EmulatedMmaMath<bf16>, 16, bf16, ReverseOrder>);
    compare<f16>(c, 1e-3, &run_tiles<EmulatedMmaMath<f16>, 64, f16, Order>);
  }
}

TEST(DeviceAttentionTest, MmaTilesMatchTheHost) {
  using detail::MmaPolicy;
  for (AttentionCase c : kFlashCases) {
    compare<bf16>(c, 8e-3, &run_flash<64, 2, false, MmaPolicy, bf16>);
    compare<bf16>(c, 8e-3, &run_flash<64, 1, true, MmaPolicy, bf16>);
    compare<f16>(c, 1e-3, &run_flash<64, 2, true, MmaPolicy, f16>);
    c.d = 96;
    compare<bf16>(c, 8e-3, &run_flash<96, 2, true, MmaPolicy, bf16>);
    c.d = 128;
    compare<bf16>(c, 8e-3, &run_flash<128, 1, false, MmaPolicy, bf16>);
    compare<f16>(c, 1e-3, &run_flash<128, 2, true, MmaPolicy, f16>);
  }
}

TEST(DeviceAttentionTest, WgmmaTilesMatchTheHost) {
  using detail::WgmmaPolicy;
  for (AttentionCase c : kFlashCases) {
    compare<bf16>(c, 8e-3, &run_flash<64, 1, false, WgmmaPolicy, bf16>);
    compare<f16>(c, 1e-3, &run_flash<64, 1, true, WgmmaPolicy, f16>);
    c.d = 128;
    compare<bf16>(c, 8e-3, &run_flash<128, 1, true, WgmmaPolicy, bf16>);
    compare<f16>(c, 1e-3, &run_flash<128, 1, false, WgmmaPolicy, f16>);
  }
}

// Where one key has most of the weight, and keys have a common part, an error of delta is as large as the
// gradient.
TEST(DeviceAttentionTest, GradientsAreThoseOfADeltaOfMoreThan16Bits) {
  const AttentionCase c{"peaks", 1, 200, 2, 1, 64, true, false, false, 0, 0, 1.0f, 4.0f};
  compare<bf16>(c, 1.2e-2, &run_flash<64, 2, false, detail::MmaPolicy, bf16>);
  compare<bf16>(c, 1.2e-2, &run_flash<64, 1, false, detail::WgmmaPolicy, bf16>);
}

// The fields in the PTX ISA: bits 0-13 are the address, 16-29 and 32-45 the two byte offsets, all in units of
// 16 bytes; bits 62-63 are the swizzle mode.
TEST(DeviceAttentionTest, MatrixDescriptorsEncodeTheirFields) {
  EXPECT_EQ(detail::descriptor_bits(0xC400, 0x2000, 1024), 0x4000'0040'0200'0C40u);
  EXPECT_EQ(detail::descriptor_bits(0x3FFF0, 16, 0x3FFF0), 0x4000'3FFF'0001'3FFFu);
}

// The innermost dimension comes first, and strides are the bytes of all other dimensions
// (cuTensorMapEncodeTiled).
TEST(DeviceAttentionTest, TmaTensorsHaveTheDriversOrderOfDimensions) {
  const int there = 0;
  const detail::TmaTensor matrix = detail::make_tma_tensor(&there, 3, 100, 384);
  EXPECT_EQ(matrix.at, &there);
  EXPECT_THAT(matrix.sizes, testing::ElementsAre(384, 100, 3));
  EXPECT_THAT(matrix.strides, testing::ElementsAre(768, 76'800));
}

// Barriers as in the PTX ISA: a wait for a parity ends once the phase of that parity has completed, if it is
// the current phase or the one before. Up to two groups are in flight.
TEST(DeviceAttentionTest, BarrierAndParityFollowTheGroup) {
  unsigned phase[2] = {0, 0};
  const auto is_complete = [&](detail::PipelineState group) {
    return phase[group.index()] % 2 != group.parity();
  };
  for (unsigned awaited = 0; awaited < 20; ++awaited) {
    const detail::PipelineState group{awaited}, next{awaited + 1};
    EXPECT_FALSE(is_complete(group)) << awaited;
    EXPECT_FALSE(is_complete(next)) << awaited << ", which nobody waits for yet";
    ++phase[group.index()];
    EXPECT_TRUE(is_complete(group)) << awaited;
    EXPECT_FALSE(is_complete(next)) << awaited;
  }
}

// The coordinates are those of the PTX ISA, and the registers of a warp hold each element of A, B and C once.
TEST(DeviceAttentionTest, FragmentLayoutIsThatOfThePtxIsa) {
  float a[16][16] = {}, b[16][8] = {}, c[16][8] = {};
  int n_a = 0, n_b = 0, n_c = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, place = lane % 4;  // groupID and threadID_in_group of the PTX ISA
    for (int i = 0; i < 8; ++i) {
      const auto at = detail::fragment_coord_a(lane, i);
      EXPECT_EQ(at.row, (i < 2 || (i >= 4 && i < 6)) ? group : group + 8) << lane << ", a" << i;
      EXPECT_EQ(at.column, place * 2 + (i & 1) + (i >= 4 ? 8 : 0)) << lane << ", a" << i;
      n_a += a[at.row][at.column]++ == 0;
    }
    for (int i = 0; i < 4; ++i) {
      const auto in_b = detail::fragment_coord_b(lane, i), in_c = detail::fragment_coord_c(lane, i);
      EXPECT_EQ(in_b.row, place * 2 + (i & 1) + (i >= 2 ? 8 : 0)) << lane << ", b" << i;
      EXPECT_EQ(in_b.column, group) << lane << ", b" << i;
      EXPECT_EQ(in_c.row, i < 2 ? group : group + 8) << lane << ", c" << i;
      EXPECT_EQ(in_c.column, place * 2 + (i & 1)) << lane << ", c" << i;
      n_b += b[in_b.row][in_b.column]++ == 0;
      n_c += c[in_c.row][in_c.column]++ == 0;
    }
  }
  EXPECT_EQ(n_a, 256);
  EXPECT_EQ(n_b, 128);
  EXPECT_EQ(n_c, 128);
}

TEST(DeviceAttentionTest, WarpTilesCoverTheBlockTile) {
  for (const int rows : {16, 32, 64})
    for (const std::int64_t columns : {16, 32, 48, 64, 80, 96, 128, 256, 512}) {
      std::vector<int> taken(static_cast<std::size_t>(rows / 16 * columns / 8));
      for (int warp = 0; warp < 8; ++warp) {
        const detail::WarpTile share = detail::warp_tile(warp, rows, columns);
        for (std::int64_t n = 0; n < share.count; ++n)
          ++taken[static_cast<std::size_t>(share.row / 16 * (columns / 8) + share.column(n) / 8)];
      }
      EXPECT_EQ(taken, std::vector<int>(taken.size(), 1)) << rows << " x " << columns;
    }
}

}  // namespace
}  // namespace strata::kernels
