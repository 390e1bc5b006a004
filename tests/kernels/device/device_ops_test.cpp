// Compares ops on the GPU with the host's: the same bits, except for GEMMs and the angles of RoPE. Skipped
// without a GPU.

#include <array>

#include <gtest/gtest.h>

#include <strata/kernels/attention.h>
#include <strata/kernels/cast_rows.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/fp8.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/kernels/rope.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

using test::Values;

class DeviceOpsTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
};

TEST_P(DeviceOpsTest, ComputeCapability90HasWgmma) {
  int device = 0, major = 0, minor = 0;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), cudaSuccess);
  EXPECT_EQ(cuda_has_wgmma(), major == 9 && minor == 0);
}

TEST_P(DeviceOpsTest, Elementwise) {
  for (const std::int64_t n : {1, 255, 70001}) {
    const TensorView x = in({n}, 1, 8.0), dy = in({n}, 2), y = unwritten({n}, GetParam());
    expect_same_bits<GeluForwardArgs>("gelu", {x, y}, &gelu_forward_host, &gelu_forward_async,
                                      {&GeluForwardArgs::y});
    expect_same_bits<GeluBackwardArgs>("gelu backward", {x, dy, y}, &gelu_backward_host, &gelu_backward_async,
                                       {&GeluBackwardArgs::dx});
    for (const bool other : {false, true}) {
      expect_same_bits<ReluForwardArgs>("relu", {x, y, other}, &relu_forward_host, &relu_forward_async,
                                        {&ReluForwardArgs::y});
      expect_same_bits<ReluBackwardArgs>("relu backward", {x, dy, y, other}, &relu_backward_host,
                                         &relu_backward_async, {&ReluBackwardArgs::dx});
    }
    for (const bool silu : {false, true}) {
      expect_same_bits<SigmoidGateForwardArgs>("sigmoid gate", {x, dy, y, silu}, &sigmoid_gate_forward_host,
                                               &sigmoid_gate_forward_async, {&SigmoidGateForwardArgs::y});
      expect_same_bits<SigmoidGateBackwardArgs>(
          "sigmoid gate backward", {x, in({n}, 3, 8.0), dy, y, unwritten({n}, GetParam()), silu},
          &sigmoid_gate_backward_host, &sigmoid_gate_backward_async,
          {&SigmoidGateBackwardArgs::dx, &SigmoidGateBackwardArgs::dgate});
    }
    expect_same_bits<MultiplyArgs>("multiply", {x, dy, y}, &multiply_host, &multiply_async,
                                   {&MultiplyArgs::y});
    expect_same_bits<AddArgs>("add", {x, dy, y}, &add_host, &add_async, {&AddArgs::y});
    expect_same_bits<FillArgs>("fill", {y, 0.1f}, &fill_host, &fill_async, {&FillArgs::x});
  }
  const TensorView gates = in({37, 600}, 3, 8.0), dg = in({37, 300}, 4);
  expect_same_bits<SwigluForwardArgs>("swiglu", {gates, unwritten({37, 300}, GetParam())},
                                      &swiglu_forward_host, &swiglu_forward_async, {&SwigluForwardArgs::y});
  expect_same_bits<SwigluBackwardArgs>("swiglu backward", {gates, dg, unwritten({37, 600}, GetParam())},
                                       &swiglu_backward_host, &swiglu_backward_async,
                                       {&SwigluBackwardArgs::dgate_up});
}

TEST_P(DeviceOpsTest, Norms) {
  for (const auto& [rows, h] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {70, 100}, {300, 1537}, {5000, 64}}) {
    const TensorView x = in({rows, h}, 1, 2.0), w = in({h}, 2), b = in({h}, 3), dy = in({rows, h}, 4);
    const TensorView y = unwritten({rows, h}, GetParam()), mean = unwritten({rows}, DType::f32),
                     rstd = unwritten({rows}, DType::f32);
    expect_same_bits<LayernormForwardArgs>(
        "layernorm", {x, w, b, y, mean, rstd, 1e-5f}, &layernorm_forward_host, &layernorm_forward_async,
        {&LayernormForwardArgs::y, &LayernormForwardArgs::mean, &LayernormForwardArgs::rstd});
    for (const bool adds : {false, true})
      expect_same_bits<LayernormBackwardArgs>(
          "layernorm backward",
          {x, w, mean, rstd, dy, in({rows, h}, 5), in({h}, 6, 1.0, DType::f32), in({h}, 7, 1.0, DType::f32),
           adds, adds, workspace(layernorm_backward_workspace_bytes(rows, h)), adds ? x : TensorView{}},
          &layernorm_backward_host, &layernorm_backward_async,
          {&LayernormBackwardArgs::dx, &LayernormBackwardArgs::dweight, &LayernormBackwardArgs::dbias});
    expect_same_bits<RmsnormForwardArgs>("rmsnorm", {x, w, y, rstd, 1e-6f}, &rmsnorm_forward_host,
                                         &rmsnorm_forward_async,
                                         {&RmsnormForwardArgs::y, &RmsnormForwardArgs::rstd});
    for (const TensorView& residual : {TensorView{}, x})
      expect_same_bits<RmsnormBackwardArgs>("rmsnorm backward",
                                            {x, w, rstd, dy, in({rows, h}, 5), in({h}, 6), false,
                                             workspace(rmsnorm_backward_workspace_bytes(rows, h)), residual},
                                            &rmsnorm_backward_host, &rmsnorm_backward_async,
                                            {&RmsnormBackwardArgs::dx, &RmsnormBackwardArgs::dweight});
    const TensorView sum = unwritten({rows, h}, GetParam());
    expect_same_bits<LayernormForwardArgs>("layernorm of a sum", {x, w, b, y, mean, rstd, 1e-5f, dy, sum},
                                           &layernorm_forward_host, &layernorm_forward_async,
                                           {&LayernormForwardArgs::y, &LayernormForwardArgs::mean,
                                            &LayernormForwardArgs::rstd, &LayernormForwardArgs::sum});
    expect_same_bits<RmsnormForwardArgs>(
        "rmsnorm of a sum", {x, w, y, rstd, 1e-6f, dy, sum}, &rmsnorm_forward_host, &rmsnorm_forward_async,
        {&RmsnormForwardArgs::y, &RmsnormForwardArgs::rstd, &RmsnormForwardArgs::sum});
    expect_same_bits<LinearBackwardBiasArgs>(
        "bias", {dy, in({h}, 8), false, workspace(linear_backward_bias_workspace_bytes(rows, h))},
        &linear_backward_bias_host, &linear_backward_bias_async, {&LinearBackwardBiasArgs::db});
  }
}

// Vector loads and stores if all rows are aligned, value by value if the first row or the stride is not.
TEST_P(DeviceOpsTest, StridedRowCasts) {
  struct Case {
    std::int64_t rows, columns, x_stride, y_stride, x_off, y_off;
    bool adds = false;
  };
  for (const DType to : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c :
         {Case{1, 1, 1, 1, 0, 0}, Case{70, 1024, 4096, 1024, 0, 0}, Case{70, 1024, 1024, 4096, 0, 0},
          Case{70, 1024, 4096, 1024, 1, 0}, Case{70, 1024, 1024, 4096, 0, 1}, Case{33, 100, 101, 107, 0, 0},
          Case{70, 1024, 1024, 4096, 0, 0, true}, Case{33, 100, 101, 107, 0, 0, true}}) {
      const TensorView x = in({c.rows * c.x_stride + c.x_off}, 1),
                       y = unwritten({c.rows * c.y_stride + c.y_off}, to), device_y = unwritten(y.shape, to);
      std::memset(y.data, 0x3c, y.bytes());           // a small number in every dtype
      std::memcpy(device_y.data, y.data, y.bytes());  // the same bytes between rows
      const auto args = [&](const TensorView& into) {
        return CastRowsArgs{
            {x.data + c.x_off * static_cast<std::int64_t>(size_of(x.dtype)), {c.rows, c.columns}, x.dtype},
            {into.data + c.y_off * static_cast<std::int64_t>(size_of(to)), {c.rows, c.columns}, to},
            c.x_stride,
            c.y_stride,
            c.adds};
      };
      cast_rows_host(args(y), *pool_);
      run_on_device(&cast_rows_async, args(device_y));
      EXPECT_EQ(std::memcmp(y.data, device_y.data, y.bytes()), 0)
          << c.rows << " x " << c.columns << " to " << to_string(to) << ", off by " << c.x_off << ", "
          << c.y_off;
    }
}

TEST_P(DeviceOpsTest, Fp8Casts) {
  for (const DType dtype : {DType::e4m3, DType::e5m2})
    for (const auto& [rows, k] : {std::pair<std::int64_t, std::int64_t>{16, 16}, {272, 144}, {144, 528}})
      expect_same_bits<Fp8CastArgs>(
          "fp8 cast",
          {in({rows, k}, 1, 0.01), unwritten({rows, k}, dtype), unwritten({k, rows}, dtype),
           unwritten({1}, DType::f32), workspace(fp8_cast_workspace_bytes())},
          &fp8_cast_host, &fp8_cast_async,
          {&Fp8CastArgs::rowwise, &Fp8CastArgs::columnwise, &Fp8CastArgs::scale_inv});
}

// Tensor cores accumulate with somewhat less precision than f32.
TEST_P(DeviceOpsTest, Fp8Gemms) {
  if (must(cuda_device()).compute_capability < 89)
    GTEST_SKIP() << "fp8 GEMMs need compute capability 8.9 or later";
  constexpr std::int64_t m = 272, n = 144, k = 528;
  const auto cast = [&](const TensorView& x, DType dtype) {
    const Fp8CastArgs args{
        x, unwritten(x.shape, dtype), {}, unwritten({1}, DType::f32), workspace(fp8_cast_workspace_bytes())};
    fp8_cast_host(args, *pool_);
    return args;
  };
  const Fp8CastArgs b = cast(in({n, k}, 2), DType::e4m3);
  for (const DType dtype : {DType::e5m2, DType::e4m3})
    for (const bool adds : {false, true}) {
      const Fp8CastArgs a = cast(in({m, k}, 1, 0.01), dtype);
      const DType out_dtype = adds ? DType::f32 : GetParam();
      const TensorView bias = out_dtype == DType::f32 ? TensorView{} : in({n}, 3);
      expect_close<Fp8GemmArgs>("fp8 gemm",
                                {a.rowwise, a.scale_inv, b.rowwise, b.scale_inv, bias,
                                 in({m, n}, 4, 1.0, out_dtype), adds, workspace(gemm_workspace_bytes(m, n))},
                                &fp8_gemm_host, &fp8_gemm_async, &Fp8GemmArgs::c,
                                out_dtype == DType::f32 ? 2e-3 : 6e-3);
    }
}

TEST_P(DeviceOpsTest, OutputsMayAliasInputs) {
  constexpr std::int64_t rows = 200, h = 96, heads = 2, d = 24, seq = 8;
  const TensorView x = in({rows, h}, 1), w = in({h}, 2), q = in({d}, 3), k = in({d}, 4),
                   dy = in({rows, h}, 5);
  const TensorView mean = in({rows}, 6, 1.0, DType::f32), rstd = in({rows}, 7, 1.0, DType::f32);
  const TensorView of_heads = in({rows * 3}, 8, 1.0, DType::f32);
  const auto f32 = [&](std::int64_t n) { return unwritten({n}, DType::f32); };
  // Sums over rows read all of dy, which dx overwrites.
  LayernormBackwardArgs norm{x,
                             w,
                             mean,
                             rstd,
                             dy,
                             dy,
                             f32(h),
                             f32(h),
                             false,
                             false,
                             workspace(layernorm_backward_workspace_bytes(rows, h))};
  expect_same_bits_in_place("layernorm's dx", norm, &layernorm_backward_host, &layernorm_backward_async,
                            &LayernormBackwardArgs::dy, &LayernormBackwardArgs::dx);
  LayernormBackwardArgs joined = norm;
  joined.residual = joined.dy;  // as in y = x + norm(x)
  expect_same_bits_in_place("layernorm's dx with its dy", joined, &layernorm_backward_host,
                            &layernorm_backward_async, &LayernormBackwardArgs::dy,
                            &LayernormBackwardArgs::dx);
  joined.dx = joined.residual = in({rows, h}, 9);
  expect_same_bits_in_place("layernorm's dx aliasing the residual", joined, &layernorm_backward_host,
                            &layernorm_backward_async, &LayernormBackwardArgs::residual,
                            &LayernormBackwardArgs::dx);
  const TensorView addend = in({rows, h}, 10), y = unwritten({rows, h}, GetParam());
  expect_same_bits_in_place("layernorm's sum",
                            LayernormForwardArgs{x, w, w, y, f32(rows), f32(rows), 1e-5f, addend, addend},
                            &layernorm_forward_host, &layernorm_forward_async, &LayernormForwardArgs::added,
                            &LayernormForwardArgs::sum);
  expect_same_bits_in_place("rmsnorm's sum", RmsnormForwardArgs{x, w, y, f32(rows), 1e-6f, addend, addend},
                            &rmsnorm_forward_host, &rmsnorm_forward_async, &RmsnormForwardArgs::added,
                            &RmsnormForwardArgs::sum);
  // The column sums agree, too.
  const auto sums = [&](const auto& run) {
    norm.dy = norm.dx = in({rows, h}, 5);
    norm.dweight = f32(h);
    run();
    return std::vector<float>(norm.dweight.as<float>(), norm.dweight.as<float>() + h);
  };
  EXPECT_EQ(sums([&] { layernorm_backward_host(norm, *pool_); }),
            sums([&] { run_on_device(&layernorm_backward_async, norm); }));
  expect_same_bits_in_place("rmsnorm's dx",
                            RmsnormBackwardArgs{x, w, rstd, dy, dy, f32(h), false,
                                                workspace(rmsnorm_backward_workspace_bytes(rows, h))},
                            &rmsnorm_backward_host, &rmsnorm_backward_async, &RmsnormBackwardArgs::dy,
                            &RmsnormBackwardArgs::dx);
  expect_same_bits_in_place("rmsnorm's dx aliasing the residual",
                            RmsnormBackwardArgs{x, w, rstd, dy, addend, f32(h), false,
                                                workspace(rmsnorm_backward_workspace_bytes(rows, h)), addend},
                            &rmsnorm_backward_host, &rmsnorm_backward_async, &RmsnormBackwardArgs::residual,
                            &RmsnormBackwardArgs::dx);
  expect_same_bits_in_place("qk norm", QkNormForwardArgs{x, q, k, x, of_heads, heads, 1},
                            &qk_norm_forward_host, &qk_norm_forward_async, &QkNormForwardArgs::qkv,
                            &QkNormForwardArgs::y);
  expect_same_bits_in_place(
      "qk norm's dx",
      QkNormBackwardArgs{x, q, k, of_heads, dy, dy, f32(d), f32(d), heads, 1, false, false,
                         workspace(qk_norm_backward_workspace_bytes(rows, d, d))},
      &qk_norm_backward_host, &qk_norm_backward_async, &QkNormBackwardArgs::dy, &QkNormBackwardArgs::dx);
  const TensorView positions = unwritten({rows}, DType::i32), table = in({seq, 16}, 9, 1.0, DType::f32);
  positions_host({{}, positions, seq}, *pool_);
  expect_same_bits_in_place("rope", RopeArgs{x, positions, table, x, heads, d}, &rope_host, &rope_async,
                            &RopeArgs::x, &RopeArgs::y);
}

TEST_P(DeviceOpsTest, QkNorms) {
  constexpr std::int64_t rows = 130, heads = 8, kv_heads = 2, d = 48, width = (heads + 2 * kv_heads) * d;
  const TensorView x = in({rows, width}, 1, 2.0), q = in({d}, 2), k = in({d}, 3), dy = in({rows, width}, 4);
  for (const bool values : {false, true}) {
    const TensorView rstd = unwritten({rows * (heads + (values ? 2 : 1) * kv_heads)}, DType::f32);
    expect_same_bits<QkNormForwardArgs>(
        "qk norm",
        {x, q, k, unwritten({rows, width}, GetParam()), rstd, heads, kv_heads, 1e-6f, 0.0f, values},
        &qk_norm_forward_host, &qk_norm_forward_async, {&QkNormForwardArgs::y, &QkNormForwardArgs::rstd});
    expect_same_bits<QkNormBackwardArgs>(
        "qk norm backward",
        {x, q, k, rstd, dy, unwritten({rows, width}, GetParam()), in({d}, 5, 1.0, DType::f32),
         in({d}, 6, 1.0, DType::f32), heads, kv_heads, true, true,
         workspace(qk_norm_backward_workspace_bytes(rows, d, d)), 0.0f, values},
        &qk_norm_backward_host, &qk_norm_backward_async,
        {&QkNormBackwardArgs::dx, &QkNormBackwardArgs::dq_weight, &QkNormBackwardArgs::dk_weight});
  }
}

TEST_P(DeviceOpsTest, Embeddings) {
  for (const auto& [tokens, vocab] :
       {std::pair<std::int64_t, std::int64_t>{1, 3}, {5000, 40}, {3000, 5000}}) {
    constexpr std::int64_t h = 72;
    const TensorView ids = integers(Values(9).below(tokens, vocab)), table = in({vocab, h}, 1);
    expect_same_bits<EmbeddingForwardArgs>("embedding", {ids, table, unwritten({tokens, h}, GetParam())},
                                           &embedding_forward_host, &embedding_forward_async,
                                           {&EmbeddingForwardArgs::x});
    for (const bool adds : {false, true})
      expect_same_bits<EmbeddingBackwardArgs>(
          "embedding backward",
          {ids, in({tokens, h}, 2), in({vocab, h}, 3, 1.0, DType::f32), 0, adds,
           workspace(embedding_backward_workspace_bytes(tokens, vocab))},
          &embedding_backward_host, &embedding_backward_async, {&EmbeddingBackwardArgs::dtable});
  }
}

TEST_P(DeviceOpsTest, RotaryPositions) {
  constexpr std::int64_t seq = 32, rows = 4 * seq, heads = 6, d = 40, rotary_dim = 32;
  const TensorView positions = unwritten({rows}, DType::i32),
                   table = unwritten({seq, rotary_dim}, DType::f32);
  expect_same_bits<PositionsArgs>("positions", {{}, positions, seq}, &positions_host, &positions_async,
                                  {&PositionsArgs::positions});
  using Scaling = RopeFrequencies::Scaling;
  for (const RopeFrequencies& frequencies :
       {RopeFrequencies{.scaling = Scaling::llama3, .factor = 8.0f, .original_positions = 64.0f},
        RopeFrequencies{.scaling = Scaling::linear, .factor = 4.0f}, RopeFrequencies{.still = 5},
        RopeFrequencies{}}) {
    rope_table_host({table, frequencies}, *pool_);
    const TensorView own = unwritten({seq, rotary_dim}, DType::f32);
    run_on_device<RopeTableArgs>(&rope_table_async, {own, frequencies});
    for (std::int64_t i = 0; i < table.n_elems(); ++i)
      EXPECT_NEAR(table.as<float>()[i], own.as<float>()[i], 1e-6) << i;
  }
  for (const bool interleaved : {false, true})
    for (const bool inverse : {false, true})
      expect_same_bits<RopeArgs>(
          "rope",
          {in({rows, (heads + 2) * d}, 1), positions, table, unwritten({rows, (heads + 2) * d}, GetParam()),
           heads, d, interleaved, inverse},
          &rope_host, &rope_async, {&RopeArgs::y});
}

TEST_P(DeviceOpsTest, CrossEntropy) {
  for (const auto& [rows, vocab] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3000, 50}, {65, 70001}}) {
    std::vector<std::int32_t> wanted = Values(9).below(rows, vocab);
    for (std::size_t i = 1; i < wanted.size(); i += 3) wanted[i] = -1;
    const TensorView logits = in({rows, vocab}, 1, 9.0), targets = integers(wanted);
    const TensorView losses = unwritten({rows}, DType::f32), lse = unwritten({rows}, DType::f32),
                     mean = unwritten({1}, DType::f32);
    expect_same_bits<CrossEntropyForwardArgs>(
        "cross entropy", {logits, targets, losses, lse, mean}, &cross_entropy_forward_host,
        &cross_entropy_forward_async,
        {&CrossEntropyForwardArgs::losses, &CrossEntropyForwardArgs::lse,
         &CrossEntropyForwardArgs::mean_loss});
    expect_same_bits<CrossEntropyBackwardArgs>(
        "cross entropy backward", {logits, targets, lse, unwritten({rows, vocab}, GetParam()), 1.0f, true},
        &cross_entropy_backward_host, &cross_entropy_backward_async, {&CrossEntropyBackwardArgs::dlogits});
  }
}

// Host and device add products in different orders. The last shape has a long k and a small result, which is
// computed by split-K if there is a workspace.
TEST_P(DeviceOpsTest, GemmsAreCloseToTheHosts) {
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 2e-3 : 1e-2;
  const auto scratch = [&](std::int64_t m, std::int64_t n) { return workspace(gemm_workspace_bytes(m, n)); };
  for (const auto& [rows, n, k] :
       {std::array<std::int64_t, 3>{1, 8, 16}, {70, 96, 40}, {257, 512, 1000}, {64, 128, 16384}}) {
    const TensorView x = in({rows, k}, 1), w = in({n, k}, 2), b = in({n}, 3), dy = in({rows, n}, 4);
    for (const BufferView& given : {BufferView{}, scratch(rows, n)}) {
      expect_close<LinearForwardArgs>("linear", {x, w, b, unwritten({rows, n}, GetParam()), given},
                                      &linear_forward_host, &linear_forward_async, &LinearForwardArgs::y,
                                      tolerance);
      expect_close<LinearForwardArgs>(
          "linear without bias", {x, w, {}, unwritten({rows, n}, GetParam()), given}, &linear_forward_host,
          &linear_forward_async, &LinearForwardArgs::y, tolerance);
    }
    for (const bool adds : {false, true}) {
      expect_close<LinearBackwardInputArgs>("linear's dx", {dy, w, in({rows, k}, 5), adds, scratch(rows, k)},
                                            &linear_backward_input_host, &linear_backward_input_async,
                                            &LinearBackwardInputArgs::dx, tolerance);
      expect_close<LinearBackwardWeightArgs>("linear's dw",
                                             {dy, x, in({n, k}, 6, 1.0, DType::f32), adds, scratch(n, k)},
                                             &linear_backward_weight_host, &linear_backward_weight_async,
                                             &LinearBackwardWeightArgs::dw, tolerance);
    }
  }
}

TEST_P(DeviceOpsTest, LinearCrossEntropyIsCloseToTheHosts) {
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 2e-3 : 1e-2;
  constexpr std::int64_t rows = 300, k = 64, vocab = 9001;
  std::vector<std::int32_t> wanted = Values(9).below(rows, vocab);
  wanted[3] = -1;
  const LinearCrossEntropyArgs forward = {
      in({rows, k}, 1),
      in({vocab, k}, 2),
      integers(wanted),
      unwritten({rows}, DType::f32),
      unwritten({1}, DType::f32),
      {},
      workspace(linear_cross_entropy_workspace_bytes(rows, vocab, GetParam())),
      workspace(linear_cross_entropy_gemm_workspace_bytes(rows, vocab, k))};
  expect_close<LinearCrossEntropyArgs>("losses", forward, &linear_cross_entropy_host,
                                       &linear_cross_entropy_async, &LinearCrossEntropyArgs::losses,
                                       tolerance);
  const LinearCrossEntropyBackwardArgs backward = {forward, unwritten({rows, k}, GetParam()),
                                                   in({vocab, k}, 4, 1.0, DType::f32), true};
  expect_close<LinearCrossEntropyBackwardArgs>("the head's dx", backward, &linear_cross_entropy_backward_host,
                                               &linear_cross_entropy_backward_async,
                                               &LinearCrossEntropyBackwardArgs::dx, tolerance);
  expect_close<LinearCrossEntropyBackwardArgs>("the head's dw", backward, &linear_cross_entropy_backward_host,
                                               &linear_cross_entropy_backward_async,
                                               &LinearCrossEntropyBackwardArgs::dw, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceOpsTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
