#include <strata/graph/launch.h>

#include <strata/graph/ops.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/fp8.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>
#include <strata/kernels/rmsnorm.h>
#include <strata/kernels/rope.h>
#include <strata/runtime/str.h>
#include <strata/state_kernels/gradient.h>

// The order of operands is the one in ops.cpp.

namespace strata {
namespace {

BufferView as_workspace(const TensorView& view) { return {view.data, view.bytes()}; }
TensorView or_none(const TensorView& view) { return view.data == nullptr ? TensorView{} : view; }
BufferView workspace_or_none(const OpCall& c, std::size_t output) {
  return output < c.out.size() ? as_workspace(c.out[output]) : BufferView{};
}
bool accumulates(const OpCall& c, int output) { return (c.accumulate >> output & 1u) != 0; }
/// The tensor that is added to dx (output 0): the residual operand, or the previous contents of dx if x is a
/// parameter whose gradient accumulates.
TensorView residual(const OpCall& c, std::size_t operand) {
  return accumulates(c, 0) ? c.out[0] : or_none(c.in[operand]);
}

/// The number of groups of a token's query and key heads that qk_norm normalizes separately: one per head, or
/// one for all heads.
struct Runs {
  std::int64_t query, key;
};
Runs normed_runs(const OpCall& c) {
  const std::int64_t d = c.in[0].shape.dim(1) / (c.attrs.heads + 2 * c.attrs.kv_heads);
  return c.in[1].n_elems() == d ? Runs{c.attrs.heads, c.attrs.kv_heads} : Runs{1, 1};
}

kernels::Fp8CastArgs fp8_cast(const OpCall& c) {
  kernels::Fp8CastArgs args{.x = c.in[0], .rowwise = {}, .columnwise = {}, .scale_inv = {}, .workspace = {}};
  std::size_t next = 0;
  if (c.attrs.rowwise) args.rowwise = c.out[next++];
  if (c.attrs.columnwise) args.columnwise = c.out[next++];
  args.scale_inv = c.out[next++];
  args.workspace = as_workspace(c.out[next]);
  return args;
}

Status dispatch(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& in = c.in;
  const auto& out = c.out;
  switch (c.op) {
    case Op::embedding:
      return kernels::embedding_forward_async(backend, stream, {in[0], in[1], out[0], c.attrs.offset});
    case Op::embedding_backward:
      return kernels::embedding_backward_async(
          backend, stream, {in[0], in[1], out[0], c.attrs.offset, accumulates(c, 0), as_workspace(out[1])});
    case Op::layernorm:
      return kernels::layernorm_forward_async(backend, stream,
                                              {in[0], in[1], in[2], out[0], out[1], out[2], c.attrs.eps});
    case Op::layernorm_backward:
      return kernels::layernorm_backward_async(
          backend, stream,
          {in[0], in[1], in[2], in[3], in[4], out[0], out[1], out[2], accumulates(c, 1), accumulates(c, 2),
           as_workspace(out[3]), residual(c, 5)});
    case Op::add_layernorm:
      return kernels::layernorm_forward_async(
          backend, stream, {in[0], in[2], in[3], out[0], out[1], out[2], c.attrs.eps, in[1], out[3]});
    case Op::linear:
      return kernels::linear_forward_async(backend, stream,
                                           {in[0], in[1], or_none(in[2]), out[0], workspace_or_none(c, 1)});
    case Op::linear_backward_input:
      return kernels::linear_backward_input_async(
          backend, stream, {in[0], in[1], out[0], accumulates(c, 0), workspace_or_none(c, 1)});
    case Op::linear_backward_weight:
      return kernels::linear_backward_weight_async(
          backend, stream, {in[0], in[1], out[0], accumulates(c, 0), workspace_or_none(c, 1)});
    case Op::linear_backward_bias:
      return kernels::linear_backward_bias_async(backend, stream,
                                                 {in[0], out[0], accumulates(c, 0), as_workspace(out[1])});
    case Op::fp8_cast:
      return kernels::fp8_cast_async(backend, stream, fp8_cast(c));
    case Op::fp8_gemm:
      return kernels::fp8_gemm_async(
          backend, stream,
          {in[0], in[1], in[2], in[3], or_none(in[4]), out[0], accumulates(c, 0), workspace_or_none(c, 1)});
    case Op::gelu:
      return kernels::gelu_forward_async(backend, stream, {in[0], out[0]});
    case Op::gelu_backward:
      return kernels::gelu_backward_async(backend, stream, {in[0], in[1], out[0]});
    case Op::relu:
      return kernels::relu_forward_async(backend, stream, {in[0], out[0]});
    case Op::relu_backward:
      return kernels::relu_backward_async(backend, stream, {in[0], in[1], out[0]});
    case Op::swiglu:
      return kernels::swiglu_forward_async(backend, stream, {in[0], out[0], c.attrs.gelu});
    case Op::swiglu_backward:
      return kernels::swiglu_backward_async(backend, stream, {in[0], in[1], out[0], c.attrs.gelu});
    case Op::scale:
      return kernels::scale_async(backend, stream, {in[0], out[0], c.attrs.scale});
    case Op::softcap:
      return kernels::softcap_async(backend, stream, {in[0], out[0], c.attrs.softcap});
    case Op::rmsnorm:
      return kernels::rmsnorm_forward_async(
          backend, stream, {in[0], in[1], out[0], out[1], c.attrs.eps, {}, {}, c.attrs.weight_offset});
    case Op::rmsnorm_backward:
      return kernels::rmsnorm_backward_async(backend, stream,
                                             {in[0], in[1], in[2], in[3], out[0], out[1], accumulates(c, 1),
                                              as_workspace(out[2]), residual(c, 4), c.attrs.weight_offset});
    case Op::add_rmsnorm:
      return kernels::rmsnorm_forward_async(
          backend, stream, {in[0], in[2], out[0], out[1], c.attrs.eps, in[1], out[2], c.attrs.weight_offset});
    case Op::qk_norm: {
      const auto runs = normed_runs(c);
      return kernels::qk_norm_forward_async(
          backend, stream,
          {in[0], in[1], in[2], out[0], out[1], runs.query, runs.key, c.attrs.eps, c.attrs.weight_offset});
    }
    case Op::qk_norm_backward: {
      const auto runs = normed_runs(c);
      return kernels::qk_norm_backward_async(
          backend, stream,
          {in[0], in[1], in[2], in[3], in[4], out[0], out[1], out[2], runs.query, runs.key, accumulates(c, 1),
           accumulates(c, 2), as_workspace(out[3]), c.attrs.weight_offset});
    }
    case Op::positions:
      return kernels::positions_async(backend, stream, {or_none(in[0]), out[0], c.attrs.seq});
    case Op::rope_table:
      return kernels::rope_table_async(backend, stream, {out[0], c.attrs.frequencies});
    case Op::rope:
      return kernels::rope_async(backend, stream,
                                 {in[0], in[1], in[2], out[0], c.attrs.heads + c.attrs.kv_heads,
                                  in[0].shape.dim(1) / (c.attrs.heads + 2 * c.attrs.kv_heads),
                                  c.attrs.interleaved, c.attrs.inverse});
    case Op::attention:
      return kernels::attention_forward_async(
          backend, stream,
          {in[0], out[0], out[1], or_none(in[1]), attention_heads(c.attrs), as_workspace(out[2])});
    case Op::attention_backward:
      return kernels::attention_backward_async(backend, stream,
                                               {in[0], in[1], in[2], in[3], or_none(in[4]), out[0],
                                                attention_heads(c.attrs), as_workspace(out[1])});
    case Op::add:
      return kernels::add_async(backend, stream, {in[0], in[1], out[0]});
    case Op::cross_entropy:
      return kernels::cross_entropy_forward_async(backend, stream,
                                                  {in[0], in[1], out[1], out[2], out[0], or_none(in[2])});
    case Op::cross_entropy_backward:
      return kernels::cross_entropy_backward_async(backend, stream,
                                                   {in[0], in[2], in[1], out[0], 1.0f, true, or_none(in[3])});
    case Op::linear_cross_entropy:
      return kernels::linear_cross_entropy_async(
          backend, stream,
          {in[0], in[1], in[2], out[1], out[0], or_none(in[3]), as_workspace(out[2]), workspace_or_none(c, 3),
           c.attrs.softcap});
    case Op::linear_cross_entropy_backward:
      return kernels::linear_cross_entropy_backward_async(
          backend, stream,
          {{in[0], in[1], in[2], out[3], out[2], or_none(in[3]), as_workspace(out[4]),
            workspace_or_none(c, 5), c.attrs.softcap},
           or_none(out[0]),
           or_none(out[1]),
           accumulates(c, 1)});
    case Op::accumulate:
      return state_kernels::accumulate_async(backend, stream, {out[0], in[0], !accumulates(c, 0)});
    case Op::cached_attention:
      return kernels::cached_attention_async(
          backend, stream,
          {in[0], in[1], in[2], in[3], in[4], out[0], cached_attention_shape(c.attrs), as_workspace(out[1])});
    case Op::offload_begin:
    case Op::offload_end:
    case Op::store_begin:
    case Op::store_end:
    case Op::load_begin:
    case Op::load_end:
    case Op::fetch_begin:
    case Op::fetch_end:
      return Status::error(Code::internal, "a move has no kernel; the executor of the program must do it");
  }
  return Status::error(Code::internal, "unknown op");
}

}  // namespace

Status launch(const OpCall& call, Backend& backend, Stream& stream) {
  Status status = dispatch(call, backend, stream);
  return status.is_ok() ? status : std::move(status).annotate(op_def(call.op).name);
}

}  // namespace strata
