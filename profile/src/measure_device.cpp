#include "measure_parts.h"

#include <algorithm>
#include <array>

#include <strata/kernels/attention.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/fp8.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>

namespace strata {
Status measure_gemm(BenchFixture& fixture, bool quick, MachineProfile& p) {
  p.gemm_sizes = fixture.sizes().gemm_sizes;
  if (quick) p.gemm_sizes.pop_back();
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const double size : p.gemm_sizes) {
      const auto m = static_cast<std::int64_t>(size), n = std::max(m, fixture.sizes().gemm_other_size);
      STRATA_TRY_ASSIGN(const TensorView x, fixture.tensor({m, n}, dtype));
      STRATA_TRY_ASSIGN(const TensorView w, fixture.tensor({n, n}, dtype));
      STRATA_TRY_ASSIGN(const TensorView y, fixture.tensor({m, n}, dtype));
      BufferView scratch;
      if (fixture.is_gpu()) {
        STRATA_TRY_ASSIGN(scratch, fixture.memory(MemoryKind::device, kernels::gemm_workspace_bytes(m, n)));
      }
      STRATA_TRY_ASSIGN(const double s, fixture.stream_seconds([&] {
        return kernels::linear_forward_async(fixture.backend(), fixture.compute(),
                                             {.x = x, .w = w, .b = {}, .y = y, .workspace = scratch});
      }));
      const double flops = 2.0 * size * static_cast<double>(n) * static_cast<double>(n);
      (dtype == DType::f32 ? p.flops_f32 : p.flops_16bit).push_back(flops / s);
      fixture.release_buffers();
    }
  return {};
}

namespace {

/// FLOP/s of causal attention, which has half of the FLOPs of full attention. A backward has 2.5 times those
/// of a forward, whatever its implementation computes again.
struct AttentionRates {
  double forward = 0, backward = 0;
};
Result<AttentionRates> attention_rates(BenchFixture& fixture, kernels::AttentionBackend by) {
  const MeasureSizes& of = fixture.sizes();
  const std::int64_t width = of.heads * of.head_dim;
  const kernels::AttentionHeads shape{.heads = of.heads, .kv_heads = of.heads, .seq = of.seq, .backend = by};
  STRATA_TRY_ASSIGN(const TensorView qkv, fixture.tensor({of.tokens, 3 * width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dqkv, fixture.tensor(qkv.shape, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView out, fixture.tensor({of.tokens, width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dout, fixture.tensor(out.shape, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView lse, fixture.tensor({of.tokens * of.heads}, DType::f32));
  const auto memory = [&](std::size_t bytes) -> Result<BufferView> {
    if (bytes == 0) return BufferView{};
    return fixture.memory(MemoryKind::device, bytes);
  };
  STRATA_TRY_ASSIGN(const BufferView scratch, memory(kernels::attention_forward_workspace_bytes(
                                                  of.tokens, shape, DType::bf16, of.head_dim)));
  STRATA_TRY_ASSIGN(const BufferView scratch_back, memory(kernels::attention_backward_workspace_bytes(
                                                       of.tokens, shape, DType::bf16, of.head_dim)));
  STRATA_TRY_ASSIGN(const double forward_s, fixture.stream_seconds([&] {
    return kernels::attention_forward_async(fixture.backend(), fixture.compute(),
                                            {qkv, out, lse, {}, shape, scratch});
  }));
  STRATA_TRY_ASSIGN(const double backward_s, fixture.stream_seconds([&] {
    return kernels::attention_backward_async(fixture.backend(), fixture.compute(),
                                             {qkv, out, lse, dout, {}, dqkv, shape, scratch_back});
  }));
  fixture.release_buffers();
  const double flops = 2.0 * static_cast<double>(of.tokens * of.seq * width);
  return AttentionRates{flops / forward_s, 2.5 * flops / backward_s};
}
Status measure_attention_by(BenchFixture& fixture, kernels::AttentionBackend by, double& forward,
                            double& backward) {
  STRATA_TRY_ASSIGN(const AttentionRates rates, attention_rates(fixture, by));
  forward = rates.forward;
  backward = rates.backward;
  return {};
}

Status measure_fp8_gemm(BenchFixture& fixture, MachineProfile& p) {
  std::vector<double> rates;
  for (const double size : p.gemm_sizes) {
    const auto m = static_cast<std::int64_t>(size), n = std::max(m, fixture.sizes().gemm_other_size);
    const auto quantized = [&](std::int64_t rows, TensorView& inverse) -> Result<TensorView> {
      STRATA_TRY_ASSIGN(const TensorView x, fixture.tensor({rows, n}, DType::bf16));
      STRATA_TRY_ASSIGN(inverse, fixture.tensor({1}, DType::f32));
      STRATA_TRY_ASSIGN(const BufferView made, fixture.memory(MemoryKind::device, x.bytes() / 2));
      STRATA_TRY_ASSIGN(const BufferView scratch,
                        fixture.memory(MemoryKind::device, kernels::fp8_cast_workspace_bytes()));
      const TensorView view{made.data, {rows, n}, DType::e4m3};
      STRATA_TRY(
          kernels::fp8_cast_async(fixture.backend(), fixture.compute(), {x, view, {}, inverse, scratch}));
      STRATA_TRY(fixture.backend().synchronize(fixture.compute()));
      return view;
    };
    TensorView a_scale_inv, b_scale_inv;
    STRATA_TRY_ASSIGN(const TensorView a, quantized(m, a_scale_inv));
    STRATA_TRY_ASSIGN(const TensorView b, quantized(n, b_scale_inv));
    STRATA_TRY_ASSIGN(const TensorView c, fixture.tensor({m, n}, DType::bf16));
    STRATA_TRY_ASSIGN(const BufferView scratch,
                      fixture.memory(MemoryKind::device, kernels::gemm_workspace_bytes(m, n)));
    STRATA_TRY_ASSIGN(const double s, fixture.stream_seconds([&] {
      return kernels::fp8_gemm_async(fixture.backend(), fixture.compute(),
                                     {.a = a,
                                      .a_scale_inv = a_scale_inv,
                                      .b = b,
                                      .b_scale_inv = b_scale_inv,
                                      .bias = {},
                                      .c = c,
                                      .workspace = scratch});
    }));
    rates.push_back(2.0 * size * static_cast<double>(n) * static_cast<double>(n) / s);
    fixture.release_buffers();
  }
  p.flops_8bit = rates;
  return {};
}
Status measure_wgmma(BenchFixture& fixture, MachineProfile& p) {
  return measure_attention_by(fixture, kernels::AttentionBackend::wgmma, p.wgmma_attention_flops_per_s,
                              p.wgmma_attention_backward_flops_per_s);
}
Status measure_cudnn(BenchFixture& fixture, MachineProfile& p) {
  return measure_attention_by(fixture, kernels::AttentionBackend::cudnn, p.cudnn_attention_flops_per_s,
                              p.cudnn_attention_backward_flops_per_s);
}

}  // namespace

Status measure_attention(BenchFixture& fixture, MachineProfile& p) {
  const auto by = fixture.is_gpu() ? kernels::AttentionBackend::mma : kernels::AttentionBackend::host;
  return measure_attention_by(fixture, by, p.attention_flops_per_s, p.attention_backward_flops_per_s);
}

std::vector<OptionalMeasurement> optional_measurements(const BenchFixture& fixture) {
  std::vector<OptionalMeasurement> choices;
  if (!fixture.is_gpu()) return choices;
  if (fixture.device().compute_capability >= kernels::kMinFp8ComputeCapability)
    choices.push_back({"FP8 GEMM", &measure_fp8_gemm});
  if (kernels::cudnn_version().has_value()) choices.push_back({"cuDNN attention", &measure_cudnn});
  if (kernels::cuda_has_wgmma()) choices.push_back({"wgmma attention", &measure_wgmma});
  return choices;
}

// layernorm, GELU and addition, which together read or write 7 tensors; then the time of tiny kernels.
Status measure_streaming(BenchFixture& fixture, MachineProfile& p) {
  const std::int64_t rows = fixture.sizes().rows, columns = fixture.sizes().columns;
  std::array<TensorView, 3> x{};
  for (TensorView& tensor : x) {
    STRATA_TRY_ASSIGN(tensor, fixture.tensor({rows, columns}, DType::bf16));
  }
  std::array<TensorView, 2> gain{}, stats{};
  for (TensorView& tensor : gain) {
    STRATA_TRY_ASSIGN(tensor, fixture.tensor({columns}, DType::bf16));
  }
  for (TensorView& tensor : stats) {
    STRATA_TRY_ASSIGN(tensor, fixture.tensor({rows}, DType::f32));
  }
  STRATA_TRY_ASSIGN(const double s, fixture.stream_seconds([&] {
    STRATA_TRY(kernels::layernorm_forward_async(fixture.backend(), fixture.compute(),
                                                {x[0], gain[0], gain[1], x[1], stats[0], stats[1], 1e-5f}));
    STRATA_TRY(kernels::gelu_forward_async(fixture.backend(), fixture.compute(), {x[1], x[2]}));
    return kernels::add_async(fixture.backend(), fixture.compute(), {x[1], x[2], x[0]});
  }));
  p.device_bytes_per_s = 7.0 * static_cast<double>(x[0].bytes()) / s;
  STRATA_TRY_ASSIGN(const TensorView one, fixture.tensor({8}, DType::f32));
  constexpr int kCalls = 64;
  STRATA_TRY_ASSIGN(const double calls, fixture.stream_seconds([&] {
    for (int i = 0; i < kCalls; ++i)
      STRATA_TRY(kernels::add_async(fixture.backend(), fixture.compute(), {one, one, one}));
    return Status::ok();
  }));
  p.launch_s = calls / kCalls;
  fixture.release_buffers();
  return {};
}

}  // namespace strata
