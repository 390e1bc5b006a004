#include <strata/graph/launch.h>

#include <strata/graph/ops.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/embedding.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/str.h>

// The order of operands is that of ops.cpp.

namespace strata {
namespace {

BufferView as_workspace(const TensorView& view) { return {view.data, view.bytes()}; }
bool adds(const OpCall& c, int output) { return (c.accumulate >> output & 1u) != 0; }

Status dispatch(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& in = c.in;
  const auto& out = c.out;
  switch (c.op) {
    case Op::embedding:
      return kernels::embedding_forward_async(backend, stream, {in[0], in[1], in[2], out[0], c.attrs.seq});
    case Op::embedding_backward:
      return kernels::embedding_backward_async(
          backend, stream,
          {in[0], in[1], out[0], out[1], c.attrs.seq, adds(c, 0), adds(c, 1), as_workspace(out[2])});
    case Op::layernorm:
      return kernels::layernorm_forward_async(backend, stream,
                                              {in[0], in[1], in[2], out[0], out[1], out[2], c.attrs.eps});
    case Op::layernorm_backward:
      return kernels::layernorm_backward_async(backend, stream,
                                               {in[0], in[1], in[2], in[3], in[4], out[0], out[1], out[2],
                                                adds(c, 0), adds(c, 1), adds(c, 2), as_workspace(out[3])});
    case Op::linear:
      return kernels::linear_forward_async(
          backend, stream, {in[0], in[1], in[2].data == nullptr ? TensorView{} : in[2], out[0]});
    case Op::linear_backward_input:
      return kernels::linear_backward_input_async(backend, stream, {in[0], in[1], out[0], adds(c, 0)});
    case Op::linear_backward_weight:
      return kernels::linear_backward_weight_async(backend, stream, {in[0], in[1], out[0], adds(c, 0)});
    case Op::linear_backward_bias:
      return kernels::linear_backward_bias_async(backend, stream,
                                                 {in[0], out[0], adds(c, 0), as_workspace(out[1])});
    case Op::gelu:
      return kernels::gelu_forward_async(backend, stream, {in[0], out[0]});
    case Op::gelu_backward:
      return kernels::gelu_backward_async(backend, stream, {in[0], in[1], out[0]});
    case Op::attention:
      return kernels::attention_forward_async(
          backend, stream, {in[0], out[0], out[1], c.attrs.heads, c.attrs.seq, true, as_workspace(out[2])});
    case Op::attention_backward:
      return kernels::attention_backward_async(
          backend, stream,
          {in[0], in[1], in[2], in[3], out[0], c.attrs.heads, c.attrs.seq, true, as_workspace(out[1])});
    case Op::add:
      return kernels::add_async(backend, stream, {in[0], in[1], out[0]});
    case Op::cross_entropy:
      return kernels::cross_entropy_forward_async(backend, stream, {in[0], in[1], out[1], out[2], out[0]});
    case Op::cross_entropy_backward:
      return kernels::cross_entropy_backward_async(backend, stream,
                                                   {in[0], in[2], in[1], out[0], 1.0f, true});
  }
  return Status::error(Code::internal, "unknown op");
}

}  // namespace

Status launch(const OpCall& call, Backend& backend, Stream& stream) {
  Status status = dispatch(call, backend, stream);
  return status.is_ok() ? status : std::move(status).annotate(op_def(call.op).name);
}

}  // namespace strata
