#include <strata/kernels/cast_rows.h>
#include <strata/kernels/elementwise.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// A rank's own columns in a whole matrix, for cuts that do not give every rank as many.
// put_columns: (x [T, c]) -> whole [T, C] with x as the columns that a cut of C deals to the rank, and zeros
// get_columns: (whole [T, C]) -> x [T, c], these columns

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

std::int64_t own_columns(const CutAttrs& a) { return a.cut.shard_extent(a.ranks, a.rank); }

Specs infer_put_columns(In in, const Attrs& attrs) {
  const auto& a = attrs.as<CutAttrs>();
  if (!is_matrix(in[0]) || !a.cut.divides(a.ranks) || in[0]->shape.dim(1) != own_columns(a))
    return mismatch(
        str("x [T, the columns of rank ", a.rank, " of ", a.ranks, "], cut like ", to_string(a.cut)), in);
  return std::vector<OutputSpec>{{"whole", {in[0]->shape.dim(0), a.cut.extent()}, in[0]->dtype}};
}
Specs infer_get_columns(In in, const Attrs& attrs) {
  const auto& a = attrs.as<CutAttrs>();
  if (!is_matrix(in[0]) || !a.cut.divides(a.ranks) || in[0]->shape.dim(1) != a.cut.extent())
    return mismatch(str("whole [T, ", a.cut.extent(), "], cut like ", to_string(a.cut)), in);
  return std::vector<OutputSpec>{{"x", {in[0]->shape.dim(0), own_columns(a)}, in[0]->dtype}};
}
void vjp_put_columns(VjpContext& c) { c.emit(Op::get_columns, {c.grad_output(0)}, {0}, c.attrs()); }
void vjp_get_columns(VjpContext& c) { c.emit(Op::put_columns, {c.grad_output(0)}, {0}, c.attrs()); }

/// Copies each run of columns from or to the whole matrix.
Status copy_runs(const TensorView& whole, const TensorView& own, const CutAttrs& a, bool puts,
                 Backend& backend, Stream& stream) {
  const std::int64_t rows = whole.shape.dim(0);
  const auto columns = [&](const TensorView& of, std::int64_t first, std::int64_t n) {
    return TensorView{of.data + static_cast<std::size_t>(first) * size_of(of.dtype), Shape{rows, n},
                      of.dtype};
  };
  for (const CutRun& run : runs_of(a.cut, a.ranks, a.rank)) {
    const TensorView there = columns(whole, run.whole, run.n), here = columns(own, run.shard, run.n);
    const std::int64_t there_stride = whole.shape.dim(1), here_stride = own.shape.dim(1);
    STRATA_TRY(kernels::cast_rows_async(backend, stream,
                                        puts
                                            ? kernels::CastRowsArgs{here, there, here_stride, there_stride}
                                            : kernels::CastRowsArgs{there, here, there_stride, here_stride}));
  }
  return {};
}
Status launch_put_columns(const OpCall& c, Backend& backend, Stream& stream) {
  STRATA_TRY(kernels::fill_async(backend, stream, {c.out[0], 0.0f}));
  return copy_runs(c.out[0], c.in[0], c.attrs.as<CutAttrs>(), true, backend, stream);
}
Status launch_get_columns(const OpCall& c, Backend& backend, Stream& stream) {
  return copy_runs(c.in[0], c.out[0], c.attrs.as<CutAttrs>(), false, backend, stream);
}

}  // namespace

constinit const OpDef detail::op_defs::put_columns = {
    .n_in = 1,
    .infer_outputs = infer_put_columns,
    .vjp = vjp_put_columns,
    .flops = no_flops,
    .launch = launch_put_columns,
    .adds_to_gradients = false,
};
constinit const OpDef detail::op_defs::get_columns = {
    .n_in = 1,
    .infer_outputs = infer_get_columns,
    .vjp = vjp_get_columns,
    .flops = no_flops,
    .launch = launch_get_columns,
    .adds_to_gradients = false,
};

}  // namespace strata
