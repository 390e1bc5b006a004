#include <strata/kernels/recurrent/gated_rmsnorm.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// gated_rmsnorm: (x [T, heads n], z [T, heads n], weight [n] or [heads n]) -> y, rstd [T heads]
// gated_rmsnorm_backward: (x, z, weight, rstd, dy) -> dx, dz, dweight, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_gated_rmsnorm(In in, const Attrs& attrs) {
  const bool are_rows = is_matrix(in[0]) && has_type(in[1], in[0]->shape, in[0]->dtype) && in[2] != nullptr &&
                        in[2]->shape.rank == 1 && in[2]->dtype == in[0]->dtype;
  const std::int64_t head_dim = attrs.as<GatedRmsnormAttrs>().head_dim,
                     of_weight = are_rows ? in[2]->shape.dim(0) : 0,
                     width = are_rows ? in[0]->shape.dim(1) : 0, n = head_dim > 0 ? head_dim : of_weight;
  if (n < 1 || width % n != 0 || (of_weight != n && of_weight != width))
    return mismatch(str("x and z [T, heads n], weight [n] or [heads n] of one dtype",
                        head_dim > 0 ? str(", n = ", head_dim) : ""),
                    in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}, {"rstd", {in[0]->shape.n_elems() / n}}};
}
void vjp_gated_rmsnorm(VjpContext& c) {
  c.emit(Op::gated_rmsnorm_backward, {c.in(0), c.in(1), c.in(2), c.out(1), c.grad_output(0)}, {0, 1, 2, -1},
         c.attrs());
}
Status launch_gated_rmsnorm(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& attrs = c.attrs.as<GatedRmsnormAttrs>();
  return kernels::gated_rmsnorm_forward_async(
      backend, stream,
      {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], attrs.eps, attrs.head_dim, attrs.gate_first});
}

Specs infer_gated_rmsnorm_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dx", in[0]->shape, in[0]->dtype},
                                 {"dz", in[1]->shape, in[1]->dtype},
                                 {"dweight", in[2]->shape, in[2]->dtype},
                                 workspace(kernels::gated_rmsnorm_backward_workspace_bytes(
                                     in[0]->shape.n_elems(), in[2]->shape.n_elems()))};
}
Status launch_gated_rmsnorm_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::gated_rmsnorm_backward_async(backend, stream,
                                               {.x = c.in[0],
                                                .z = c.in[1],
                                                .weight = c.in[2],
                                                .rstd = c.in[3],
                                                .dy = c.in[4],
                                                .dx = c.out[0],
                                                .dz = c.out[1],
                                                .dweight = c.out[2],
                                                .head_dim = c.attrs.as<GatedRmsnormAttrs>().head_dim,
                                                .gate_first = c.attrs.as<GatedRmsnormAttrs>().gate_first,
                                                .accumulate_dweight = accumulates(c, 2),
                                                .workspace = as_workspace(c.out[3])});
}

}  // namespace

Value Builder::gated_rmsnorm(Value x, Value z, Value weight, float eps, int head_dim, bool gate_first) {
  return op(Op::gated_rmsnorm, {x, z, weight},
            GatedRmsnormAttrs{.eps = eps, .head_dim = head_dim, .gate_first = gate_first});
}

constinit const OpDef detail::op_defs::gated_rmsnorm = {
    .n_in = 3,
    .infer_outputs = infer_gated_rmsnorm,
    .vjp = vjp_gated_rmsnorm,
    .flops = per_element,
    .launch = launch_gated_rmsnorm,
};
constinit const OpDef detail::op_defs::gated_rmsnorm_backward = {
    .n_in = 5,
    .infer_outputs = infer_gated_rmsnorm_backward,
    .in_place = {.out = 0, .in = 4},
    .flops = per_element,
    .launch = launch_gated_rmsnorm_backward,
};

}  // namespace strata
