#include <strata/kernels/embedding.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// embedding: (ids [T] i32, table [V, h]) -> x [T, h]; row t is table[ids[t] + offset]
// embedding_backward: (ids, dx, table for its shape) -> dtable, workspace

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_embedding(In in, const Attrs& attrs) {
  const auto& [offset, is_part] = attrs.as<EmbeddingAttrs>();
  if (in[0] == nullptr || in[0]->dtype != DType::i32 || in[0]->shape.rank != 1 || !is_matrix(in[1]) ||
      (!is_part && (offset < 0 || in[1]->shape.dim(0) <= offset)))
    return mismatch(str("ids [T] i32, table [> ", offset, ", h]"), in);
  return std::vector<OutputSpec>{{"x", {in[0]->shape.dim(0), in[1]->shape.dim(1)}, in[1]->dtype}};
}
void vjp_embedding(VjpContext& c) {
  c.emit(Op::embedding_backward, {c.in(0), c.grad_output(0), c.in(1)}, {1, -1}, c.attrs());
}
Status launch_embedding(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::embedding_forward_async(backend, stream,
                                          {c.in[0], c.in[1], c.out[0], c.attrs.as<EmbeddingAttrs>().offset,
                                           c.attrs.as<EmbeddingAttrs>().is_part});
}

// Splits by tokens; by columns of the table; and by its rows, where the result is the sum of what the ranks
// find: one rank finds the row, and the others zeros.
std::vector<ShardStrategy> shard_embedding(const ShardQuery& q) {
  const ShardPlacement rows = ShardPlacement::split(0, q.cut_of(0, 0)), whole = ShardPlacement::copied();
  const ShardPlacement columns = ShardPlacement::split(1, q.cut_of(1, 1));
  std::vector<ShardStrategy> ways = {{{rows, whole}, rows}, {{whole, columns}, columns}};
  const Cut vocab = Cut::nearly_even(q.in[1]->shape.dim(0), q.axis.ranks);
  if (!vocab.divides(q.axis.ranks) || vocab.repeats(q.axis.ranks)) return ways;
  EmbeddingAttrs part = q.attrs.as<EmbeddingAttrs>();
  part.is_part = true;
  part.offset -= static_cast<std::int32_t>(runs_of(vocab, q.axis.ranks, q.axis.rank).front().whole);
  ways.push_back({{whole, ShardPlacement::split(0, vocab)}, ShardPlacement::partial(), part});
  return ways;
}

Specs infer_embedding_backward(In in, const Attrs&) {
  return std::vector<OutputSpec>{
      {"dtable", in[2]->shape, in[2]->dtype},
      workspace(kernels::embedding_backward_workspace_bytes(in[0]->shape.dim(0), in[2]->shape.dim(0)))};
}
Status launch_embedding_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::embedding_backward_async(
      backend, stream,
      {c.in[0], c.in[1], c.out[0], c.attrs.as<EmbeddingAttrs>().offset, accumulates(c, 0),
       as_workspace(c.out[1]), c.attrs.as<EmbeddingAttrs>().is_part});
}

}  // namespace

Value Builder::embedding(Value ids, Value table, int offset) {
  return op(Op::embedding, {ids, table}, EmbeddingAttrs{.offset = offset});
}
// Gathering rows by index is an embedding lookup, so this uses the same kernel.
Value Builder::select_rows(Value x, Value rows) { return op(Op::embedding, {rows, x}, EmbeddingAttrs{}); }

constinit const OpDef detail::op_defs::embedding = {
    .n_in = 2,
    .infer_outputs = infer_embedding,
    .vjp = vjp_embedding,
    .flops = no_flops,
    .launch = launch_embedding,
    .shard = shard_embedding,
};
constinit const OpDef detail::op_defs::embedding_backward = {
    .n_in = 3,
    .shape_only_in = 2,
    .infer_outputs = infer_embedding_backward,
    .flops = no_flops,
    .launch = launch_embedding_backward,
};

}  // namespace strata
