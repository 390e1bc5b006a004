// The device's attention, tile by tile, run on the host with one thread after the other, beside the host's
// op.
#include <algorithm>
#include <cstring>
#include <vector>

#include <strata/kernels/attention.h>

#include "cuda/attention_mma.h"
#include "op_test.h"

namespace strata::kernels {
namespace {

using detail::AttentionView;
using detail::CrewInTurn;
using detail::F32Math;
using detail::MmaMath;
using test::Tensor;
using test::Values;

struct Case {
  const char* name;
  std::int64_t batches, seq, heads, kv_heads, d;
  bool causal = true, alibi = false, documents = false;
};

/// Bytes as a block of the device has them.
struct alignas(16) Line {
  std::byte bytes[16];
};
std::vector<Line> lines(std::size_t bytes) { return std::vector<Line>(bytes / sizeof(Line) + 1); }
std::vector<Line> aligned_copy(const TensorView& view) {
  std::vector<Line> copy = lines(view.bytes());
  std::memcpy(copy.data(), view.data, view.bytes());
  return copy;
}

template <class Math, int kTile, class T, class Crew = CrewInTurn<false>>
void compare(const Case& c, double bar) {
  const std::int64_t tokens = c.batches * c.seq, width = (c.heads + 2 * c.kv_heads) * c.d,
                     out_width = c.heads * c.d;
  const DType dtype = dtype_of<T>;
  Tensor qkv({tokens, width}, Values(1).floats(tokens * width), dtype),
      dout({tokens, out_width}, Values(2).floats(tokens * out_width), dtype);
  Tensor want = Tensor::unwritten({tokens, out_width}, dtype),
         want_d = Tensor::unwritten({tokens, width}, dtype);
  Tensor got = want, got_d = want_d, want_lse = Tensor::unwritten({tokens * c.heads}), lse = want_lse;
  std::vector<std::int32_t> starts(static_cast<std::size_t>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t place = t % c.seq;
    starts[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(place < 5 ? 0 : place < 41 ? 5 : 41);
  }
  const AttentionHeads shape{
      .heads = c.heads, .kv_heads = c.kv_heads, .seq = c.seq, .causal = c.causal, .alibi = c.alibi};
  const TensorView documents = c.documents ? test::view(starts) : TensorView{};
  test::Workspace workspace(attention_backward_workspace_bytes(tokens, shape, dtype, c.d) +
                            attention_forward_workspace_bytes(tokens, shape, dtype, c.d));
  attention_forward_host({qkv.view(), want.view(), want_lse.view(), documents, shape, workspace.view()},
                         *test::pool());
  attention_backward_host({qkv.view(), want.view(), want_lse.view(), dout.view(), documents, want_d.view(),
                           shape, workspace.view()},
                          *test::pool());

  const std::vector<Line> aligned_qkv = aligned_copy(qkv.view()), aligned_dout = aligned_copy(dout.view());
  const AttentionView<T> v{reinterpret_cast<const T*>(aligned_qkv.data()),
                           c.documents ? starts.data() : nullptr,
                           c.heads,
                           c.kv_heads,
                           c.d,
                           c.seq,
                           static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.d))),
                           c.causal};
  const auto slope = [&](std::int64_t head) { return c.alibi ? alibi_slope(head, c.heads) : 0.0f; };
  const std::int64_t bytes = std::max({detail::ForwardMemory<Math, kTile>(nullptr, c.d).memory.bytes(),
                                       detail::QueryMemory<Math, kTile>(nullptr, c.d).memory.bytes(),
                                       detail::KeyMemory<Math, kTile>(nullptr, c.d).memory.bytes()});
  std::vector<Line> memory = lines(static_cast<std::size_t>(bytes));
  std::byte* const shared = memory.front().bytes;
  std::vector<float> centers(static_cast<std::size_t>(tokens * c.heads));
  const auto* const go = reinterpret_cast<const T*>(aligned_dout.data());
  const Crew crew;
  for (std::int64_t batch = 0; batch < c.batches; ++batch) {
    for (std::int64_t head = 0; head < c.heads; ++head)
      for (std::int64_t first = 0; first < c.seq; first += kTile) {
        detail::attention_tile<Math, kTile>(crew, shared, v, batch, head, first, slope(head),
                                            got.view().as<T>(), lse.view().as<float>());
        detail::attention_query_tile<Math, kTile>(crew, shared, v, batch, head, first, slope(head),
                                                  want_lse.view().as<float>(), go, centers.data(),
                                                  got_d.view().as<T>());
      }
    for (std::int64_t kv = 0; kv < c.kv_heads; ++kv)
      for (std::int64_t key = 0; key < c.seq; key += kTile)
        detail::attention_key_tile<Math, kTile>(crew, shared, v, batch, kv, key, slope,
                                                want_lse.view().as<float>(), go, centers.data(),
                                                got_d.view().as<T>());
  }
  EXPECT_LE(test::relative_error(got.values(), test::widen(want.values())), bar) << c.name;
  EXPECT_LE(test::relative_error(lse.values(), test::widen(want_lse.values())), 1e-6) << c.name;
  EXPECT_LE(test::relative_error(got_d.values(), test::widen(want_d.values())), bar) << c.name;
}

constexpr Case kCases[] = {{"plain", 2, 70, 2, 2, 16},
                           {"groups", 1, 64, 6, 2, 24},
                           {"one token", 3, 1, 2, 1, 8},
                           {"both ways", 1, 50, 2, 1, 16, false},
                           {"alibi", 1, 65, 3, 3, 16, true, true},
                           {"documents", 2, 97, 4, 2, 16, true, false, true},
                           {"alibi of documents", 1, 80, 4, 4, 8, true, true, true}};

TEST(DeviceAttentionTest, TilesGiveWhatTheHostGives) {
  for (const Case& c : kCases) {
    compare<F32Math, 32, float>(c, 2e-6);
    compare<F32Math, 32, float, CrewInTurn<true>>(c, 2e-6);
    compare<F32Math, 16, float>(c, 2e-6);
    compare<F32Math, 32, bf16>(c, 4e-3);
    compare<F32Math, 16, f16>(c, 5e-4);
    if (!MmaMath<bf16>::takes(c.d)) continue;
    compare<MmaMath<bf16>, 64, bf16>(c, 8e-3);
    compare<MmaMath<bf16>, 64, bf16, CrewInTurn<true>>(c, 8e-3);
    compare<MmaMath<bf16>, 32, bf16>(c, 8e-3);
    compare<MmaMath<f16>, 64, f16>(c, 1e-3);
  }
}

// A warp's registers by the places, multiplied as the instruction does: row by column.
TEST(DeviceAttentionTest, FragmentsAreThoseOfTheInstruction) {
  float a[16][16] = {}, b[16][8] = {}, c[16][8] = {};
  int n_a = 0, n_b = 0, n_c = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, place = lane % 4;  // as the PTX ISA has them
    for (int i = 0; i < 8; ++i) {
      const auto at = detail::place_in_a(lane, i);
      EXPECT_EQ(at.row, (i < 2 || (i >= 4 && i < 6)) ? group : group + 8) << lane << ", a" << i;
      EXPECT_EQ(at.column, place * 2 + (i & 1) + (i >= 4 ? 8 : 0)) << lane << ", a" << i;
      n_a += a[at.row][at.column]++ == 0;
    }
    for (int i = 0; i < 4; ++i) {
      const auto in_b = detail::place_in_b(lane, i), in_c = detail::place_in_c(lane, i);
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

TEST(DeviceAttentionTest, WarpsShareATileWhole) {
  for (const int rows : {32, 64})
    for (const std::int64_t columns : {16, 32, 48, 64, 80, 96, 128, 256}) {
      std::vector<int> taken(static_cast<std::size_t>(rows / 16 * columns / 8));
      for (int warp = 0; warp < 8; ++warp) {
        const detail::WarpShare share = detail::share_of(warp, rows, columns);
        for (std::int64_t n = 0; n < share.count; ++n)
          ++taken[static_cast<std::size_t>(share.row / 16 * (columns / 8) + share.column(n) / 8)];
      }
      EXPECT_EQ(taken, std::vector<int>(taken.size(), 1)) << rows << " x " << columns;
    }
}

}  // namespace
}  // namespace strata::kernels
