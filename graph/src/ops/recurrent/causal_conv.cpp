#include <strata/kernels/recurrent/causal_conv.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// causal_conv: (x [T, C], weight [C, taps], bias [C] or none, doc_start [T] i32 or none) -> y [T, C]
// causal_conv_backward: (x, weight, bias or none, dy, doc_start or none) -> dx, dweight, dbias if there is a
//   bias, workspace
// cached_causal_conv: (x [R, C], weight, bias or none, positions [R], slots [R] i32, state
//   [sequences, taps - 1, C] of the dtype of x, written in place) -> y [R, C]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

bool conv_weights_fit(In in) {
  if (!is_matrix(in[0]) || !is_matrix(in[1])) return false;
  const std::int64_t channels = in[0]->shape.dim(1), taps = in[1]->shape.dim(1);
  return has_type(in[1], {channels, taps}, in[0]->dtype) && taps >= 2 && taps <= kernels::kMostConvTaps &&
         (in[2] == nullptr || has_type(in[2], {channels}, in[0]->dtype));
}
Specs infer_causal_conv(In in, const Attrs& attrs) {
  const std::int32_t seq = attrs.as<CausalConvAttrs>().seq;
  if (!conv_weights_fit(in) || seq < 1 || in[0]->shape.dim(0) % seq != 0 ||
      (in[3] != nullptr && !has_type(in[3], {in[0]->shape.dim(0)}, DType::i32)))
    return mismatch(str("x [batch * ", seq, ", C], weight [C, 2 to ", kernels::kMostConvTaps,
                        " taps], bias [C] or none, of one dtype, doc_start [T] i32 or none"),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
void vjp_causal_conv(VjpContext& c) {
  c.emit(Op::causal_conv_backward, {c.in(0), c.in(1), c.in(2), c.grad_output(0), c.in(3)},
         c.in(2) == kNoValue ? std::vector<int>{0, 1, -1} : std::vector<int>{0, 1, 2, -1}, c.attrs());
}
// A multiplication and an addition for each tap; backward computes the sum again, dx and dweight.
double flops_causal_conv(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(1));
}
Status launch_causal_conv(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<CausalConvAttrs>();
  return kernels::causal_conv_forward_async(
      backend, stream, {c.in[0], c.in[1], or_none(c.in[2]), or_none(c.in[3]), c.out[0], a.seq, a.silu});
}

Specs infer_causal_conv_backward(In in, const Attrs&) {
  std::vector<OutputSpec> out = {{"dx", in[0]->shape, in[0]->dtype}, {"dweight", in[1]->shape, in[1]->dtype}};
  if (in[2] != nullptr) out.push_back({"dbias", in[2]->shape, in[2]->dtype});
  out.push_back(workspace(kernels::causal_conv_backward_workspace_bytes(
      in[0]->shape.dim(0), in[0]->shape.dim(1), in[1]->shape.dim(1))));
  return out;
}
double flops_causal_conv_backward(In in, In out, const Attrs& attrs) {
  return 3.0 * flops_causal_conv(in, out, attrs);
}
Status launch_causal_conv_backward(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<CausalConvAttrs>();
  const bool has_bias = c.out.size() == 4;
  return kernels::causal_conv_backward_async(backend, stream,
                                             {.x = c.in[0],
                                              .weight = c.in[1],
                                              .bias = or_none(c.in[2]),
                                              .doc_start = or_none(c.in[4]),
                                              .dy = c.in[3],
                                              .dx = c.out[0],
                                              .dweight = c.out[1],
                                              .dbias = has_bias ? c.out[2] : TensorView{},
                                              .seq = a.seq,
                                              .silu = a.silu,
                                              .accumulate_dweight = accumulates(c, 1),
                                              .accumulate_dbias = has_bias && accumulates(c, 2),
                                              .workspace = as_workspace(c.out.back())});
}

Specs infer_cached_causal_conv(In in, const Attrs&) {
  const bool fits =
      conv_weights_fit(in) && has_type(in[3], {in[0]->shape.dim(0)}, DType::i32) &&
      has_type(in[4], {in[0]->shape.dim(0)}, DType::i32) && in[5] != nullptr &&
      in[5]->kind == ValueKind::state && in[5]->shape.rank == 3 &&
      has_type(in[5], {in[5]->shape.dim(0), in[1]->shape.dim(1) - 1, in[0]->shape.dim(1)}, in[0]->dtype);
  if (!fits)
    return mismatch(str("x [R, C], weight [C, 2 to ", kernels::kMostConvTaps,
                        " taps], bias [C] or none, positions and slots [R] i32, and the state [sequences, "
                        "taps - 1, C], of the dtype of x"),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
Status launch_cached_causal_conv(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cached_causal_conv_async(backend, stream,
                                           {c.in[0], c.in[1], or_none(c.in[2]), c.in[3], c.in[4], c.in[5],
                                            c.out[0], c.attrs.as<CausalConvAttrs>().silu});
}

}  // namespace

Value Builder::causal_conv(Value x, Value weight, Value bias, int seq, bool silu, Value doc_start) {
  return op(Op::causal_conv, {x, weight, bias, doc_start}, CausalConvAttrs{.seq = seq, .silu = silu});
}
Value Builder::cached_causal_conv(Value x, Value weight, Value bias, Value positions, Value slots, Value kept,
                                  bool silu) {
  return op(Op::cached_causal_conv, {x, weight, bias, positions, slots, kept}, CausalConvAttrs{.silu = silu});
}

constinit const OpDef detail::op_defs::causal_conv = {
    .n_in = 4,
    .optional_in = {2, 3},
    .infer_outputs = infer_causal_conv,
    .vjp = vjp_causal_conv,
    .flops = flops_causal_conv,
    .launch = launch_causal_conv,
};
constinit const OpDef detail::op_defs::causal_conv_backward = {
    .n_in = 5,
    .optional_in = {2, 4},
    .infer_outputs = infer_causal_conv_backward,
    .flops = flops_causal_conv_backward,
    .launch = launch_causal_conv_backward,
};
constinit const OpDef detail::op_defs::cached_causal_conv = {
    .n_in = 6,
    .optional_in = 2,
    .infer_outputs = infer_cached_causal_conv,
    .flops = flops_causal_conv,
    .launch = launch_cached_causal_conv,
};

}  // namespace strata
