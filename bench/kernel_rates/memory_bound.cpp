#include <strata/cpuopt/update.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/kernels/rope.h>
#include <strata/state_kernels/gradient.h>
#include <strata/state_kernels/update.h>

#include "kernel_rates/rates.h"

/// The parts that are bound by memory: their rates are bytes that are read and written.
namespace strata::bench {
namespace {

/// Rows of one layer's ops, each with the bytes that it must move.
class OpRows {
 public:
  OpRows(Bench& bench, const Layer& layer, const RowSink& row) : bench_(bench), layer_(layer), row_(row) {}
  Status measure(const char* op, std::size_t bytes, const std::function<Status()>& queue) const {
    STRATA_TRY_ASSIGN(const std::string rate,
                      queued_rate(bench_, "gb_per_s", static_cast<double>(bytes), queue));
    row_(fmt::format("{{\"op\": \"{}\", \"layer\": \"{}\", \"tokens\": {}, \"bytes\": {}, \"rate\": {}}}", op,
                     layer_.name, layer_.tokens, bytes, rate));
    return Status::ok();
  }

 private:
  Bench& bench_;
  const Layer& layer_;
  const RowSink& row_;
};

Status elementwise_of(Bench& bench, const Layer& layer, const RowSink& row) {
  Backend& backend = *bench.backend;
  Stream& stream = bench.compute;
  const std::int64_t t = layer.tokens, h = layer.hidden, f = layer.ffn, d = h / layer.heads;
  const auto make = [&](const Shape& shape, DType dtype = DType::bf16) {
    return random_tensor(bench, shape, dtype);
  };
  STRATA_TRY_ASSIGN(const TensorView x, make({t, h}));
  STRATA_TRY_ASSIGN(const TensorView y, make({t, h}));
  STRATA_TRY_ASSIGN(const TensorView z, make({t, h}));
  STRATA_TRY_ASSIGN(const TensorView weight, make({h}));
  STRATA_TRY_ASSIGN(const TensorView rstd, make({t}, DType::f32));
  STRATA_TRY_ASSIGN(const TensorView dweight, make({h}, DType::f32));
  STRATA_TRY_ASSIGN(const TensorView gate_up, make({t, 2 * f}));
  STRATA_TRY_ASSIGN(const TensorView inner, make({t, f}));
  STRATA_TRY_ASSIGN(const TensorView qkv, make({t, 3 * h}));
  STRATA_TRY_ASSIGN(const TensorView table, make({t, d}, DType::f32));
  STRATA_TRY_ASSIGN(const BufferView at,
                    device_memory(bench, static_cast<std::size_t>(t) * sizeof(std::int32_t)));
  const TensorView positions{at.data, {t}, DType::i32};
  STRATA_TRY(kernels::positions_async(backend, stream, {.doc_start = {}, .positions = positions, .seq = t}));
  STRATA_TRY_ASSIGN(const BufferView scratch,
                    device_memory(bench, kernels::rmsnorm_backward_workspace_bytes(t, h)));
  const OpRows rows(bench, layer, row);
  STRATA_TRY(rows.measure("add", 3 * x.bytes(), [&] {
    return kernels::add_async(backend, stream, {x, y, z});
  }));
  STRATA_TRY(rows.measure("gelu", 2 * x.bytes(), [&] {
    return kernels::gelu_forward_async(backend, stream, {x, y});
  }));
  STRATA_TRY(rows.measure("swiglu", gate_up.bytes() + inner.bytes(), [&] {
    return kernels::swiglu_forward_async(backend, stream, {.gate_up = gate_up, .y = inner});
  }));
  STRATA_TRY(rows.measure("swiglu_backward", 2 * gate_up.bytes() + inner.bytes(), [&] {
    return kernels::swiglu_backward_async(backend, stream,
                                          {.gate_up = gate_up, .dy = inner, .dgate_up = gate_up});
  }));
  STRATA_TRY(rows.measure("rope", qkv.bytes() * 4 / 3, [&] {
    return kernels::rope_async(backend, stream,
                               {.x = qkv,
                                .positions = positions,
                                .table = table,
                                .y = qkv,
                                .heads = 2 * layer.heads,
                                .head_dim = d});
  }));
  STRATA_TRY(rows.measure("rmsnorm", 2 * x.bytes(), [&] {
    return kernels::rmsnorm_forward_async(backend, stream, {.x = x, .weight = weight, .y = y, .rstd = rstd});
  }));
  STRATA_TRY(rows.measure("add_rmsnorm", 4 * x.bytes(), [&] {
    return kernels::rmsnorm_forward_async(
        backend, stream, {.x = x, .weight = weight, .y = y, .rstd = rstd, .added = z, .sum = z});
  }));
  return rows.measure("rmsnorm_backward", 3 * x.bytes(), [&] {
    return kernels::rmsnorm_backward_async(
        backend, stream,
        {.x = x, .weight = weight, .rstd = rstd, .dy = y, .dx = z, .dweight = dweight, .workspace = scratch});
  });
}

}  // namespace

Status elementwise(Bench& bench, const RowSink& row) {
  for (const Layer& layer : layers_of(bench)) {
    STRATA_TRY(elementwise_of(bench, layer, row));
    release(bench);
  }
  return Status::ok();
}

// What a chunk of parameters goes through: the sum of its gradient, and AdamW with masters split in 16 bits.
Status updates(Bench& bench, const RowSink& row) {
  Backend& backend = *bench.backend;
  Stream& stream = bench.compute;
  const std::int64_t n = bench.gpu ? std::int64_t{64} << 20 : std::int64_t{1} << 20;
  STRATA_TRY_ASSIGN(const TensorView g, random_tensor(bench, {n}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView sum, random_tensor(bench, {n}, DType::f32));
  STRATA_TRY_ASSIGN(const TensorView param, random_tensor(bench, {n}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView rest, random_tensor(bench, {n}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView m, random_tensor(bench, {n}, DType::f32));
  STRATA_TRY_ASSIGN(const BufferView v, device_memory(bench, m.bytes()));
  STRATA_TRY(kernels::fill_async(backend, stream, {{v.data, {n}, DType::f32}, 1e-4f}));
  cpuopt::OptimizerParams params;
  params.lr = 1e-6;
  const state_kernels::UpdateArgs update = {.step = cpuopt::make_update_step(params),
                                            .block = {.layout = cpuopt::MasterLayout::bf16_split,
                                                      .states = StateFormat::fp32,
                                                      .grad = DType::f32,
                                                      .param = param.data,
                                                      .master = rest.data,
                                                      .m = cpuopt::moment_at(StateFormat::fp32, m.data, n),
                                                      .v = cpuopt::moment_at(StateFormat::fp32, v.data, n),
                                                      .g = sum.data},
                                            .n = n};
  const Layer chunk = {"chunk", n, 0, 0, 0};
  const OpRows rows(bench, chunk, row);
  STRATA_TRY(rows.measure("accumulate", g.bytes() + 2 * sum.bytes(), [&] {
    return state_kernels::accumulate_async(backend, stream, {sum, g, false});
  }));
  return rows.measure("adamw", static_cast<std::size_t>(n) * 28,
                      [&] { return state_kernels::update_async(backend, stream, update); });
}

}  // namespace strata::bench
