#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <strata/graph/ops.h>

/// What the rules of all ops are written with, those of the products, and those of the moves.
namespace strata::detail::op_rules {

using In = std::span<const ValueInfo* const>;
using Specs = Result<std::vector<OutputSpec>>;

/// An error with the rule and what was given.
Status mismatch(std::string_view rule, In in);
bool has_type(const ValueInfo* info, const Shape& shape, DType dtype = DType::f32);
/// What a model computes with; sums and statistics are f32 whatever it is.
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

/// (x) -> x on its way from the device, the host or the store.
Specs infer_begin_from_device(In in, const Attrs&);
Specs infer_begin_from_host(In in, const Attrs&);
Specs infer_begin_from_store(In in, const Attrs&);
/// (x nearer to the device, x farther), of which one is on its way to the other's side -> x there; the
/// farther is the host's or the store's.
Specs infer_end_at_host(In in, const Attrs&);
Specs infer_end_at_store(In in, const Attrs&);

}  // namespace strata::detail::op_rules
