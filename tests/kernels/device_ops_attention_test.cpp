// Attention on the GPU beside the host's (device_ops_test.cpp).

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>
#include <strata/kernels/cuda_products.h>

#include "device_rig.h"

namespace strata::kernels {
namespace {

// By warpgroups where the GPU has them; elsewhere that repeats the first.
std::vector<AttentionBy> ways() {
  std::vector<AttentionBy> all = {AttentionBy::warps, AttentionBy::groups};
  if (cuda_cudnn().has_value()) all.push_back(AttentionBy::cudnn);
  return all;
}

TEST_P(DeviceOpsTest, AGpuOfComputeCapability9HasWarpgroups) {
  int device = 0, major = 0, minor = 0;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), cudaSuccess);
  EXPECT_EQ(cuda_attends_by_groups(), major == 9 && minor == 0);
}

// Without atomics: what differs from run to run was read before it was there.
TEST_P(DeviceOpsTest, AttentionHasTheSameBitsEveryTime) {
  constexpr std::int64_t kSeq = 300, kHeads = 16, kRows = 4 * kSeq;
  for (const std::int64_t d : {64, 128})
    for (const AttentionBy by : ways()) {
      const AttentionHeads shape{.heads = kHeads, .kv_heads = 4, .seq = kSeq, .by = by};
      const TensorView qkv = in({kRows, (kHeads + 8) * d}, 1), dout = in({kRows, kHeads * d}, 2);
      const TensorView lse = unwritten({kRows * kHeads}, DType::f32);
      const BufferView scratch =
          workspace(std::max(attention_forward_workspace_bytes(kRows, shape, GetParam(), d),
                             attention_backward_workspace_bytes(kRows, shape, GetParam(), d)));
      TensorView out[2], dqkv[2];
      for (int run = 0; run < 10; ++run) {
        const int i = std::min(run, 1);
        out[i] = unwritten({kRows, kHeads * d}, GetParam());
        dqkv[i] = unwritten({kRows, (kHeads + 8) * d}, GetParam());
        must(attention_forward_async(*backend_, stream_, {qkv, out[i], lse, {}, shape, scratch}));
        must(attention_backward_async(*backend_, stream_,
                                      {qkv, out[i], lse, dout, {}, dqkv[i], shape, scratch}));
        must(backend_->synchronize(stream_));
        if (run == 0) continue;
        EXPECT_EQ(std::memcmp(out[0].data, out[1].data, out[0].bytes()), 0) << d << ", run " << run;
        EXPECT_EQ(std::memcmp(dqkv[0].data, dqkv[1].data, dqkv[0].bytes()), 0) << d << ", run " << run;
      }
    }
}

TEST_P(DeviceOpsTest, AttentionIsCloseToTheHosts) {
  // Tensor cores take probabilities in 16 bits, which the host keeps in f32.
  const double bar = GetParam() == DType::f32 ? 2e-6 : GetParam() == DType::f16 ? 1e-3 : 8e-3;
  for (const auto& [seq, heads, kv_heads, d, alibi] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool>{1, 2, 1, 8, false},
        {97, 6, 2, 64, false},
        {80, 4, 4, 128, true},
        {200, 4, 2, 96, false},
        {300, 4, 2, 128, false},
        {257, 3, 3, 64, true},
        {70, 2, 2, 80, false},
        {40, 2, 1, 160, false}}) {
    const std::int64_t rows = 3 * seq, width = (heads + 2 * kv_heads) * d;
    std::vector<std::int32_t> starts;
    for (std::int64_t t = 0; t < rows; ++t) starts.push_back(t % seq < 5 ? 0 : t % seq < 140 ? 5 : 140);
    const TensorView of_documents = integers(starts);
    const std::vector<AttentionBy> all = ways();
    for (std::size_t i = 0; i < 3 * all.size(); ++i) {
      const bool causal = i % 3 != 2;
      if (!causal && alibi) continue;
      const TensorView documents = i % 3 == 1 ? of_documents : TensorView{};
      const AttentionHeads shape{.heads = heads,
                                 .kv_heads = kv_heads,
                                 .seq = seq,
                                 .causal = causal,
                                 .alibi = alibi,
                                 .by = all[i / 3]};
      const TensorView qkv = in({rows, width}, 1), dout = in({rows, heads * d}, 2),
                       out = unwritten({rows, heads * d}, GetParam());
      const TensorView lse = unwritten({rows * heads}, DType::f32);
      close<AttentionForwardArgs>("attention",
                                  {qkv, out, lse, documents, shape,
                                   workspace(attention_forward_workspace_bytes(rows, shape, GetParam(), d))},
                                  &attention_forward_host, &attention_forward_async,
                                  &AttentionForwardArgs::out, bar);
      close<AttentionForwardArgs>("attention's lse",
                                  {qkv, out, lse, documents, shape,
                                   workspace(attention_forward_workspace_bytes(rows, shape, GetParam(), d))},
                                  &attention_forward_host, &attention_forward_async,
                                  &AttentionForwardArgs::lse, 1e-5);
      close<AttentionBackwardArgs>(
          "attention backward",
          {qkv, out, lse, dout, documents, unwritten({rows, width}, GetParam()), shape,
           workspace(attention_backward_workspace_bytes(rows, shape, GetParam(), d))},
          &attention_backward_host, &attention_backward_async, &AttentionBackwardArgs::dqkv, bar);
    }
  }
}

class DeviceCacheTest : public DeviceOpsTest {};

TEST_P(DeviceCacheTest, AttentionOverACache) {
  constexpr std::int64_t d = 64, capacity = 300, sequences = 3;
  for (const CachedAttentionShape shape :
       {CachedAttentionShape{6, 6, false}, CachedAttentionShape{8, 2, false},
        CachedAttentionShape{4, 1, true}}) {
    const std::vector<std::int32_t> places = {299, 0, 117, 118, 0}, slots = {0, 1, 2, 2, -1};
    const auto rows = std::ssize(slots);
    same<CachedAttentionArgs>(
        "cached attention",
        {in({rows, (shape.heads + 2 * shape.kv_heads) * d}, 1, 2.0), integers(places), integers(slots),
         in({sequences, shape.kv_heads, capacity, d}, 2), in({sequences, shape.kv_heads, capacity, d}, 3),
         unwritten({rows, shape.heads * d}, DType::f32), shape,
         workspace(cached_attention_workspace_bytes(rows, capacity, shape))},
        &cached_attention_host, &cached_attention_async,
        {&CachedAttentionArgs::out, &CachedAttentionArgs::keys, &CachedAttentionArgs::values});
  }
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceCacheTest, ::testing::Values(DType::f32),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
