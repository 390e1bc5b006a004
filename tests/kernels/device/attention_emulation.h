#pragma once

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
#include "cuda/attention/flash_forward_wgmma.h"
#include "cuda/attention/flash_backward_kv.h"
#include "cuda/attention/flash_backward_q.h"
#include "cuda/emulation/attention_mma.h"
#include "cuda/emulation/tma.h"
#include "cuda/emulation/warp_roles.h"
#include "cuda/emulation/wgmma.h"
#include "support/op_test.h"

/// Runs the device's attention on the host, tile by tile and one thread after the other, and compares it with
/// the host's op.
namespace strata::kernels::test_attention {

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
  float common_key = 0;  ///< what all values of all keys have beside their own
  bool sinks = false;
};

/// 16-byte aligned bytes, as on the device.
struct alignas(16) Line {
  std::byte bytes[16];
};
inline std::vector<Line> lines(std::size_t bytes) { return std::vector<Line>(bytes / sizeof(Line) + 1); }
inline std::vector<Line> aligned_copy(const TensorView& view) {
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

/// Tiles of scores, counted by whether they were masked and whether they had to be.
struct MaskCounts {
  int inner = 0, edge = 0;  ///< tiles in which each query sees each key, and others
  int inner_masked = 0, edge_unmasked = 0;
};
inline MaskCounts& mask_counts() {
  static thread_local MaskCounts counts;
  return counts;
}
/// `by_keys`: of a kernel whose tiles are rows of keys, which counts on nothing past the end.
template <class T>
void count_masks(const AttentionView<T>& v, std::int64_t batch, bool by_keys,
                 const std::vector<detail::ScoreTileInfo>& tiles) {
  for (const detail::ScoreTileInfo& tile : tiles) {
    bool is_edge = false, is_empty = true;
    for (std::int64_t i = tile.query; i < tile.query + tile.queries; ++i)
      for (std::int64_t j = tile.key; j < tile.key + tile.keys; ++j) {
        if (!by_keys && i >= v.seq) continue;  // never stored
        is_empty = false;
        is_edge = is_edge || !v.is_visible(batch, i, j);
      }
    if (is_empty) continue;
    MaskCounts& counts = mask_counts();
    ++(is_edge ? counts.edge : counts.inner);
    counts.inner_masked += !is_edge && tile.is_masked;
    counts.edge_unmasked += is_edge && !tile.is_masked;
  }
}

/// Runs the tiles in the registers of warps (flash_tiles.h).
template <int kD, int kM, bool kReversed, class Policy, class T>
void run_flash(const Call<T>& c) {
  constexpr bool kUsesTma = std::is_same_v<Policy, detail::WgmmaPolicy>;
  using Forward =
      std::conditional_t<kUsesTma, detail::FlashForwardWgmma<T, kD>, detail::FlashForward<T, kD, kM>>;
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
  using ThreadBlock = std::conditional_t<kUsesTma, detail::EmulatedTmaWarps<Policy::kWarps, kReversed>,
                                         detail::EmulatedWarps<Policy::kWarps, kReversed>>;
  const auto run_block = [&](auto& block, std::int64_t batch, bool by_keys, const auto& run) {
    std::vector<detail::ScoreTileInfo> tiles;
    detail::EmulatedWarp::score_tiles() = &tiles;
    if constexpr (kUsesTma) {
      block.matrices[0] = detail::make_tma_tensor(v.qkv, c.batches, v.seq, v.width());
      block.matrices[1] = detail::make_tma_tensor(c.dout, c.batches, v.seq, v.heads * v.d);
    }
    run(block);
    detail::EmulatedWarp::score_tiles() = nullptr;
    count_masks(v, batch, by_keys, tiles);
  };
  const auto run_forward = [&](std::int64_t batch, std::int64_t head, std::int64_t first) {
    const auto run = [&](const auto& block) {
      Forward::run(block, shared, v, batch, head, first, c.slope(head), c.out, c.lse);
    };
    if constexpr (kUsesTma) {
      detail::EmulatedWarpRoles<typename Forward::Barriers, kReversed> block;
      run_block(block, batch, false, run);
      ASSERT_TRUE(block.is_finished());
    } else {
      ThreadBlock block;
      run_block(block, batch, false, run);
    }
  };
  const auto run_backward = [&](std::int64_t batch, bool by_keys, const auto& run) {
    ThreadBlock block;
    run_block(block, batch, by_keys, run);
    if constexpr (kUsesTma) {
      EXPECT_FALSE(block.skipped);
    }
  };
  for (std::int64_t batch = 0; batch < c.batches; ++batch) {
    for (std::int64_t head = 0; head < v.heads; ++head) {
      for (std::int64_t first = 0; first < v.seq; first += Forward::kRows) run_forward(batch, head, first);
      for (std::int64_t first = 0; first < v.seq; first += BackwardQ::kRows)
        run_backward(batch, false, [&](const ThreadBlock& block) {
          BackwardQ::run(block, shared, v, batch, head, first, c.slope(head), c.known_lse, c.out, c.dout,
                         c.delta, c.dqkv);
        });
    }
    for (std::int64_t kv = 0; kv < v.kv_heads; ++kv)
      for (std::int64_t key = 0; key < v.seq; key += BackwardKV::kRows)
        run_backward(batch, true, [&](const ThreadBlock& block) {
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
  std::vector<float> inputs = Values(1).floats(tokens * width);
  for (std::int64_t i = 0; i < tokens * width; ++i)
    if (i % width / c.d >= c.heads && i % width / c.d < c.heads + c.kv_heads)
      inputs[static_cast<std::size_t>(i)] += c.common_key;
  Tensor qkv({tokens, width}, inputs, dtype),
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
  Tensor sinks({c.heads}, Values(3).floats(c.heads, 4.0), dtype);
  const TensorView sinks_view = c.sinks ? sinks.view() : TensorView{};
  const TensorView documents = c.documents ? test::view(starts) : TensorView{};
  test::Workspace workspace(attention_backward_workspace_bytes(tokens, shape, dtype, c.d) +
                            attention_forward_workspace_bytes(tokens, shape, dtype, c.d));
  attention_forward_host(
      {qkv.view(), want.view(), want_lse.view(), documents, shape, workspace.view(), {}, sinks_view},
      *test::pool());
  attention_backward_host({qkv.view(), want.view(), want_lse.view(), dout.view(), documents, want_d.view(),
                           shape, workspace.view()},
                          *test::pool());

  const std::vector<Line> aligned_qkv = aligned_copy(qkv.view()), aligned_dout = aligned_copy(dout.view());
  std::vector<Line> out = aligned_copy(Tensor::unwritten({tokens, out_width}, dtype).view()),
                    dqkv = aligned_copy(Tensor::unwritten({tokens, width}, dtype).view());
  std::vector<float> delta(static_cast<std::size_t>(tokens * c.heads));
  run({{reinterpret_cast<const T*>(aligned_qkv.data()),
        c.documents ? starts.data() : nullptr,
        c.heads,
        c.kv_heads,
        c.d,
        c.seq,
        attention_scale(shape, c.d),
        c.causal,
        c.window,
        c.softcap,
        nullptr,
        {},
        {},
        c.sinks ? sinks.view().as<T>() : nullptr},
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

/// Sequences that end within a tile, at its end and just after it; documents that begin within a tile.
inline constexpr AttentionCase kFlashCases[] = {
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
    {"a scale", 1, 70, 2, 1, 64, true, false, false, 33, 0, 0.25f},
    {"sinks", 2, 150, 4, 2, 64, true, false, true, 60, 0, 0, 0, true}};

}  // namespace strata::kernels::test_attention
