#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <strata/graph/ops.h>

/// Helpers for the shape rules of all ops, and the rules of GEMMs and of moves.
namespace strata::detail::op_rules {

using In = std::span<const ValueInfo* const>;
using Specs = Result<std::vector<OutputSpec>>;

/// Returns an error with the violated rule and the operands given.
Status mismatch(std::string_view rule, In in);
bool has_type(const ValueInfo* info, const Shape& shape, DType dtype = DType::f32);
/// Whether models may compute in `dtype`; sums and statistics are f32 in any case.
bool is_compute_dtype(DType dtype);
bool is_matrix(const ValueInfo* info);
OutputSpec workspace(std::size_t bytes);

Specs infer_linear(In in, const Attrs& a);
void vjp_linear(VjpContext& c);
double flops_linear(In in, In out, const Attrs&);
Specs infer_linear_backward_input(In in, const Attrs& a);
double flops_linear_input(In in, In, const Attrs&);
Specs infer_linear_backward_weight(In in, const Attrs& a);
double flops_linear_weight(In in, In, const Attrs&);
Specs infer_linear_backward_bias(In in, const Attrs&);
Specs infer_fp8_cast(In in, const Attrs& a);
Specs infer_fp8_gemm(In in, const Attrs& a);
double flops_fp8_gemm(In in, In out, const Attrs&);
Specs infer_linear_cross_entropy(In in, const Attrs& a);
void vjp_linear_cross_entropy(VjpContext& c);
double flops_linear_cross_entropy(In in, In, const Attrs&);
Specs infer_linear_cross_entropy_backward(In in, const Attrs& a);
double flops_linear_cross_entropy_backward(In in, In out, const Attrs& a);

/// (x) -> x in flight from the device, the host or the slow tier.
Specs infer_begin_from_device(In in, const Attrs&);
Specs infer_begin_from_host(In in, const Attrs&);
Specs infer_begin_from_store(In in, const Attrs&);
/// (x on the nearer tier, x on the farther tier), one of which is in flight to the other's tier -> x there.
/// The farther tier is the host or the slow tier.
Specs infer_end_at_host(In in, const Attrs&);
Specs infer_end_at_store(In in, const Attrs&);

}  // namespace strata::detail::op_rules
