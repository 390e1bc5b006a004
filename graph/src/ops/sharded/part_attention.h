#pragma once

#include <optional>

#include <strata/graph/shard_placement.h>

#include "ops/op_defs.h"

namespace strata::detail {

/// How attention runs where every rank has tokens of each sequence: with their queries, on the keys and
/// values of all ranks (Dubey et al. 2024, arXiv 2407.21783, section 3.3.2). Nothing if the rows of qkv are
/// not split like that.
std::optional<ShardStrategy> shard_part_attention(const ShardQuery& query);
/// Pairs of a query and a key that it sees, of one sequence.
double visible_pairs(const AttentionAttrs& attrs);

/// Elements of a head of q [T, heads d].
inline std::int64_t head_dim(const ValueInfo& q, const AttentionAttrs& a) { return q.shape.dim(1) / a.heads; }
/// Whether q [B * queries, heads d] and kv [B * keys, 2 kv_heads d] are those of the tokens of the
/// attributes, and doc_start, if there is one, is that of the queries.
bool are_parts(const ValueInfo* q, const ValueInfo* kv, const ValueInfo* doc_start, const AttentionAttrs& a);
/// The requirements of are_parts(), for messages.
std::string parts_text(const AttentionAttrs& a);
/// The operations of two matmuls on the pairs that are visible; backward has five matmuls.
double flops_of_parts(op_rules::In in, op_rules::In out, const Attrs& attrs);
double flops_of_parts_backward(op_rules::In in, op_rules::In out, const Attrs& attrs);
std::size_t part_forward_bytes(const ValueInfo& q, const AttentionAttrs& a);
/// dq, dkv and a workspace.
std::vector<OutputSpec> part_gradients(const ValueInfo& q, const ValueInfo& kv, const AttentionAttrs& a);

}  // namespace strata::detail
