#include "machine/measure_parts.h"

#include <algorithm>
#include <array>

#include <strata/kernels/attention.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/fp8.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>

namespace strata::cli {
Status measure_products(MeasureRig& rig, bool quick, MachineProfile& p) {
  p.gemm_sizes = rig.sizes().products;
  if (quick) p.gemm_sizes.pop_back();
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const double size : p.gemm_sizes) {
      const auto m = static_cast<std::int64_t>(size), n = std::max(m, rig.sizes().other_sides);
      STRATA_TRY_ASSIGN(const TensorView x, rig.tensor({m, n}, dtype));
      STRATA_TRY_ASSIGN(const TensorView w, rig.tensor({n, n}, dtype));
      STRATA_TRY_ASSIGN(const TensorView y, rig.tensor({m, n}, dtype));
      BufferView scratch;
      if (rig.is_gpu()) {
        STRATA_TRY_ASSIGN(scratch, rig.memory(MemoryKind::device, kernels::gemm_workspace_bytes(m, n)));
      }
      STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
        return kernels::linear_forward_async(rig.backend(), rig.compute(),
                                             {.x = x, .w = w, .b = {}, .y = y, .workspace = scratch});
      }));
      const double flops = 2.0 * size * static_cast<double>(n) * static_cast<double>(n);
      (dtype == DType::f32 ? p.flops_f32 : p.flops_16bit).push_back(flops / s);
      rig.forget();
    }
  return {};
}

namespace {

// Forward, causal: half of the products of a full one.
Result<double> attention_rate(MeasureRig& rig, kernels::AttentionBackend by) {
  const MeasureSizes& of = rig.sizes();
  const std::int64_t width = of.heads * of.head_dim;
  const kernels::AttentionHeads shape{.heads = of.heads, .kv_heads = of.heads, .seq = of.seq, .backend = by};
  STRATA_TRY_ASSIGN(const TensorView qkv, rig.tensor({of.tokens, 3 * width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView out, rig.tensor({of.tokens, width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView lse, rig.tensor({of.tokens * of.heads}, DType::f32));
  STRATA_TRY_ASSIGN(const BufferView workspace,
                    rig.memory(MemoryKind::device, kernels::attention_forward_workspace_bytes(
                                                       of.tokens, shape, DType::bf16, of.head_dim)));
  STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
    return kernels::attention_forward_async(rig.backend(), rig.compute(),
                                            {qkv, out, lse, {}, shape, workspace});
  }));
  rig.forget();
  return 2.0 * static_cast<double>(of.tokens * of.seq * width) / s;
}

Status measure_fp8_products(MeasureRig& rig, MachineProfile& p) {
  std::vector<double> rates;
  for (const double size : p.gemm_sizes) {
    const auto m = static_cast<std::int64_t>(size), n = std::max(m, rig.sizes().other_sides);
    const auto codes = [&](std::int64_t rows, TensorView& inverse) -> Result<TensorView> {
      STRATA_TRY_ASSIGN(const TensorView x, rig.tensor({rows, n}, DType::bf16));
      STRATA_TRY_ASSIGN(inverse, rig.tensor({1}, DType::f32));
      STRATA_TRY_ASSIGN(const BufferView made, rig.memory(MemoryKind::device, x.bytes() / 2));
      STRATA_TRY_ASSIGN(const BufferView scratch,
                        rig.memory(MemoryKind::device, kernels::fp8_cast_workspace_bytes()));
      const TensorView view{made.data, {rows, n}, DType::e4m3};
      STRATA_TRY(kernels::fp8_cast_async(rig.backend(), rig.compute(), {x, view, {}, inverse, scratch}));
      STRATA_TRY(rig.backend().synchronize(rig.compute()));
      return view;
    };
    TensorView a_scale_inv, b_scale_inv;
    STRATA_TRY_ASSIGN(const TensorView a, codes(m, a_scale_inv));
    STRATA_TRY_ASSIGN(const TensorView b, codes(n, b_scale_inv));
    STRATA_TRY_ASSIGN(const TensorView c, rig.tensor({m, n}, DType::bf16));
    STRATA_TRY_ASSIGN(const BufferView scratch,
                      rig.memory(MemoryKind::device, kernels::gemm_workspace_bytes(m, n)));
    STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
      return kernels::fp8_gemm_async(rig.backend(), rig.compute(),
                                     {.a = a,
                                      .a_scale_inv = a_scale_inv,
                                      .b = b,
                                      .b_scale_inv = b_scale_inv,
                                      .bias = {},
                                      .c = c,
                                      .workspace = scratch});
    }));
    rates.push_back(2.0 * size * static_cast<double>(n) * static_cast<double>(n) / s);
    rig.forget();
  }
  p.flops_8bit = rates;
  return {};
}
Status measure_wgmma(MeasureRig& rig, MachineProfile& p) {
  STRATA_TRY_ASSIGN(p.wgmma_attention_flops_per_s, attention_rate(rig, kernels::AttentionBackend::wgmma));
  return {};
}
Status measure_cudnn(MeasureRig& rig, MachineProfile& p) {
  STRATA_TRY_ASSIGN(p.cudnn_attention_flops_per_s, attention_rate(rig, kernels::AttentionBackend::cudnn));
  return {};
}

}  // namespace

Status measure_attention(MeasureRig& rig, MachineProfile& p) {
  STRATA_TRY_ASSIGN(p.attention_flops_per_s, attention_rate(rig, kernels::AttentionBackend::mma));
  return {};
}

std::vector<MeasuredChoice> choices_of(const MeasureRig& rig) {
  std::vector<MeasuredChoice> choices;
  if (!rig.is_gpu()) return choices;
  if (rig.device().compute_capability >= kernels::kMinFp8ComputeCapability)
    choices.push_back({"products of eight bits", &measure_fp8_products});
  if (kernels::cudnn_version().has_value()) choices.push_back({"attention by cuDNN", &measure_cudnn});
  if (kernels::cuda_has_wgmma()) choices.push_back({"attention by wgmma", &measure_wgmma});
  return choices;
}

// What a block has beside its products: a norm, an activation, a sum.
Status measure_streaming(MeasureRig& rig, MachineProfile& p) {
  const std::int64_t rows = rig.sizes().rows, columns = rig.sizes().columns;
  std::array<TensorView, 3> x{};
  for (TensorView& tensor : x) {
    STRATA_TRY_ASSIGN(tensor, rig.tensor({rows, columns}, DType::bf16));
  }
  std::array<TensorView, 2> gain{}, stats{};
  for (TensorView& tensor : gain) {
    STRATA_TRY_ASSIGN(tensor, rig.tensor({columns}, DType::bf16));
  }
  for (TensorView& tensor : stats) {
    STRATA_TRY_ASSIGN(tensor, rig.tensor({rows}, DType::f32));
  }
  STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
    STRATA_TRY(kernels::layernorm_forward_async(rig.backend(), rig.compute(),
                                                {x[0], gain[0], gain[1], x[1], stats[0], stats[1], 1e-5f}));
    STRATA_TRY(kernels::gelu_forward_async(rig.backend(), rig.compute(), {x[1], x[2]}));
    return kernels::add_async(rig.backend(), rig.compute(), {x[1], x[2], x[0]});
  }));
  p.device_bytes_per_s = 7.0 * static_cast<double>(x[0].bytes()) / s;
  STRATA_TRY_ASSIGN(const TensorView one, rig.tensor({8}, DType::f32));
  constexpr int kCalls = 64;
  STRATA_TRY_ASSIGN(const double calls, rig.computing([&] {
    for (int i = 0; i < kCalls; ++i)
      STRATA_TRY(kernels::add_async(rig.backend(), rig.compute(), {one, one, one}));
    return Status::ok();
  }));
  p.launch_s = calls / kCalls;
  rig.forget();
  return {};
}

}  // namespace strata::cli
