#include <strata/kernels/elementwise.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// Rows that travel along an axis of the mesh while what has arrived is computed with.
// shift_begin: (x) -> y, the x of the rank that is `step` places further; not to be read before
// shift_end: (y, x) -> y; keeps x until it has left
// put_rows: (whole [n R, ...] or none, x [R, ...]) -> whole with x as its block; without an operand its other
//   rows are undefined
// get_rows: (whole [n R, ...]) -> x [R, ...], its block

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_shift_begin(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
Specs infer_shift_end(In in, const Attrs& attrs) {
  if (!has_type(in[1], in[0]->shape, in[0]->dtype)) return mismatch("y and x of one shape and dtype", in);
  return infer_shift_begin(in, attrs);
}
CollectiveAttrs reversed(const VjpContext& c) {
  CollectiveAttrs attrs = c.attrs().as<CollectiveAttrs>();
  attrs.step = -attrs.step;
  return attrs;
}
// The gradient travels back while other gradients are computed.
void vjp_shift_end(VjpContext& c) { c.emit(Op::shift_begin, {c.grad_output(0)}, {0}, reversed(c)); }
void vjp_shift_begin(VjpContext& c) {
  const ValueId travelled = c.grad_output(0);
  c.emit(Op::shift_end, {travelled, c.made_from(travelled)}, {0}, reversed(c));
}
Status launch_no_shift(const OpCall&, Backend&, Stream&) {
  return Status::error(Code::internal, "a shift has no kernel; the executor of the program must queue it");
}

bool has_blocks(const ValueInfo* whole, const BlockAttrs& a) {
  return whole != nullptr && whole->shape.rank > 0 && whole->shape.dim(0) % a.blocks == 0 && a.block >= 0 &&
         a.block < a.blocks;
}
Specs infer_put_rows(In in, const Attrs& attrs) {
  const auto& a = attrs.as<BlockAttrs>();
  if (in[1]->shape.rank == 0) return mismatch("x [R, ...]", in);
  Shape whole = in[1]->shape;
  whole.dims[0] *= a.blocks;
  if (in[0] != nullptr && !has_type(in[0], whole, in[1]->dtype))
    return mismatch(str("whole [", a.blocks, " R, ...] or none, x [R, ...] of one dtype"), in);
  return std::vector<OutputSpec>{{"whole", whole, in[1]->dtype}};
}
void vjp_put_rows(VjpContext& c) {
  c.emit(Op::get_rows, {c.grad_output(0)}, {1}, c.attrs());
  if (c.in(0) != kNoValue) c.propagate_grad(0, c.grad_output(0));  // nothing reads the block of x of it
}
Specs infer_get_rows(In in, const Attrs& attrs) {
  const auto& a = attrs.as<BlockAttrs>();
  if (!has_blocks(in[0], a)) return mismatch(str("whole [", a.blocks, " R, ...]"), in);
  Shape rows = in[0]->shape;
  rows.dims[0] /= a.blocks;
  return std::vector<OutputSpec>{{"x", rows, in[0]->dtype}};
}
BufferView block_of(const TensorView& whole, const BlockAttrs& a) {
  const std::size_t bytes = whole.bytes() / static_cast<std::size_t>(a.blocks);
  return {whole.data + static_cast<std::size_t>(a.block) * bytes, bytes};
}
Status launch_put_rows(const OpCall& c, Backend& backend, Stream& stream) {
  const TensorView &into = c.out[0], before = or_none(c.in[0]);
  if (before.data != nullptr && before.data != into.data)
    STRATA_TRY(backend.copy_async({into.data, into.bytes()}, {before.data, before.bytes()}, stream));
  return backend.copy_async(block_of(into, c.attrs.as<BlockAttrs>()), {c.in[1].data, c.in[1].bytes()},
                            stream);
}
Status launch_get_rows(const OpCall& c, Backend& backend, Stream& stream) {
  const BufferView block = block_of(c.in[0], c.attrs.as<BlockAttrs>());
  return backend.copy_async({c.out[0].data, c.out[0].bytes()}, {block.data, block.bytes}, stream);
}

}  // namespace

constinit const OpDef detail::op_defs::shift_begin = {
    .kind = OpKind::collective,
    .n_in = 1,
    .infer_outputs = infer_shift_begin,
    .vjp = vjp_shift_begin,
    .flops = no_flops,
    .launch = launch_no_shift,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::shift_end = {
    .kind = OpKind::collective,
    .n_in = 2,
    .infer_outputs = infer_shift_end,
    .vjp = vjp_shift_end,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_no_shift,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::put_rows = {
    .n_in = 2,
    .optional_in = 0,
    .infer_outputs = infer_put_rows,
    .vjp = vjp_put_rows,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_put_rows,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::get_rows = {
    .n_in = 1,
    .infer_outputs = infer_get_rows,
    .flops = no_flops,
    .launch = launch_get_rows,
    .adds_to_gradients = false,
};

}  // namespace strata
