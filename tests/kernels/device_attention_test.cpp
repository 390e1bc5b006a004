// The device's attention, tile by tile, run on the host with one thread after the other, beside the host's
// op.
#include <vector>

#include <strata/kernels/attention.h>

#include "cuda/attention_math.h"
#include "op_test.h"

namespace strata::kernels {
namespace {

using detail::AttentionView;
using detail::CrewInTurn;
using test::Tensor;
using test::Values;

struct Case {
  const char* name;
  std::int64_t batches, seq, heads, kv_heads, d;
  bool causal = true, alibi = false, documents = false;
};

template <int kTile, class T>
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

  const AttentionView<T> v{qkv.view().as<T>(),
                           c.documents ? starts.data() : nullptr,
                           c.heads,
                           c.kv_heads,
                           c.d,
                           c.seq,
                           static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.d))),
                           c.causal};
  const auto slope = [&](std::int64_t head) { return c.alibi ? alibi_slope(head, c.heads) : 0.0f; };
  std::vector<float> shared(static_cast<std::size_t>(detail::attention_floats<kTile>(c.d, 6, 2, 3))),
      centers(static_cast<std::size_t>(tokens * c.heads));
  const CrewInTurn crew;
  for (std::int64_t batch = 0; batch < c.batches; ++batch) {
    for (std::int64_t head = 0; head < c.heads; ++head)
      for (std::int64_t first = 0; first < c.seq; first += kTile) {
        detail::attention_tile<kTile>(crew, shared.data(), v, batch, head, first, slope(head),
                                      got.view().as<T>(), lse.view().as<float>());
        detail::attention_query_tile<kTile>(crew, shared.data(), v, batch, head, first, slope(head),
                                            want_lse.view().as<float>(), dout.view().as<T>(), centers.data(),
                                            got_d.view().as<T>());
      }
    for (std::int64_t kv = 0; kv < c.kv_heads; ++kv)
      for (std::int64_t key = 0; key < c.seq; key += kTile)
        detail::attention_key_tile<kTile>(crew, shared.data(), v, batch, kv, key, slope,
                                          want_lse.view().as<float>(), dout.view().as<T>(), centers.data(),
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
    compare<32, float>(c, 2e-6);
    compare<16, float>(c, 2e-6);
    compare<32, bf16>(c, 4e-3);
    compare<16, f16>(c, 5e-4);
  }
}

}  // namespace
}  // namespace strata::kernels
