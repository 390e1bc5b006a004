#include <algorithm>

#include <strata/kernels/attention.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "kernel_rates/rates.h"

/// The parts that multiply: GEMMs of layers, attention by backend, and the head by its vocabulary.
namespace strata::bench {
namespace {

/// y = x w^T with x [m, k] and w [n, k], and its two gradients.
Status gemms_of(Bench& bench, const Layer& layer, const char* name, std::int64_t n, std::int64_t k,
                const RowSink& row) {
  Backend& backend = *bench.backend;
  Stream& stream = bench.compute;
  const std::int64_t m = layer.tokens;
  STRATA_TRY_ASSIGN(const TensorView x, random_tensor(bench, {m, k}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView w, random_tensor(bench, {n, k}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView y, random_tensor(bench, {m, n}, DType::bf16));
  STRATA_TRY_ASSIGN(
      const BufferView scratch,
      device_memory(bench, std::max({kernels::gemm_workspace_bytes(m, n), kernels::gemm_workspace_bytes(m, k),
                                     kernels::gemm_workspace_bytes(n, k)})));
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto measure = [&](const char* direction, const std::function<Status()>& queue) -> Status {
    STRATA_TRY_ASSIGN(const std::string rate, queued_rate(bench, "gflop_per_s", flops, queue));
    row(
        fmt::format("{{\"gemm\": \"{}\", \"layer\": \"{}\", \"direction\": \"{}\", \"m\": {}, \"n\": {}, "
                    "\"k\": {}, \"rate\": {}}}",
                    name, layer.name, direction, m, n, k, rate));
    return Status::ok();
  };
  STRATA_TRY(measure("forward", [&] {
    return kernels::linear_forward_async(backend, stream,
                                         {.x = x, .w = w, .b = {}, .y = y, .workspace = scratch});
  }));
  STRATA_TRY(measure("dw", [&] {
    return kernels::linear_backward_weight_async(backend, stream,
                                                 {.dy = y, .x = x, .dw = w, .workspace = scratch});
  }));
  STRATA_TRY(measure("dx", [&] {
    return kernels::linear_backward_input_async(backend, stream,
                                                {.dy = y, .w = w, .dx = x, .workspace = scratch});
  }));
  release(bench);
  return Status::ok();
}

Status attention_of(Bench& bench, kernels::AttentionBackend by, std::int64_t seq, const RowSink& row) {
  Backend& backend = *bench.backend;
  Stream& stream = bench.compute;
  const std::int64_t tokens = bench.gpu ? 8192 : seq, n_heads = bench.gpu ? 32 : 2, d = bench.gpu ? 128 : 64,
                     width = n_heads * d;
  const kernels::AttentionHeads shape{.heads = n_heads, .kv_heads = n_heads, .seq = seq, .backend = by};
  STRATA_TRY_ASSIGN(const TensorView qkv, random_tensor(bench, {tokens, 3 * width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dqkv, random_tensor(bench, qkv.shape, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView out, random_tensor(bench, {tokens, width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dout, random_tensor(bench, out.shape, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView lse, random_tensor(bench, {tokens * n_heads}, DType::f32));
  STRATA_TRY_ASSIGN(
      const BufferView scratch,
      device_memory(bench,
                    std::max(kernels::attention_forward_workspace_bytes(tokens, shape, DType::bf16, d),
                             kernels::attention_backward_workspace_bytes(tokens, shape, DType::bf16, d))));
  // Causal attention needs half of the FLOPs of the full matmuls, of which forward has two and backward five.
  const double flops = static_cast<double>(tokens) * static_cast<double>(seq * width);
  STRATA_TRY_ASSIGN(
      const std::string forward, queued_rate(bench, "gflop_per_s", 2 * flops, [&] {
        return kernels::attention_forward_async(backend, stream, {qkv, out, lse, {}, shape, scratch});
      }));
  STRATA_TRY_ASSIGN(const std::string backward, queued_rate(bench, "gflop_per_s", 5 * flops, [&] {
                      return kernels::attention_backward_async(
                          backend, stream, {qkv, out, lse, dout, {}, dqkv, shape, scratch});
                    }));
  const auto used = kernels::effective_attention_backend(shape, tokens, DType::bf16, d, false, true);
  row(fmt::format(
      "{{\"backend\": \"{}\", \"backward_by\": \"{}\", \"tokens\": {}, \"seq\": {}, \"heads\": {}, \"head\": "
      "{}, "
      "\"forward\": {}, \"backward\": {}}}",
      kernels::to_string(by), kernels::to_string(used), tokens, seq, n_heads, d, forward, backward));
  release(bench);
  return Status::ok();
}

Status head_of(Bench& bench, const Layer& layer, std::int64_t vocab, kernels::HeadBlocks blocks,
               const RowSink& row) {
  const std::int64_t t = layer.tokens, h = layer.hidden;
  STRATA_TRY_ASSIGN(const TensorView x, random_tensor(bench, {t, h}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView w, random_tensor(bench, {vocab, h}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dx, random_tensor(bench, x.shape, DType::bf16));
  STRATA_TRY_ASSIGN(const BufferView dw, device_memory(bench, 2 * w.bytes()));
  STRATA_TRY_ASSIGN(const BufferView targets,
                    device_memory(bench, static_cast<std::size_t>(t) * sizeof(std::int32_t)));
  STRATA_TRY_ASSIGN(const BufferView losses,
                    device_memory(bench, static_cast<std::size_t>(t) * sizeof(float)));
  STRATA_TRY_ASSIGN(const BufferView mean, device_memory(bench, sizeof(float)));
  STRATA_TRY_ASSIGN(
      const BufferView logits,
      device_memory(bench, kernels::linear_cross_entropy_workspace_bytes(t, vocab, DType::bf16, blocks)));
  STRATA_TRY_ASSIGN(const BufferView scratch,
                    device_memory(bench, kernels::linear_cross_entropy_gemm_workspace_bytes(t, vocab, h)));
  STRATA_TRY_ASSIGN(Buffer zeros, bench.backend->allocate(MemoryKind::pinned, targets.bytes));
  std::fill_n(zeros.view().data, targets.bytes, std::byte{0});
  STRATA_TRY(bench.backend->copy_async(targets, zeros.view(), bench.compute));
  STRATA_TRY(bench.backend->synchronize(bench.compute));
  const double flops = 6.0 * static_cast<double>(t) * static_cast<double>(vocab) * static_cast<double>(h);
  const kernels::LinearCrossEntropyBackwardArgs args = {
      .forward = {.x = x,
                  .w = w,
                  .targets = {targets.data, {t}, DType::i32},
                  .losses = {losses.data, {t}, DType::f32},
                  .mean_loss = {mean.data, {1}, DType::f32},
                  .workspace = logits,
                  .gemm_workspace = scratch,
                  .blocks = blocks},
      .dx = dx,
      .dw = {dw.data, {vocab, h}, DType::f32}};
  STRATA_TRY_ASSIGN(const std::string rate, queued_rate(bench, "gflop_per_s", flops, [&] {
                      return kernels::linear_cross_entropy_backward_async(*bench.backend, bench.compute,
                                                                          args);
                    }));
  row(fmt::format("{{\"head\": {}, \"layer\": \"{}\", \"tokens\": {}, \"block_rows\": {}, \"rate\": {}}}",
                  vocab, layer.name, t, kernels::head_block_rows(t, vocab, blocks), rate));
  release(bench);
  return Status::ok();
}

}  // namespace

Status gemms(Bench& bench, const RowSink& row) {
  for (const Layer& layer : layers_of(bench)) {
    STRATA_TRY(gemms_of(bench, layer, "qkv", 3 * layer.hidden, layer.hidden, row));
    STRATA_TRY(gemms_of(bench, layer, "out", layer.hidden, layer.hidden, row));
    STRATA_TRY(gemms_of(bench, layer, "gate_up", 2 * layer.ffn, layer.hidden, row));
    STRATA_TRY(gemms_of(bench, layer, "down", layer.hidden, layer.ffn, row));
  }
  return Status::ok();
}

Status attention(Bench& bench, const RowSink& row) {
  using kernels::AttentionBackend;
  if (!bench.gpu) return attention_of(bench, AttentionBackend::host, 128, row);
  std::vector<AttentionBackend> all = {AttentionBackend::mma};
  if (kernels::cuda_has_wgmma()) all.push_back(AttentionBackend::wgmma);
  if (kernels::cudnn_version().has_value()) all.push_back(AttentionBackend::cudnn);
  for (const AttentionBackend by : all)
    for (const std::int64_t seq : {1024, 2048, 4096, 8192}) STRATA_TRY(attention_of(bench, by, seq, row));
  return Status::ok();
}

Status heads(Bench& bench, const RowSink& row) {
  const Layer& layer = layers_of(bench).back();
  const std::vector<std::int64_t> vocabularies =
      bench.gpu ? std::vector<std::int64_t>{8192, 32768, 131072} : std::vector<std::int64_t>{1024};
  for (const std::int64_t vocab : vocabularies)
    for (const auto blocks : {kernels::HeadBlocks::host, kernels::HeadBlocks::device})
      STRATA_TRY(head_of(bench, layer, vocab, blocks, row));
  return Status::ok();
}

}  // namespace strata::bench
