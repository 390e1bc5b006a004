#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <strata/graph/builder.h>
#include <strata/graph/launch.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

// The files of this folder share these declarations. Each file defines an op with its derivative ops, or a
// few ops that belong together: the order of the operands, the function of Builder that records it, the
// rules, and the call of its kernels.

/// The definitions of all ops. An op of the list without one does not link.
namespace strata::detail::op_defs {

#define STRATA_DECLARE(op, attrs) extern const OpDef op;
STRATA_GRAPH_OPS(STRATA_DECLARE)
#undef STRATA_DECLARE

}  // namespace strata::detail::op_defs

namespace strata::detail::op_rules {

using In = ValueInfos;
using Specs = Result<std::vector<OutputSpec>>;

/// Returns an error with the violated rule and the operands given.
Status mismatch(std::string_view rule, In in);
bool has_type(const ValueInfo* info, const Shape& shape, DType dtype = DType::f32);
bool is_matrix(const ValueInfo* info);
/// Whether a residual gradient, if there is one, can be added to the gradient of x.
bool matches_residual(const ValueInfo* residual, const ValueInfo* x);

OutputSpec workspace(std::size_t bytes);
/// The result of a GEMM, and its workspace if it has one.
std::vector<OutputSpec> gemm_output(const char* name, const Shape& shape, DType dtype, const GemmAttrs& gemm);
std::vector<OutputSpec> with_gemm_workspace(std::vector<OutputSpec> made, const GemmAttrs& gemm,
                                            std::size_t bytes);
/// (x) -> y of the same shape and dtype, for elementwise ops; and (x, dy) -> dx.
Specs infer_elementwise(In in, const Attrs& attrs);
Specs infer_elementwise_backward(In in, const Attrs& attrs);

double no_flops(In in, In out, const Attrs& attrs);
double per_element(In in, In out, const Attrs& attrs);
/// The operations of a GEMM whose inner extent is the row length of operand 0.
double gemm_flops(In in, In out, const Attrs& attrs);

/// The operands and the result are split in the same dimension, in any.
std::vector<ShardStrategy> shard_elementwise(const ShardQuery& query);
/// The same, and also for a sum of the ranks' values, which the op commutes with.
std::vector<ShardStrategy> shard_linear_elementwise(const ShardQuery& query);
/// The rows of operand 0 and of the result are split; all other operands are whole.
std::vector<ShardStrategy> shard_rows(const ShardQuery& query);
Cut same_columns(const ValueInfo& operand, const Attrs& attrs, const Cut& out);
/// The columns q|k|v of [T, (heads + 2 kv_heads) d], by heads.
Cut cut_by_heads(const ValueInfo& qkv, std::int32_t heads, std::int32_t kv_heads);
/// The attributes on a rank's heads. `A` has the fields heads and kv_heads.
template <class A>
A with_own_heads(A attrs, int ranks) {
  attrs.heads = std::max(1, attrs.heads / ranks);
  attrs.kv_heads = std::max(1, attrs.kv_heads / ranks);
  return attrs;
}

}  // namespace strata::detail::op_rules

/// Arguments of kernels from the operands of a call.
namespace strata::detail::op_calls {

BufferView as_workspace(const TensorView& view);
/// A view of rank 0, if the operand is absent.
TensorView or_none(const TensorView& view);
BufferView workspace_or_none(const OpCall& call, std::size_t output);
bool accumulates(const OpCall& call, int output);
/// The tensor that a norm's backward adds to dx (output 0): the residual operand, or the previous contents of
/// dx if x is a parameter whose gradient accumulates.
TensorView residual(const OpCall& call, std::size_t operand);

}  // namespace strata::detail::op_calls
