#include <strata/kernels/fp8.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/linear_cross_entropy.h>

#include <strata/runtime/str.h>

#include "op_rules.h"

// Rules of the GEMMs of linear layers and of the loss. A GEMM with a workspace (assign_gemm_workspaces) has
// it as its last output.

namespace strata::detail::op_rules {
namespace {

std::vector<OutputSpec> with_gemm_workspace(std::vector<OutputSpec> made, const Attrs& a, std::size_t bytes) {
  if (a.gemm_workspace) {
    made.push_back(workspace(bytes));
    made.back().name = "gemm_workspace";
  }
  return made;
}
std::vector<OutputSpec> gemm_output(const char* name, const Shape& shape, DType dtype, const Attrs& a) {
  return with_gemm_workspace({{name, shape, dtype}}, a,
                             kernels::gemm_workspace_bytes(shape.dim(0), shape.dim(1)));
}

}  // namespace

// --- linear: (x [T, K], w [N, K], b [N] or none) -> y [T, N] ---
Specs infer_linear(In in, const Attrs& a) {
  if (!is_matrix(in[0]) || !is_matrix(in[1]) || in[0]->shape.dim(1) != in[1]->shape.dim(1) ||
      in[0]->dtype != in[1]->dtype ||
      (in[2] != nullptr && !has_type(in[2], {in[1]->shape.dim(0)}, in[0]->dtype)))
    return mismatch("x [T, K], weight [N, K], bias [N] or none, of one dtype", in);
  return gemm_output("y", {in[0]->shape.dim(0), in[1]->shape.dim(0)}, a.f32_out ? DType::f32 : in[0]->dtype,
                     a);
}
void vjp_linear(VjpContext& c) {
  const ValueId dy = c.grad_output(0);
  if (c.needs_input_grad(2)) c.emit(Op::linear_backward_bias, {dy, c.in(2)}, {2, -1});
  if (c.needs_input_grad(1)) c.emit(Op::linear_backward_weight, {dy, c.in(0), c.in(1)}, {1});
  if (c.needs_input_grad(0)) c.emit(Op::linear_backward_input, {dy, c.in(1)}, {0});
}
double flops_linear(In in, In out, const Attrs&) {
  return 2.0 * static_cast<double>(out[0]->shape.n_elems()) * static_cast<double>(in[0]->shape.dim(1));
}
// (dy [T, N], w [N, K]) -> dx [T, K]; costs as much as the forward GEMM
Specs infer_linear_backward_input(In in, const Attrs& a) {
  return gemm_output("dx", {in[0]->shape.dim(0), in[1]->shape.dim(1)}, in[0]->dtype, a);
}
double flops_linear_input(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(1));
}
// (dy [T, N], x [T, K], w for its shape) -> dw [N, K]
Specs infer_linear_backward_weight(In in, const Attrs& a) {
  return gemm_output("dw", in[2]->shape, in[2]->dtype, a);
}
double flops_linear_weight(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(1));
}
// (dy [T, N], b for its shape) -> db [N], workspace
Specs infer_linear_backward_bias(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"db", in[1]->shape, in[1]->dtype},
      workspace(kernels::linear_backward_bias_workspace_bytes(in[0]->shape.dim(0), in[0]->shape.dim(1)))};
}

// --- fp8_cast (emitted by use_fp8(), after derivation): (x [T, K]) -> rows [T, K] and columns [K, T], each
// if requested, inverse [1], workspace ---
Specs infer_fp8_cast(In in, const Attrs& a) {
  const auto fits = [](std::int64_t side) { return side > 0 && side % kernels::kFp8Multiple == 0; };
  if (!is_matrix(in[0]) || !is_compute_dtype(in[0]->dtype) || !fits(in[0]->shape.dim(0)) ||
      !fits(in[0]->shape.dim(1)) || (!a.rowwise && !a.columnwise))
    return mismatch(str("x [T, K], both multiples of ", kernels::kFp8Multiple), in);
  const DType codes = a.e5m2 ? DType::e5m2 : DType::e4m3;
  const std::int64_t rows = in[0]->shape.dim(0), k = in[0]->shape.dim(1);
  std::vector<OutputSpec> made;
  if (a.rowwise) made.push_back({"rows", {rows, k}, codes});
  if (a.columnwise) made.push_back({"columns", {k, rows}, codes});
  made.push_back({"inverse", {1}});
  made.push_back(workspace(kernels::fp8_cast_workspace_bytes()));
  return made;
}

// --- fp8_gemm (also emitted by use_fp8()): (a [M, K], its scale_inv [1], b [N, K], its scale_inv [1], bias
// [N] or none) -> c [M, N] ---
Specs infer_fp8_gemm(In in, const Attrs& a) {
  const auto codes = [](const ValueInfo* of) {
    return of != nullptr && of->shape.rank == 2 && (of->dtype == DType::e4m3 || of->dtype == DType::e5m2);
  };
  if (!codes(in[0]) || !codes(in[2]) || in[2]->dtype != DType::e4m3 ||
      in[0]->shape.dim(1) != in[2]->shape.dim(1) || !has_type(in[1], {1}) || !has_type(in[3], {1}) ||
      !is_compute_dtype(a.out_dtype) ||
      (in[4] != nullptr &&
       (a.out_dtype == DType::f32 || !has_type(in[4], {in[2]->shape.dim(0)}, a.out_dtype))))
    return mismatch("a [M, K], b [N, K] in fp8, each with its scale_inv [1], bias [N] or none", in);
  return gemm_output("c", {in[0]->shape.dim(0), in[2]->shape.dim(0)}, a.out_dtype, a);
}
double flops_fp8_gemm(In in, In out, const Attrs&) {
  return 2.0 * static_cast<double>(out[0]->shape.n_elems()) * static_cast<double>(in[0]->shape.dim(1));
}

// --- linear_cross_entropy: (x [T, K], w [V, K], targets [T] i32, divisor [1] or none) -> loss [1], losses
// [T], workspace ---
Specs infer_linear_cross_entropy(In in, const Attrs& a) {
  if (!is_matrix(in[0]) || !is_matrix(in[1]) || in[0]->dtype != in[1]->dtype ||
      in[0]->shape.dim(1) != in[1]->shape.dim(1) || !has_type(in[2], {in[0]->shape.dim(0)}, DType::i32) ||
      (in[3] != nullptr && !has_type(in[3], {1})))
    return mismatch("x [T, K], weight [V, K] of one dtype, targets [T] i32, divisor [1] or none", in);
  const std::int64_t rows = in[0]->shape.dim(0), vocab = in[1]->shape.dim(0), k = in[1]->shape.dim(1);
  return with_gemm_workspace(
      {{"loss", {1}},
       {"losses", {rows}},
       workspace(kernels::linear_cross_entropy_workspace_bytes(rows, vocab, in[0]->dtype))},
      a, kernels::linear_cross_entropy_gemm_workspace_bytes(rows, vocab, k));
}
void vjp_linear_cross_entropy(VjpContext& c) {
  Attrs attrs = c.attrs();
  attrs.gemm_workspace = false;  // assign_gemm_workspaces adds one later
  attrs.no_dx = !c.needs_input_grad(0);
  attrs.no_dw = !c.needs_input_grad(1);
  c.emit(Op::linear_cross_entropy_backward, {c.in(0), c.in(1), c.in(2), c.in(3)}, {0, 1, -1, -1, -1}, attrs);
}
double flops_linear_cross_entropy(In in, In, const Attrs&) {
  return 2.0 * static_cast<double>(in[0]->shape.n_elems()) * static_cast<double>(in[1]->shape.dim(0));
}
// (operands of linear_cross_entropy) -> dx, dw, loss, losses, workspace; see fuse_loss() in autodiff.cpp
Specs infer_linear_cross_entropy_backward(In in, const Attrs& a) {
  STRATA_TRY_ASSIGN(std::vector<OutputSpec> out, infer_linear_cross_entropy(in, a));
  const Shape none = {0};
  out.insert(out.begin(), {{"dx", a.no_dx ? none : in[0]->shape, in[0]->dtype},
                           {"dw", a.no_dw ? none : in[1]->shape, DType::f32}});
  return out;
}
double flops_linear_cross_entropy_backward(In in, In out, const Attrs& a) {
  return (3.0 - a.no_dx - a.no_dw) * flops_linear_cross_entropy(in, out, a);
}

}  // namespace strata::detail::op_rules
