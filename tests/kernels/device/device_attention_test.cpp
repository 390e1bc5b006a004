// Runs the device's attention on the host, tile by tile and one thread after the other, and compares it with
// the host's op.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>

#include <strata/kernels/attention.h>

#include "cuda/attention/flash_forward.h"
#include "cuda/attention/flash_backward_kv.h"
#include "cuda/attention/flash_backward_q.h"
#include "cuda/emulation/attention_mma.h"
#include "cuda/emulation/tma.h"
#include "cuda/emulation/wgmma.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using detail::AttentionView;
using detail::EmulatedAttentionThreads;
using detail::EmulatedMmaMath;
using detail::F32Math;
using test::Tensor;
using test::Values;

struct AttentionCase {
  const char* name;
  std::int64_t batches, seq, heads, kv_heads, d;
  bool causal = true, alibi = false, documents = false;
  std::int64_t window = 0;
  float softcap = 0, scale = 0;
};

/// 16-byte aligned bytes, as on the device.
struct alignas(16) Line {
  std::byte bytes[16];
};
std::vector<Line> lines(std::size_t bytes) { return std::vector<Line>(bytes / sizeof(Line) + 1); }
std::vector<Line> aligned_copy(const TensorView& view) {
  std::vector<Line> copy = lines(view.bytes());
  std::memcpy(copy.data(), view.data, view.bytes());
  return copy;
}

/// The arguments and outputs of the device code in one case.
template <class T>
struct Call {
  AttentionView<T> v;
  std::int64_t batches;
  std::function<float(std::int64_t)> slope;
  T* out;
  float* lse;
  const float* known_lse;
  const T* dout;
  float* delta;
  T* dqkv;
};

/// Runs the tiles in shared memory (attention_math.h), one block after the other.
template <class Math, int kTile, class T, class ThreadBlock>
void run_tiles(const Call<T>& c) {
  const AttentionView<T>& v = c.v;
  const std::int64_t bytes =
      std::max({detail::ForwardSharedStorage<Math, kTile>(nullptr, v.d).arena.bytes(),
                detail::BackwardQSharedStorage<Math, kTile>(nullptr, v.d).arena.bytes(),
                detail::BackwardKVSharedStorage<Math, kTile>(nullptr, v.d).arena.bytes()});
  std::vector<Line> memory = lines(static_cast<std::size_t>(bytes));
  std::byte* const shared = reinterpret_cast<std::byte*>(memory.data());
  const ThreadBlock block;
  for (std::int64_t batch = 0; batch < c.batches; ++batch) {
    for (std::int64_t head = 0; head < v.heads; ++head)
      for (std::int64_t first = 0; first < v.seq; first += kTile) {
        detail::attention_forward_tile<Math, kTile>(block, shared, v, batch, head, first, c.slope(head),
                                                    c.out, c.lse);
        detail::attention_backward_q_tile<Math, kTile>(block, shared, v, batch, head, first, c.slope(head),
                                                       c.known_lse, c.dout, c.delta, c.dqkv);
      }
    for (std::int64_t kv = 0; kv < v.kv_heads; ++kv)
      for (std::int64_t key = 0; key < v.seq; key += kTile)
        detail::attention_backward_kv_tile<Math, kTile>(block, shared, v, batch, kv, key, c.slope,
                                                        c.known_lse, c.dout, c.delta, c.dqkv);
  }
}

/// Runs the tiles in the registers of warps (flash_tiles.h).
template <int kD, int kM, bool kReversed, class Policy, class T>
void run_flash(const Call<T>& c) {
  using Forward = detail::FlashForward<T, kD, kM, Policy>;
  using BackwardQ = detail::FlashBackwardQ<T, kD, Policy>;
  using BackwardKV = detail::FlashBackwardKV<T, kD, Policy>;
  const AttentionView<T>& v = c.v;
  const std::int64_t bytes = std::max({typename Forward::SharedStorage(nullptr).arena.bytes(),
                                       typename BackwardQ::SharedStorage(nullptr).arena.bytes(),
                                       typename BackwardKV::SharedStorage(nullptr).arena.bytes()});
  ASSERT_LE(bytes, 227 << 10);  // maximum per block on compute capability 9.0
  // An address in a descriptor has 18 bits, so shared memory is aligned to that window.
  constexpr std::size_t kWindow = detail::MatrixDescriptor::kWindow;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(kWindow, kWindow), &std::free);
  auto* const shared = static_cast<std::byte*>(memory.get());
  std::memset(shared, 0xFF, kWindow);
  using ThreadBlock = std::conditional_t<std::is_same_v<Policy, detail::WgmmaPolicy>,
                                         detail::EmulatedTmaWarps<Policy::kWarps, kReversed>,
                                         detail::EmulatedWarps<Policy::kWarps, kReversed>>;
  constexpr bool kUsesTma = std::is_same_v<Policy, detail::WgmmaPolicy>;
  const auto run_block = [&](const auto& run) {
    ThreadBlock block;
    if constexpr (kUsesTma) {
      block.matrices[0] = detail::make_tma_tensor(v.qkv, c.batches, v.seq, v.width());
      block.matrices[1] = detail::make_tma_tensor(c.dout, c.batches, v.seq, v.heads * v.d);
    }
    run(block);
    if constexpr (kUsesTma) {
      EXPECT_FALSE(block.skipped);
    }
  };
  for (std::int64_t batch = 0; batch < c.batches; ++batch) {
    for (std::int64_t head = 0; head < v.heads; ++head) {
      for (std::int64_t first = 0; first < v.seq; first += Forward::kRows)
        run_block([&](const ThreadBlock& block) {
          Forward::run(block, shared, v, batch, head, first, c.slope(head), c.out, c.lse);
        });
      for (std::int64_t first = 0; first < v.seq; first += BackwardQ::kRows)
        run_block([&](const ThreadBlock& block) {
          BackwardQ::run(block, shared, v, batch, head, first, c.slope(head), c.known_lse, c.dout, c.delta,
                         c.dqkv);
        });
    }
    for (std::int64_t kv = 0; kv < v.kv_heads; ++kv)
      for (std::int64_t key = 0; key < v.seq; key += BackwardKV::kRows)
        run_block([&](const ThreadBlock& block) {
          BackwardKV::run(block, shared, v, batch, kv, key, c.slope, c.known_lse, c.dout, c.delta, c.dqkv);
        });
  }
}

/// Compares `run` with the host's op.
template <class T>
void compare(const AttentionCase& c, double bar, void (*run)(const Call<T>&)) {
  const std::int64_t tokens = c.batches * c.seq, width = (c.heads + 2 * c.kv_heads) * c.d,
                     out_width = c.heads * c.d;
  const DType dtype = dtype_of<T>;
  Tensor qkv({tokens, width}, Values(1).floats(tokens * width), dtype),
      dout({tokens, out_width}, Values(2).floats(tokens * out_width), dtype);
  Tensor want = Tensor::unwritten({tokens, out_width}, dtype),
         want_d = Tensor::unwritten({tokens, width}, dtype);
  Tensor want_lse = Tensor::unwritten({tokens * c.heads}), lse = want_lse;
  std::vector<std::int32_t> starts(static_cast<std::size_t>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t place = t % c.seq;
    starts[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(place < 5     ? 0
                                                                    : place < 41  ? 5
                                                                    : place < 130 ? 41
                                                                                  : 130);
  }
  const AttentionHeads shape{.heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .seq = c.seq,
                             .causal = c.causal,
                             .alibi = c.alibi,
                             .window = c.window,
                             .softcap = c.softcap,
                             .scale = c.scale};
  const TensorView documents = c.documents ? test::view(starts) : TensorView{};
  test::Workspace workspace(attention_backward_workspace_bytes(tokens, shape, dtype, c.d) +
                            attention_forward_workspace_bytes(tokens, shape, dtype, c.d));
  attention_forward_host({qkv.view(), want.view(), want_lse.view(), documents, shape, workspace.view()},
                         *test::pool());
  attention_backward_host({qkv.view(), want.view(), want_lse.view(), dout.view(), documents, want_d.view(),
                           shape, workspace.view()},
                          *test::pool());

  const std::vector<Line> aligned_qkv = aligned_copy(qkv.view()), aligned_dout = aligned_copy(dout.view());
  std::vector<Line> out = aligned_copy(Tensor::unwritten({tokens, out_width}, dtype).view()),
                    dqkv = aligned_copy(Tensor::unwritten({tokens, width}, dtype).view());
  std::vector<float> delta(static_cast<std::size_t>(tokens * c.heads));
  run({{reinterpret_cast<const T*>(aligned_qkv.data()), c.documents ? starts.data() : nullptr, c.heads,
        c.kv_heads, c.d, c.seq, attention_scale(shape, c.d), c.causal, c.window, c.softcap},
       c.batches,
       [&](std::int64_t head) { return c.alibi ? alibi_slope(head, c.heads) : 0.0f; },
       reinterpret_cast<T*>(out.data()),
       lse.view().as<float>(),
       want_lse.view().as<float>(),
       reinterpret_cast<const T*>(aligned_dout.data()),
       delta.data(),
       reinterpret_cast<T*>(dqkv.data())});
  const auto values = [](const std::vector<Line>& from, std::int64_t n) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < n; ++i) all.push_back(to_f32(reinterpret_cast<const T*>(from.data())[i]));
    return all;
  };
  EXPECT_LE(test::relative_error(values(out, tokens * out_width), test::widen(want.values())), bar) << c.name;
  EXPECT_LE(test::relative_error(lse.values(), test::widen(want_lse.values())), 1e-6) << c.name;
  EXPECT_LE(test::relative_error(values(dqkv, tokens * width), test::widen(want_d.values())), bar) << c.name;
}

constexpr AttentionCase kTileCases[] = {{"plain", 2, 70, 2, 2, 16},
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
    compare<f16>(c, 1e-3, &run_tiles<EmulatedMmaMath<f16>, 64, f16, Order>);
  }
}

// Sequences that end within a tile, at its end and just after it; documents that begin within a tile.
constexpr AttentionCase kFlashCases[] = {
    {"plain", 2, 130, 2, 2, 64},
    {"whole tiles", 1, 128, 2, 1, 64},
    {"groups", 1, 70, 6, 2, 64},
    {"one token", 2, 1, 2, 1, 64},
    {"both ways", 1, 150, 2, 1, 64, false},
    {"both ways, documents", 1, 150, 2, 1, 64, false, false, true},
    {"alibi", 1, 97, 3, 3, 64, true, true},
    {"documents", 2, 200, 4, 2, 64, true, false, true},
    {"alibi of documents", 1, 80, 4, 4, 64, true, true, true},
    {"documents behind whole tiles", 1, 300, 2, 1, 64, true, false, true},
    {"three tiles both ways", 1, 300, 2, 1, 64, false},
    {"a window", 1, 300, 4, 2, 64, true, false, false, 40},
    {"a window of a tile", 1, 300, 2, 1, 64, true, false, false, 64},
    {"a window over tiles", 1, 300, 2, 1, 64, true, false, false, 130},
    {"a window of documents", 1, 300, 2, 1, 64, true, false, true, 50},
    {"a scale", 1, 70, 2, 1, 64, true, false, false, 33, 0, 0.25f}};

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
  for (const int rows : {32, 64})
    for (const std::int64_t columns : {16, 32, 48, 64, 80, 96, 128, 256}) {
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
