#include <strata/kernels/subspace.h>

#include <algorithm>

#include <strata/runtime/str.h>

#include "ops/adapters/lora_parts.h"
#include "ops/op_defs.h"

// find_basis: (g [N, K], previous basis) -> basis f32, energy [parts] f32, workspace
// gradient_outside: (g [N, K], r) -> rho [1] f32, workspace
// With the right side a basis is [sum of ranks, K], as A of an adapter, and r = g basis^T is [elements of all
// parts], as B. With the left side it is the other way round. Neither has a derivative.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;
using detail::PartSizes;
using detail::sizes_of;
using kernels::SubspaceSide;

// The shapes of an adapter's factors: A has the vectors of rows, B those of columns.
Shape factor_shape(const PartSizes& sizes, std::int64_t columns, SubspaceSide side) {
  return side == SubspaceSide::right ? Shape{sizes.ranks, columns} : Shape{sizes.elems};
}
SubspaceSide other(SubspaceSide side) {
  return side == SubspaceSide::right ? SubspaceSide::left : SubspaceSide::right;
}
bool is_stored(const ValueInfo* info, const Shape& shape) {
  return info->shape == shape && has_type(info, shape, info->dtype) &&
         (info->dtype == DType::f32 || info->dtype == DType::bf16 || info->dtype == DType::f16);
}

/// Checks g, and the other operand, which is a factor of `side`.
Status check(In in, const BasisAttrs& a, const char* name, SubspaceSide side) {
  if (!is_matrix(in[0])) return mismatch("g [N, K]", in);
  const std::int64_t columns = in[0]->shape.dim(1);
  const PartSizes sizes = sizes_of(a.parts, in[0]->shape.dim(0));
  bool fits = sizes.in_order && is_stored(in[0], in[0]->shape);
  for (const LoraPart& part : a.parts.all()) fits = fits && part.rank <= std::min(part.rows, columns);
  const Shape shape = factor_shape(sizes, columns, side);
  if (!fits || !is_stored(in[1], shape))
    return mismatch(str("g [N, K], ", name, " ", to_string(shape), ", of f32, bf16 or f16, and ", a.parts.n,
                        " parts in the order of their rows, of a rank of at most min(rows, K)"),
                    in);
  return {};
}

Specs infer_find_basis(In in, const Attrs& attrs) {
  const auto& a = attrs.as<BasisAttrs>();
  STRATA_TRY(check(in, a, "previous", a.side));
  return std::vector<OutputSpec>{
      {"basis", in[1]->shape},
      {"energy", {static_cast<std::int64_t>(a.parts.n)}},
      workspace(kernels::find_basis_workspace_bytes(a.parts, in[0]->shape.dim(1), a.side, in[0]->dtype))};
}
// Counts the iterations that most gradients need: each multiplies the gradient twice by its block of vectors.
double flops_find_basis(In in, In, const Attrs& attrs) {
  constexpr double kIterations = 4;
  double flops = 0;
  for (const LoraPart& part : attrs.as<BasisAttrs>().parts.all())
    flops += kIterations * 4.0 * static_cast<double>(part.rows) * static_cast<double>(part.rank);
  return flops * static_cast<double>(in[0]->shape.dim(1));
}
Status launch_find_basis(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<BasisAttrs>();
  return kernels::find_basis_async(
      backend, stream,
      {c.in[0], c.in[1], c.out[0], c.out[1], as_workspace(c.out[2]), a.parts, a.side, a.method});
}

Specs infer_gradient_outside(In in, const Attrs& attrs) {
  const auto& a = attrs.as<BasisAttrs>();
  STRATA_TRY(check(in, a, "r", other(a.side)));
  return std::vector<OutputSpec>{
      {"rho", {1}},
      workspace(kernels::gradient_outside_workspace_bytes(a.parts, in[0]->shape.dim(1), a.side))};
}
double flops_gradient_outside(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems() + in[1]->shape.n_elems());
}
Status launch_gradient_outside(const OpCall& c, Backend& backend, Stream& stream) {
  const auto& a = c.attrs.as<BasisAttrs>();
  return kernels::gradient_outside_async(
      backend, stream, {c.in[0], c.in[1], c.out[0], as_workspace(c.out[1]), a.parts, a.side});
}

}  // namespace

constinit const OpDef detail::op_defs::find_basis = {
    .n_in = 2,
    .infer_outputs = infer_find_basis,
    .flops = flops_find_basis,
    .launch = launch_find_basis,
};
constinit const OpDef detail::op_defs::gradient_outside = {
    .n_in = 2,
    .infer_outputs = infer_gradient_outside,
    .flops = flops_gradient_outside,
    .launch = launch_gradient_outside,
};

}  // namespace strata
