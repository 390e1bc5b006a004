#include <strata/kernels/align/segment_sum.h>

#include "ops/op_defs.h"

// segment_sum: (x [T], segments [T] i32) -> sums [n], counts [n], workspace
// segment_sum_backward: (segments [T], counts [n], dsums [n]) -> dx [T]

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

bool is_vector(const ValueInfo* info) { return info != nullptr && info->shape.rank == 1; }

Specs infer_segment_sum(In in, const Attrs& attrs) {
  const std::int64_t n = attrs.as<SegmentSumAttrs>().segments;
  if (!is_vector(in[0]) || in[0]->dtype != DType::f32 || !has_type(in[1], in[0]->shape, DType::i32) || n < 1)
    return mismatch("x [T] f32, segments [T] i32, 1 segment at least", in);
  return std::vector<OutputSpec>{
      {"sums", {n}}, {"counts", {n}}, workspace(kernels::segment_sum_workspace_bytes(n))};
}
void vjp_segment_sum(VjpContext& c) {
  c.emit(Op::segment_sum_backward, {c.in(1), c.out(1), c.grad_output(0)}, {0}, c.attrs());
}
Status launch_segment_sum(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::segment_sum_async(
      backend, stream,
      {c.in[0], c.in[1], c.out[0], c.out[1], as_workspace(c.out[2]), c.attrs.as<SegmentSumAttrs>().mean});
}

Specs infer_segment_sum_backward(In in, const Attrs& attrs) {
  const Shape n = {attrs.as<SegmentSumAttrs>().segments};
  if (!is_vector(in[0]) || in[0]->dtype != DType::i32 || !has_type(in[1], n) || !has_type(in[2], n))
    return mismatch("segments [T] i32, counts [n], dsums [n]", in);
  return std::vector<OutputSpec>{{"dx", in[0]->shape}};
}
Status launch_segment_sum_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::segment_sum_backward_async(
      backend, stream, {c.in[0], c.in[1], c.in[2], c.out[0], c.attrs.as<SegmentSumAttrs>().mean});
}

}  // namespace

Value Builder::segment_sum(Value x, Value segments, std::int32_t n, bool mean) {
  return op(Op::segment_sum, {x, segments}, SegmentSumAttrs{.segments = n, .mean = mean});
}

constinit const OpDef detail::op_defs::segment_sum = {
    .n_in = 2,
    .infer_outputs = infer_segment_sum,
    .vjp = vjp_segment_sum,
    .only_first_out = true,
    .flops = no_flops,
    .launch = launch_segment_sum,
};
constinit const OpDef detail::op_defs::segment_sum_backward = {
    .n_in = 3,
    .infer_outputs = infer_segment_sum_backward,
    .flops = no_flops,
    .launch = launch_segment_sum_backward,
};

}  // namespace strata
