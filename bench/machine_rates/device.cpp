#include <algorithm>
#include <array>
#include <vector>

#include <strata/kernels/attention.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "machine_rates/rates.h"

/// The parts that measure the device's GEMM rates and its attention kernels, forward and backward.
namespace strata::bench {
// ---- GEMM

namespace {

Result<std::string> matrix_on(Bench& bench, Backend& backend, std::int64_t n) {
  const std::size_t bytes = static_cast<std::size_t>(n * n) * sizeof(float);
  STRATA_TRY_ASSIGN(Stream stream, backend.create_stream(StreamRole::compute));
  STRATA_TRY_ASSIGN(Buffer pinned, backend.allocate(MemoryKind::pinned, bytes));
  std::fill_n(reinterpret_cast<float*>(pinned.view().data), n * n, 0.5f);  // garbage may be slow subnormals
  std::vector<Buffer> operands;
  for (int i = 0; i < 3; ++i) {
    STRATA_TRY_ASSIGN(Buffer operand, backend.allocate(MemoryKind::device, bytes));
    STRATA_TRY(backend.copy_async(operand.view(), pinned.view(), stream));
    operands.push_back(std::move(operand));
  }
  const auto tensor = [&](std::size_t i) { return TensorView{operands[i].view().data, {n, n}, DType::f32}; };
  STRATA_TRY_ASSIGN(Buffer scratch,
                    backend.allocate(MemoryKind::device, kernels::gemm_workspace_bytes(n, n)));
  const auto gemm = [&] {
    STRATA_TRY(kernels::linear_forward_async(
        backend, stream,
        {.x = tensor(0), .w = tensor(1), .b = {}, .y = tensor(2), .workspace = scratch.view()}));
    return backend.synchronize(stream);
  };
  const double n_real = static_cast<double>(n);
  STRATA_TRY_ASSIGN(const std::string flops, rate(bench, "gflop_per_s", 2 * n_real * n_real * n_real, gemm));
  return fmt::format("{{\"n\": {}, \"dtype\": \"f32\", \"rate\": {}}}", n, flops);
}

}  // namespace

Status peak(Bench& bench, const RowSink& row) {
  const std::int64_t n = bench.gpu ? 8192 : 512;
  std::array<TensorView, 3> of{};
  for (TensorView& tensor : of) {
    STRATA_TRY_ASSIGN(tensor, random_tensor(bench, {n, n}, DType::bf16));
  }
  STRATA_TRY_ASSIGN(const BufferView scratch, device_memory(bench, kernels::gemm_workspace_bytes(n, n)));
  const auto n_real = static_cast<double>(n);
  STRATA_TRY_ASSIGN(const std::string flops,
                    queued_rate(bench, "gflop_per_s", 2 * n_real * n_real * n_real, [&] {
                      return kernels::linear_forward_async(
                          *bench.backend, bench.compute,
                          {.x = of[0], .w = of[1], .b = {}, .y = of[2], .workspace = scratch});
                    }));
  row(fmt::format(
      "{{\"n\": {}, \"dtype\": \"bf16\", \"data\": \"random normal\", \"timed_by\": \"{}\", \"rate\": {}}}",
      n, bench.gpu ? "device events" : "the host's clock", flops));
  return Status::ok();
}

// GPU only: strata bench measures the host's GEMM rates by size and dtype.
Status matrix(Bench& bench, const RowSink& row) {
  if (!bench.gpu) return row(skipped(cuda_status())), Status::ok();
  auto measured = matrix_on(bench, *bench.backend, 8192);
  if (!measured.has_value() && measured.status().code() == Code::unsupported)
    return row(skipped(measured.status().message())), Status::ok();
  if (!measured.has_value()) return measured.status();
  row(*measured);
  return Status::ok();
}

// ---- attention

namespace {

Result<std::string> attention_rates(Bench& bench, kernels::AttentionBackend by) {
  constexpr std::int64_t kTokens = 8192, kHeads = 32, kHead = 128, kWidth = kHeads * kHead;
  const kernels::AttentionHeads shape{.heads = kHeads, .kv_heads = kHeads, .seq = 4096, .backend = by};
  Backend& backend = *bench.backend;
  STRATA_TRY_ASSIGN(Stream stream, backend.create_stream(StreamRole::compute));
  std::vector<Buffer> buffers;
  const auto tensor = [&](const Shape& of, DType dtype) -> Result<TensorView> {
    const std::size_t bytes = static_cast<std::size_t>(of.n_elems()) * size_of(dtype);
    STRATA_TRY_ASSIGN(Buffer buffer, backend.allocate(MemoryKind::device, bytes));
    const TensorView view{buffer.view().data, of, dtype};
    buffers.push_back(std::move(buffer));
    STRATA_TRY(kernels::fill_async(backend, stream, {view, 0.01f}));
    return view;
  };
  STRATA_TRY_ASSIGN(const TensorView qkv, tensor({kTokens, 3 * kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dqkv, tensor({kTokens, 3 * kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView out, tensor({kTokens, kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dout, tensor({kTokens, kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView lse, tensor({kTokens * kHeads}, DType::f32));
  STRATA_TRY_ASSIGN(
      Buffer workspace,
      backend.allocate(
          MemoryKind::device,
          std::max(kernels::attention_forward_workspace_bytes(kTokens, shape, DType::bf16, kHead),
                   kernels::attention_backward_workspace_bytes(kTokens, shape, DType::bf16, kHead))));
  // Causal attention needs half of the FLOPs of the full matmuls, of which forward has two and backward five.
  const double gemm_flops = static_cast<double>(kTokens) * static_cast<double>(shape.seq * kWidth);
  STRATA_TRY_ASSIGN(const std::string forward, rate(bench, "gflop_per_s", 2 * gemm_flops, [&] {
                      STRATA_TRY(kernels::attention_forward_async(
                          backend, stream, {qkv, out, lse, {}, shape, workspace.view()}));
                      return backend.synchronize(stream);
                    }));
  STRATA_TRY_ASSIGN(const std::string backward, rate(bench, "gflop_per_s", 5 * gemm_flops, [&] {
                      STRATA_TRY(kernels::attention_backward_async(
                          backend, stream, {qkv, out, lse, dout, {}, dqkv, shape, workspace.view()}));
                      return backend.synchronize(stream);
                    }));
  return fmt::format(
      "{{\"tokens\": {}, \"seq\": {}, \"heads\": {}, \"head\": {}, \"dtype\": \"bf16\", \"forward\": {}, "
      "\"backward\": {}}}",
      kTokens, shape.seq, kHeads, kHead, forward, backward);
}

}  // namespace

Status attention_mma(Bench& bench, const RowSink& row) {
  if (!bench.gpu) return row(skipped(cuda_status())), Status::ok();
  STRATA_TRY_ASSIGN(const std::string rates, attention_rates(bench, kernels::AttentionBackend::host));
  row(rates);
  return Status::ok();
}

Status attention_wgmma(Bench& bench, const RowSink& row) {
  if (!bench.gpu) return row(skipped(cuda_status())), Status::ok();
  if (!kernels::cuda_has_wgmma())
    return row(skipped("no GPU of compute capability 9.0, or no kernels for 9.0a")), Status::ok();
  STRATA_TRY_ASSIGN(const std::string rates, attention_rates(bench, kernels::AttentionBackend::wgmma));
  row(rates);
  return Status::ok();
}

Status attention_cudnn(Bench& bench, const RowSink& row) {
  if (!bench.gpu) return row(skipped(cuda_status())), Status::ok();
  if (const auto version = kernels::cudnn_version(); !version.has_value())
    return row(skipped(version.status().message())), Status::ok();
  STRATA_TRY_ASSIGN(const std::string rates, attention_rates(bench, kernels::AttentionBackend::cudnn));
  row(rates);
  return Status::ok();
}

}  // namespace strata::bench
