#include <strata/kernels/recurrent/state_scan.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// state_scan: (xbc [T, heads head_dim + 2 groups state_dim], step and g [T, heads] f32, d [heads] f32,
//   doc_start [T] i32 or none) -> out [T, heads head_dim], workspace
// state_scan_backward: (xbc, step, g, d, dout, doc_start or none) -> dxbc, dstep, dg, dd, workspace
// cached_state_scan: (xbc [R, ...], step, g, d, positions [R], slots [R] i32, state [sequences, blocks,
//   scan_state_elems] f32, written in place) -> out, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

const kernels::ScanHeads& scan_heads(const Attrs& attrs) { return attrs.as<StateScanAttrs>().heads; }
bool scan_rows_fit(In in, const kernels::ScanHeads& h) {
  if (!is_matrix(in[0]) || h.groups < 1 || h.heads < 1 || h.heads % h.groups != 0 || h.state_dim < 1 ||
      h.head_dim < 1)
    return false;
  const Shape gates = {in[0]->shape.dim(0), h.heads};
  return in[0]->shape.dim(1) == h.xbc_width() && has_type(in[1], gates) && has_type(in[2], gates) &&
         has_type(in[3], {h.heads});
}
std::string scan_rule(const kernels::ScanHeads& h, const std::string& rows) {
  return str("xbc [", rows, ", ", h.heads, " * ", h.head_dim, " + 2 * ", h.groups, " * ", h.state_dim,
             "] with heads a multiple of groups, step and g [T, ", h.heads, "] f32, d [", h.heads, "] f32");
}

Specs infer_state_scan(In in, const Attrs& attrs) {
  const kernels::ScanHeads& h = scan_heads(attrs);
  if (!scan_rows_fit(in, h) || h.seq < 1 || in[0]->shape.dim(0) % h.seq != 0 ||
      (in[4] != nullptr && !has_type(in[4], {in[0]->shape.dim(0)}, DType::i32)))
    return mismatch(scan_rule(h, str("batch * ", h.seq)) + ", doc_start [T] i32 or none", in);
  const std::int64_t rows = in[0]->shape.dim(0);
  return std::vector<OutputSpec>{{"out", {rows, h.out_width()}, in[0]->dtype},
                                 workspace(kernels::state_scan_forward_workspace_bytes(rows, h))};
}
void vjp_state_scan(VjpContext& c) {
  c.emit(Op::state_scan_backward, {c.in(0), c.in(1), c.in(2), c.in(3), c.grad_output(0), c.in(4)},
         {0, 1, 2, 3, -1}, c.attrs());
}
// The products of a chunk: two with the state, and those within its 64 rows of which half are 0.
double flops_state_scan(In in, In, const Attrs& attrs) {
  const kernels::ScanHeads& h = scan_heads(attrs);
  const double rows = static_cast<double>(in[0]->shape.dim(0)), n = h.state_dim, p = h.head_dim;
  return 2.0 * rows * (h.heads * (2 * n * p + 32 * p) + static_cast<double>(h.blocks()) * 32 * n);
}
Status launch_state_scan(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::state_scan_forward_async(backend, stream,
                                           {.xbc = c.in[0],
                                            .step = c.in[1],
                                            .g = c.in[2],
                                            .d = c.in[3],
                                            .doc_start = or_none(c.in[4]),
                                            .out = c.out[0],
                                            .heads = scan_heads(c.attrs),
                                            .workspace = as_workspace(c.out[1])});
}

Specs infer_state_scan_backward(In in, const Attrs& attrs) {
  return std::vector<OutputSpec>{
      {"dxbc", in[0]->shape, in[0]->dtype},
      {"dstep", in[1]->shape},
      {"dg", in[2]->shape},
      {"dd", in[3]->shape},
      workspace(kernels::state_scan_backward_workspace_bytes(in[0]->shape.dim(0), scan_heads(attrs)))};
}
// The states again, and two products for each of the forward's.
double flops_state_scan_backward(In in, In out, const Attrs& attrs) {
  return 2.5 * flops_state_scan(in, out, attrs);
}
Status launch_state_scan_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::state_scan_backward_async(backend, stream,
                                            {.xbc = c.in[0],
                                             .step = c.in[1],
                                             .g = c.in[2],
                                             .d = c.in[3],
                                             .doc_start = or_none(c.in[5]),
                                             .dout = c.in[4],
                                             .dxbc = c.out[0],
                                             .dstep = c.out[1],
                                             .dg = c.out[2],
                                             .dd = c.out[3],
                                             .heads = scan_heads(c.attrs),
                                             .accumulate_dd = accumulates(c, 3),
                                             .workspace = as_workspace(c.out[4])});
}

Specs infer_cached_state_scan(In in, const Attrs& attrs) {
  const kernels::ScanHeads& h = scan_heads(attrs);
  const bool fits = scan_rows_fit(in, h) && has_type(in[4], {in[0]->shape.dim(0)}, DType::i32) &&
                    has_type(in[5], {in[0]->shape.dim(0)}, DType::i32) && in[6] != nullptr &&
                    in[6]->kind == ValueKind::state && in[6]->shape.rank == 3 &&
                    has_type(in[6], {in[6]->shape.dim(0), h.blocks(), kernels::scan_state_elems(h)});
  if (!fits)
    return mismatch(scan_rule(h, "R") + str(", positions and slots [R] i32, and the state [sequences, ",
                                            h.blocks(), ", ", kernels::scan_state_elems(h), "] f32"),
                    in);
  return std::vector<OutputSpec>{{"out", {in[0]->shape.dim(0), h.out_width()}, in[0]->dtype},
                                 workspace(kernels::cached_state_scan_workspace_bytes(h))};
}
Status launch_cached_state_scan(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::cached_state_scan_async(backend, stream,
                                          {c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], c.in[6],
                                           c.out[0], scan_heads(c.attrs), as_workspace(c.out[1])});
}

}  // namespace

Value Builder::state_scan(Value xbc, const ScanGates& gates, Value d, const kernels::ScanHeads& heads,
                          Value doc_start) {
  return op(Op::state_scan, {xbc, gates.step, gates.g, d, doc_start}, StateScanAttrs{.heads = heads});
}
Value Builder::cached_state_scan(Value xbc, const ScanGates& gates, Value d, Value positions, Value slots,
                                 Value kept, const kernels::ScanHeads& heads) {
  return op(Op::cached_state_scan, {xbc, gates.step, gates.g, d, positions, slots, kept},
            StateScanAttrs{.heads = heads});
}

constinit const OpDef detail::op_defs::state_scan = {
    .kind = OpKind::recurrent,
    .n_in = 5,
    .optional_in = 4,
    .infer_outputs = infer_state_scan,
    .vjp = vjp_state_scan,
    .flops = flops_state_scan,
    .launch = launch_state_scan,
};
constinit const OpDef detail::op_defs::state_scan_backward = {
    .kind = OpKind::recurrent,
    .n_in = 6,
    .optional_in = 5,
    .infer_outputs = infer_state_scan_backward,
    .flops = flops_state_scan_backward,
    .launch = launch_state_scan_backward,
};
constinit const OpDef detail::op_defs::cached_state_scan = {
    .kind = OpKind::recurrent,
    .n_in = 7,
    .infer_outputs = infer_cached_state_scan,
    .flops = flops_state_scan,
    .launch = launch_cached_state_scan,
};

}  // namespace strata
