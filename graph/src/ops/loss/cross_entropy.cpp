#include <strata/kernels/cross_entropy.h>

#include "ops/op_defs.h"

// cross_entropy: (logits [T, V], targets [T] i32, divisor [1] or none) -> loss [1], losses [T], lse [T]
// cross_entropy_backward: (logits, lse, targets, divisor or none) -> dlogits

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_cross_entropy(In in, const Attrs&) {
  if (!is_matrix(in[0]) || !has_type(in[1], {in[0]->shape.dim(0)}, DType::i32) ||
      (in[2] != nullptr && !has_type(in[2], {1})))
    return mismatch("logits [T, V], targets [T] i32, divisor [1] or none", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"loss", {1}}, {"losses", {rows}}, {"lse", {rows}}};
}
// Backward starts at the loss, so the loss's own gradient is 1 and is not an operand.
void vjp_cross_entropy(VjpContext& c) {
  c.emit(Op::cross_entropy_backward, {c.in(0), c.out(2), c.in(1), c.in(2)}, {0});
}
Status launch_cross_entropy(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cross_entropy_forward_async(
      backend, stream, {c.in[0], c.in[1], c.out[1], c.out[2], c.out[0], or_none(c.in[2])});
}

// Splits by rows; the loss is a sum, since all ranks divide by the same divisor.
std::vector<ShardStrategy> shard_cross_entropy(const ShardQuery& q) {
  if (q.in[2] == nullptr) return {};
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0));
  return {{{rows, rows, ShardPlacement::copied()}, ShardPlacement::partial()}};
}

Specs infer_cross_entropy_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dlogits", in[0]->shape, in[0]->dtype}};
}
Status launch_cross_entropy_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cross_entropy_backward_async(
      backend, stream, {c.in[0], c.in[2], c.in[1], c.out[0], 1.0f, true, or_none(c.in[3])});
}

}  // namespace

Value Builder::cross_entropy(Value logits, Value targets, Value divisor) {
  return op(Op::cross_entropy, {logits, targets, divisor});
}

constinit const OpDef detail::op_defs::cross_entropy = {
    .n_in = 3,
    .optional_in = 2,
    .infer_outputs = infer_cross_entropy,
    .vjp = vjp_cross_entropy,
    .flops = per_element,
    .launch = launch_cross_entropy,
    .shard = shard_cross_entropy,
};
constinit const OpDef detail::op_defs::cross_entropy_backward = {
    .n_in = 4,
    .optional_in = 3,
    .infer_outputs = infer_cross_entropy_backward,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_cross_entropy_backward,
};

}  // namespace strata
