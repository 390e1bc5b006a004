// Compares attention on the GPU with the host's (see device_ops_test.cpp).

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>
#include <strata/kernels/cublaslt_algorithms.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

// Each backend is a case of its own, so that one that hangs or is missing does not affect the others.
class DeviceAttentionTest : public test::DeviceFixture<std::tuple<DType, AttentionBackend>> {
 protected:
  void SetUp() override {
    DeviceFixture::SetUp();
    if (IsSkipped()) return;
    if (attention_backend() == AttentionBackend::wgmma && !cuda_has_wgmma())
      GTEST_SKIP() << "no GPU of compute capability 9.0, or no kernels for 9.0a";
    if (attention_backend() == AttentionBackend::cudnn)
      if (const auto cudnn = cudnn_version(); !cudnn.has_value()) GTEST_SKIP() << cudnn.status().message();
  }
  DType dtype() const override { return std::get<0>(GetParam()); }
  AttentionBackend attention_backend() const { return std::get<1>(GetParam()); }
};

// The kernels use no atomics, so a difference between runs means that data was read before it had arrived.
TEST_P(DeviceAttentionTest, IsDeterministic) {
  constexpr std::int64_t kSeq = 300, kHeads = 16, kRows = 4 * kSeq;
  for (const std::int64_t d : {64, 128}) {
    const AttentionHeads shape{.heads = kHeads, .kv_heads = 4, .seq = kSeq, .backend = attention_backend()};
    const TensorView qkv = in({kRows, (kHeads + 8) * d}, 1), dout = in({kRows, kHeads * d}, 2);
    const TensorView lse = unwritten({kRows * kHeads}, DType::f32);
    const BufferView scratch =
        workspace(std::max(attention_forward_workspace_bytes(kRows, shape, dtype(), d),
                           attention_backward_workspace_bytes(kRows, shape, dtype(), d)));
    TensorView out[2], dqkv[2];
    for (int run = 0; run < 10; ++run) {
      const int i = std::min(run, 1);
      out[i] = unwritten({kRows, kHeads * d}, dtype());
      dqkv[i] = unwritten({kRows, (kHeads + 8) * d}, dtype());
      run_on_device<AttentionForwardArgs>(&attention_forward_async, {qkv, out[i], lse, {}, shape, scratch});
      run_on_device<AttentionBackwardArgs>(&attention_backward_async,
                                           {qkv, out[i], lse, dout, {}, dqkv[i], shape, scratch});
      if (run == 0) continue;
      EXPECT_EQ(std::memcmp(out[0].data, out[1].data, out[0].bytes()), 0) << d << ", run " << run;
      EXPECT_EQ(std::memcmp(dqkv[0].data, dqkv[1].data, dqkv[0].bytes()), 0) << d << ", run " << run;
    }
  }
}

// Tensor cores multiply probabilities in 16 bits, which the host keeps in f32.
double forward_tolerance(DType dtype) {
  return dtype == DType::f32 ? 2e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
}

// Which values between its GEMMs cuDNN's backward rounds to bf16 is up to its engine and differs between
// versions; each has an error of up to 2^-8 = 3.9e-3. The tolerance has room for two more roundings than our
// kernels make.
double backward_tolerance(DType dtype, AttentionBackend by) {
  return by == AttentionBackend::cudnn && dtype == DType::bf16 ? 1.5e-2 : forward_tolerance(dtype);
}

// A workspace for the GPU and for the host.
std::size_t either_workspace(std::size_t (*bytes)(std::int64_t, const AttentionHeads&, DType,
                                                  std::int64_t) noexcept,
                             std::int64_t tokens, AttentionHeads shape, DType dtype, std::int64_t d) {
  const std::size_t of_gpu = bytes(tokens, shape, dtype, d);
  shape.backend = AttentionBackend::host;
  return std::max(of_gpu, bytes(tokens, shape, dtype, d));
}

TEST_P(DeviceAttentionTest, IsCloseToTheHosts) {
  const double tolerance = forward_tolerance(dtype());
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
    for (const auto& [causal, documents] :
         {std::pair{true, TensorView{}}, {true, of_documents}, {false, TensorView{}}}) {
      if (!causal && alibi) continue;
      const AttentionHeads shape{.heads = heads,
                                 .kv_heads = kv_heads,
                                 .seq = seq,
                                 .causal = causal,
                                 .alibi = alibi,
                                 .backend = attention_backend()};
      const TensorView qkv = in({rows, width}, 1), dout = in({rows, heads * d}, 2),
                       out = unwritten({rows, heads * d}, dtype());
      const TensorView lse = unwritten({rows * heads}, DType::f32),
                       sinks = heads == 4 ? in({heads}, 3, 2.0) : TensorView{};
      expect_close<AttentionForwardArgs>(
          "attention",
          {qkv,
           out,
           lse,
           documents,
           shape,
           workspace(either_workspace(&attention_forward_workspace_bytes, rows, shape, dtype(), d)),
           {},
           sinks},
          &attention_forward_host, &attention_forward_async, &AttentionForwardArgs::out, tolerance);
      expect_close<AttentionForwardArgs>(
          "attention's lse",
          {qkv,
           out,
           lse,
           documents,
           shape,
           workspace(either_workspace(&attention_forward_workspace_bytes, rows, shape, dtype(), d)),
           {},
           sinks},
          &attention_forward_host, &attention_forward_async, &AttentionForwardArgs::lse, 1e-5);
      expect_close<AttentionBackwardArgs>(
          "attention backward",
          {qkv,
           out,
           lse,
           dout,
           documents,
           unwritten({rows, width}, dtype()),
           shape,
           workspace(either_workspace(&attention_backward_workspace_bytes, rows, shape, dtype(), d)),
           {},
           {},
           {},
           sinks},
          &attention_backward_host, &attention_backward_async, &AttentionBackwardArgs::dqkv,
          backward_tolerance(dtype(), attention_backend()));
      if (heads != 4) continue;
      const TensorView delta = unwritten({rows * heads}, DType::f32);
      expect_close<AttentionBackwardArgs>(
          "delta",
          {qkv,
           out,
           lse,
           dout,
           documents,
           unwritten({rows, width}, dtype()),
           shape,
           workspace(either_workspace(&attention_backward_workspace_bytes, rows, shape, dtype(), d)),
           {},
           {},
           {},
           sinks,
           delta},
          &attention_backward_host, &attention_backward_async, &AttentionBackwardArgs::delta_out,
          backward_tolerance(dtype(), attention_backend()));
      expect_close<AttentionBackwardSinksArgs>(
          "gradients of sinks", {lse, delta, sinks, unwritten({heads}, dtype()), seq},
          &attention_backward_sinks_host, &attention_backward_sinks_async,
          &AttentionBackwardSinksArgs::dsinks, tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceAttentionTest,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(AttentionBackend::mma, AttentionBackend::wgmma,
                                                              AttentionBackend::cudnn)),
                         [](const auto& test) {
                           return std::string(to_string(std::get<0>(test.param))) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

class DeviceCacheTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
};

TEST_P(DeviceCacheTest, AttentionOverACache) {
  constexpr std::int64_t d = 64, capacity = 300, sequences = 3;
  for (const CachedAttentionShape shape :
       {CachedAttentionShape{6, 6, false}, CachedAttentionShape{8, 2, false},
        CachedAttentionShape{4, 1, true}}) {
    const std::vector<std::int32_t> places = {299, 0, 117, 118, 0}, slots = {0, 1, 2, 2, -1};
    const auto rows = std::ssize(slots);
    expect_same_bits<CachedAttentionArgs>(
        "cached attention",
        {in({rows, (shape.heads + 2 * shape.kv_heads) * d}, 1, 2.0), integers(places), integers(slots),
         in({sequences, shape.kv_heads, capacity, d}, 2), in({sequences, shape.kv_heads, capacity, d}, 3),
         unwritten({rows, shape.heads * d}, dtype()), shape,
         workspace(cached_attention_workspace_bytes(rows, capacity, d, shape)),
         shape.heads == 8 ? in({shape.heads}, 4, 2.0) : TensorView{}},
        &cached_attention_host, &cached_attention_async,
        {&CachedAttentionArgs::out, &CachedAttentionArgs::keys, &CachedAttentionArgs::values});
  }
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceCacheTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
