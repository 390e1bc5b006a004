#include "ops/op_defs.h"

#include <string>
#include <utility>

#include <strata/kernels/linear.h>
#include <strata/runtime/str.h>

namespace strata::detail::op_rules {

Status mismatch(std::string_view rule, In in) {
  std::string shapes;
  for (const ValueInfo* info : in)
    shapes += str(shapes.empty() ? "" : ", ",
                  info == nullptr ? std::string("none")
                                  : str(info->name, " ", to_string(info->dtype), to_string(info->shape)));
  return Status::error(Code::invalid, str("needs ", rule, "; given ", shapes));
}
bool has_type(const ValueInfo* info, const Shape& shape, DType dtype) {
  return info != nullptr && info->shape == shape && info->dtype == dtype;
}
bool is_matrix(const ValueInfo* info) {
  return info != nullptr && info->shape.rank == 2 && is_stored_dtype(info->dtype);
}
bool matches_residual(const ValueInfo* residual, const ValueInfo* x) {
  return residual == nullptr || has_type(residual, x->shape, x->dtype);
}

OutputSpec workspace(std::size_t bytes) {
  return {"workspace", {static_cast<std::int64_t>(bytes)}, DType::u8, true};
}
std::vector<OutputSpec> with_gemm_workspace(std::vector<OutputSpec> made, const GemmAttrs& gemm,
                                            std::size_t bytes) {
  if (gemm.workspace) {
    made.push_back(workspace(bytes));
    made.back().name = "gemm_workspace";
  }
  return made;
}
std::vector<OutputSpec> gemm_output(const char* name, const Shape& shape, DType dtype,
                                    const GemmAttrs& gemm) {
  return with_gemm_workspace({{name, shape, dtype}}, gemm,
                             kernels::gemm_workspace_bytes(shape.dim(0), shape.dim(1)));
}

Specs infer_elementwise(In in, const Attrs&) {
  if (in[0] == nullptr || !is_stored_dtype(in[0]->dtype)) return mismatch("x f32, bf16 or f16", in);
  return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}};
}
Specs infer_elementwise_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{{"dx", in[0]->shape, in[0]->dtype}};
}

double no_flops(In, In, const Attrs&) { return 0; }
double per_element(In in, In, const Attrs&) { return 10.0 * static_cast<double>(in[0]->shape.n_elems()); }
double gemm_flops(In in, In out, const Attrs&) {
  return 2.0 * static_cast<double>(out[0]->shape.n_elems()) * static_cast<double>(in[0]->shape.dim(1));
}

namespace {

std::vector<ShardStrategy> shard_alike(const ShardQuery& q, bool partial) {
  std::vector<ShardStrategy> found;
  const auto all = [&](const ShardPlacement& at) {
    found.push_back({std::vector<ShardPlacement>(q.in.size(), at), at});
  };
  for (int dim = 0; dim < q.in[0]->shape.rank; ++dim) all(ShardPlacement::split(dim, q.common_cut(dim)));
  if (partial) all(ShardPlacement::partial());
  return found;
}

}  // namespace

std::vector<ShardStrategy> shard_elementwise(const ShardQuery& q) { return shard_alike(q, false); }
std::vector<ShardStrategy> shard_linear_elementwise(const ShardQuery& q) { return shard_alike(q, true); }
std::vector<ShardStrategy> shard_rows(const ShardQuery& q) {
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0));
  std::vector<ShardPlacement> in(q.in.size(), ShardPlacement::copied());
  in[0] = rows;
  return {{std::move(in), rows}};
}
Cut same_columns(const ValueInfo&, const Attrs&, const Cut& out) { return out; }
Cut cut_by_heads(const ValueInfo& qkv, std::int32_t heads, std::int32_t kv_heads) {
  const std::int64_t d = qkv.shape.dim(1) / (heads + 2 * kv_heads);
  return {{CutSegment{heads, d}, CutSegment{kv_heads, d}, CutSegment{kv_heads, d}}, 3};
}

}  // namespace strata::detail::op_rules

namespace strata::detail::op_calls {

BufferView as_workspace(const TensorView& view) { return {view.data, view.bytes()}; }
TensorView or_none(const TensorView& view) { return view.data == nullptr ? TensorView{} : view; }
BufferView workspace_or_none(const OpCall& call, std::size_t output) {
  return output < call.out.size() ? as_workspace(call.out[output]) : BufferView{};
}
bool accumulates(const OpCall& call, int output) { return (call.accumulate >> output & 1u) != 0; }
TensorView residual(const OpCall& call, std::size_t operand) {
  return accumulates(call, 0) ? call.out[0] : or_none(call.in[operand]);
}

}  // namespace strata::detail::op_calls
