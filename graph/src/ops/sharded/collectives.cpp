#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <strata/kernels/cast_rows.h>
#include <strata/kernels/elementwise.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// partition() inserts these ops where a value is needed in another placement than it has. All are along one
// axis of the mesh, with n ranks, and concern the first dimension.
// copy_to_ranks: (x) -> y = x, for readers that compute a part of the gradient on each rank
// share_rows: the same of some rows of x, which are computed with on the rank's neighbours, too
// keep_on_first_rank: (x) -> y = x on rank 0 and 0 on the others, so that the sum of all is x
// take_rows: (x [n R, ...]) -> y [R, ...], the rank's rows
// all_reduce: (x) -> the sum of the ranks' x
// all_reduce_rows: the same of some rows of x, among neighbours
// all_gather: (x [R, ...]) -> y [n R, ...], the ranks' x one after the other
// reduce_scatter: (x [n R, ...]) -> y [R, ...], the rank's rows of the sum of the ranks' x
// all_to_all: (x [n R, ...]) -> y [n R, ...]: part q is part `rank` of x of rank q
// join_columns: (x [n T, c]) -> y [T, C]: the columns that a cut of C deals to rank q are those of part q; of
// columns that several ranks have, the sum
// split_columns: (x [T, C]) -> y [n T, c], the other way round
// join_rows: (x [T, ...]) -> y [T, ...]: the rows that a cut of T deals to rank q are those of part q of x
// split_rows: (x [T, ...]) -> y [T, ...], the inverse

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

bool has_rows(const ValueInfo* x, std::int64_t multiple) {
  return x != nullptr && x->shape.rank > 0 && x->shape.dim(0) % multiple == 0;
}
std::vector<OutputSpec> rows_of(const ValueInfo& x, std::int64_t rows) {
  Shape shape = x.shape;
  shape.dims[0] = rows;
  return {{"y", shape, x.dtype}};
}

Specs infer_same(In in, const Attrs&) { return std::vector<OutputSpec>{{"y", in[0]->shape, in[0]->dtype}}; }
Specs infer_gathered(In in, const Attrs& attrs) {
  if (!has_rows(in[0], 1)) return mismatch("x [R, ...]", in);
  return rows_of(*in[0], in[0]->shape.dim(0) * attrs.as<CollectiveAttrs>().ranks);
}
Specs infer_shared(In in, const Attrs& attrs) {
  const auto& a = attrs.as<CollectiveAttrs>();
  if (!has_rows(in[0], 1) || a.first_row < 0 || a.rows <= 0 || a.first_row + a.rows > in[0]->shape.dim(0) ||
      a.group <= 0 || a.ranks % a.group != 0)
    return mismatch(str("x with rows ", a.first_row, " to ", a.first_row + a.rows, ", which ", a.group,
                        " of ", a.ranks, " ranks share"),
                    in);
  return infer_same(in, attrs);
}
Specs infer_scattered(In in, const Attrs& attrs) {
  const std::int32_t ranks = attrs.as<CollectiveAttrs>().ranks;
  if (!has_rows(in[0], ranks)) return mismatch(str("x [", ranks, " R, ...]"), in);
  return rows_of(*in[0], in[0]->shape.dim(0) / ranks);
}
Specs infer_exchanged(In in, const Attrs& attrs) {
  const std::int32_t ranks = attrs.as<CollectiveAttrs>().ranks;
  if (!has_rows(in[0], ranks)) return mismatch(str("x [", ranks, " R, ...]"), in);
  return infer_same(in, attrs);
}

// Along another axis of the mesh: the rows of each of the n parts that these ops gather, scatter or join are
// cut alike, and columns pass through.

Cut each_of(Cut rows, std::int64_t parts) {
  rows.times *= parts;
  return rows;
}
std::vector<ShardStrategy> with_columns(const ShardQuery& q, std::vector<ShardStrategy> ways) {
  if (q.in[0]->shape.rank != 2) return ways;
  const ShardPlacement columns = ShardPlacement::split(1, q.common_cut(1));
  ways.push_back({{columns}, columns});
  return ways;
}
/// The rows of the operand are those of `parts` parts: how each of them is cut.
std::optional<Cut> cut_of_part(const ShardQuery& q, std::int64_t parts) {
  if (!q.is_split(0, 0)) return Cut::even(q.in[0]->shape.dim(0) / parts);
  Cut rows = q.cut_of(0, 0);
  if (rows.times % parts != 0) return std::nullopt;
  rows.times /= parts;
  return rows;
}
std::vector<ShardStrategy> shard_gathered(const ShardQuery& q, std::int64_t parts) {
  const Cut rows = q.cut_of(0, 0);
  return {{{ShardPlacement::split(0, rows)}, ShardPlacement::split(0, each_of(rows, parts))}};
}
std::vector<ShardStrategy> shard_scattered(const ShardQuery& q, std::int64_t parts) {
  const auto rows = cut_of_part(q, parts);
  if (!rows) return {};
  return {{{ShardPlacement::split(0, each_of(*rows, parts))}, ShardPlacement::split(0, *rows)}};
}
std::vector<ShardStrategy> shard_all_gather(const ShardQuery& q) {
  return with_columns(q, shard_gathered(q, q.attrs.as<CollectiveAttrs>().ranks));
}
std::vector<ShardStrategy> shard_reduce_scatter(const ShardQuery& q) {
  return with_columns(q, shard_scattered(q, q.attrs.as<CollectiveAttrs>().ranks));
}
std::vector<ShardStrategy> shard_all_to_all(const ShardQuery& q) {
  const std::int64_t parts = q.attrs.as<CollectiveAttrs>().ranks;
  const auto rows = cut_of_part(q, parts);
  if (!rows) return with_columns(q, {});
  const ShardPlacement each = ShardPlacement::split(0, each_of(*rows, parts));
  return with_columns(q, {{{each}, each}});
}
std::vector<ShardStrategy> shard_join_columns(const ShardQuery& q) {
  return shard_scattered(q, q.attrs.as<CutAttrs>().ranks);
}
std::vector<ShardStrategy> shard_split_columns(const ShardQuery& q) {
  return shard_gathered(q, q.attrs.as<CutAttrs>().ranks);
}
std::vector<ShardStrategy> shard_permuted(const ShardQuery& q) { return with_columns(q, {}); }

CollectiveAttrs with_copied(const VjpContext& c, bool copied) {
  CollectiveAttrs attrs = c.attrs().as<CollectiveAttrs>();
  attrs.copied = copied;
  return attrs;
}
void vjp_copy_to_ranks(VjpContext& c) { c.emit(Op::all_reduce, {c.grad_output(0)}, {0}, c.attrs()); }
void vjp_share_rows(VjpContext& c) { c.emit(Op::all_reduce_rows, {c.grad_output(0)}, {0}, c.attrs()); }
// The gradient of a sum of the ranks' values is the gradient of each of them.
void vjp_keep_on_first_rank(VjpContext& c) { c.emit(Op::copy_to_ranks, {c.grad_output(0)}, {0}, c.attrs()); }
void vjp_propagate(VjpContext& c) { c.propagate_grad(0, c.grad_output(0)); }
void vjp_take_rows(VjpContext& c) { c.emit(Op::all_gather, {c.grad_output(0)}, {0}, with_copied(c, false)); }
void vjp_all_gather(VjpContext& c) {
  const bool copied = c.attrs().as<CollectiveAttrs>().copied;
  c.emit(copied ? Op::reduce_scatter : Op::take_rows, {c.grad_output(0)}, {0}, with_copied(c, false));
}
void vjp_reduce_scatter(VjpContext& c) {
  c.emit(Op::all_gather, {c.grad_output(0)}, {0}, with_copied(c, false));
}
void vjp_all_to_all(VjpContext& c) { c.emit(Op::all_to_all, {c.grad_output(0)}, {0}, c.attrs()); }

Status launch_no_collective(const OpCall&, Backend&, Stream&) {
  return Status::error(Code::internal,
                       "a collective has no kernel; the executor of the program must queue it");
}
Status launch_copy(const OpCall& c, Backend& backend, Stream& stream) {
  if (accumulates(c, 0)) return kernels::add_async(backend, stream, {c.out[0], c.in[0], c.out[0]});
  if (c.out[0].data == c.in[0].data) return {};
  return backend.copy_async({c.out[0].data, c.out[0].bytes()}, {c.in[0].data, c.in[0].bytes()}, stream);
}
Status launch_keep_on_first_rank(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::scale_async(backend, stream,
                              {c.in[0], c.out[0], c.attrs.as<CollectiveAttrs>().rank == 0 ? 1.0f : 0.0f});
}
Status launch_take_rows(const OpCall& c, Backend& backend, Stream& stream) {
  const std::size_t bytes = c.out[0].bytes();
  return backend.copy_async(
      {c.out[0].data, bytes},
      {c.in[0].data + static_cast<std::size_t>(c.attrs.as<CollectiveAttrs>().rank) * bytes, bytes}, stream);
}

Specs infer_join_columns(In in, const Attrs& attrs) {
  const auto& a = attrs.as<CutAttrs>();
  if (!is_matrix(in[0]) || !a.cut.divides(a.ranks) || in[0]->shape.dim(0) % a.ranks != 0 ||
      in[0]->shape.dim(1) != a.cut.shard_extent(a.ranks))
    return mismatch(str("x [", a.ranks, " T, the columns of a rank], cut like ", to_string(a.cut)), in);
  return std::vector<OutputSpec>{{"y", {in[0]->shape.dim(0) / a.ranks, a.cut.extent()}, in[0]->dtype}};
}
Specs infer_split_columns(In in, const Attrs& attrs) {
  const auto& a = attrs.as<CutAttrs>();
  if (!is_matrix(in[0]) || !a.cut.divides(a.ranks) || in[0]->shape.dim(1) != a.cut.extent())
    return mismatch(str("x [T, ", a.cut.extent(), "], cut like ", to_string(a.cut)), in);
  return std::vector<OutputSpec>{
      {"y", {in[0]->shape.dim(0) * a.ranks, a.cut.shard_extent(a.ranks)}, in[0]->dtype}};
}
void vjp_join_columns(VjpContext& c) { c.emit(Op::split_columns, {c.grad_output(0)}, {0}, c.attrs()); }
void vjp_split_columns(VjpContext& c) { c.emit(Op::join_columns, {c.grad_output(0)}, {0}, c.attrs()); }

/// Copies between the whole matrix and the shards, which lie one after the other, run by run. Where ranks
/// have the same columns, they are neighbours.
Status copy_columns(const TensorView& whole, const TensorView& shards, const CutAttrs& a, bool joins,
                    Backend& backend, Stream& stream) {
  const std::int64_t rows = whole.shape.dim(0), columns = whole.shape.dim(1), own = shards.shape.dim(1);
  const auto view = [&](const TensorView& of, std::int64_t first, std::int64_t n) {
    return TensorView{of.data + static_cast<std::size_t>(first) * size_of(of.dtype), Shape{rows, n},
                      of.dtype};
  };
  std::vector<CutRun> before;
  for (int rank = 0; rank < a.ranks; ++rank) {
    std::vector<CutRun> runs = runs_of(a.cut, a.ranks, rank);
    for (const CutRun& run : runs) {
      const bool is_repeated = std::any_of(before.begin(), before.end(),
                                           [&](const CutRun& each) { return each.whole == run.whole; });
      const TensorView part = view(shards, rank * rows * own + run.shard, run.n),
                       of_whole = view(whole, run.whole, run.n);
      STRATA_TRY(
          kernels::cast_rows_async(backend, stream,
                                   joins ? kernels::CastRowsArgs{part, of_whole, own, columns, is_repeated}
                                         : kernels::CastRowsArgs{of_whole, part, columns, own}));
    }
    before = std::move(runs);
  }
  return {};
}
Status launch_join_columns(const OpCall& c, Backend& backend, Stream& stream) {
  return copy_columns(c.out[0], c.in[0], c.attrs.as<CutAttrs>(), true, backend, stream);
}
Status launch_split_columns(const OpCall& c, Backend& backend, Stream& stream) {
  return copy_columns(c.in[0], c.out[0], c.attrs.as<CutAttrs>(), false, backend, stream);
}

Specs infer_permuted(In in, const Attrs& attrs) {
  const auto& a = attrs.as<CutAttrs>();
  if (!has_rows(in[0], 1) || in[0]->shape.rank > 2 || !a.cut.divides(a.ranks) || a.cut.repeats(a.ranks) ||
      in[0]->shape.dim(0) != a.cut.extent())
    return mismatch(str("x [", a.cut.extent(), ", ...], cut like ", to_string(a.cut)), in);
  return infer_same(in, attrs);
}
void vjp_join_rows(VjpContext& c) { c.emit(Op::split_rows, {c.grad_output(0)}, {0}, c.attrs()); }
void vjp_split_rows(VjpContext& c) { c.emit(Op::join_rows, {c.grad_output(0)}, {0}, c.attrs()); }

/// Copies between the rows in order and those of rank 0, rank 1, ... one after the other.
Status copy_rows(const TensorView& in, const TensorView& out, const CutAttrs& a, bool joins, Backend& backend,
                 Stream& stream) {
  const std::int64_t own = in.shape.dim(0) / a.ranks;
  const std::size_t row = in.bytes() / static_cast<std::size_t>(in.shape.dim(0));
  for (int rank = 0; rank < a.ranks; ++rank)
    for (const CutRun& run : runs_of(a.cut, a.ranks, rank)) {
      const std::size_t shards = static_cast<std::size_t>(rank * own + run.shard) * row,
                        whole = static_cast<std::size_t>(run.whole) * row,
                        bytes = static_cast<std::size_t>(run.n) * row;
      STRATA_TRY(backend.copy_async({out.data + (joins ? whole : shards), bytes},
                                    {in.data + (joins ? shards : whole), bytes}, stream));
    }
  return {};
}
Status launch_join_rows(const OpCall& c, Backend& backend, Stream& stream) {
  return copy_rows(c.in[0], c.out[0], c.attrs.as<CutAttrs>(), true, backend, stream);
}
Status launch_split_rows(const OpCall& c, Backend& backend, Stream& stream) {
  return copy_rows(c.in[0], c.out[0], c.attrs.as<CutAttrs>(), false, backend, stream);
}

constexpr OpDef collective(Specs (&rule)(In, const Attrs&), void (*vjp)(VjpContext&), InPlace in_place = {},
                           std::vector<ShardStrategy> (*shard)(const ShardQuery&) = nullptr) {
  return {.kind = OpKind::collective,
          .n_in = 1,
          .infer_outputs = rule,
          .vjp = vjp,
          .in_place = in_place,
          .flops = no_flops,
          .launch = launch_no_collective,
          .adds_to_gradients = false,
          .shard = shard};
}

}  // namespace

constinit const OpDef detail::op_defs::copy_to_ranks = {
    .n_in = 1,
    .infer_outputs = infer_same,
    .vjp = vjp_copy_to_ranks,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_copy,
    .is_identity = true,
    .shard = shard_elementwise,
};
constinit const OpDef detail::op_defs::keep_on_first_rank = {
    .n_in = 1,
    .infer_outputs = infer_same,
    .vjp = vjp_keep_on_first_rank,
    .flops = no_flops,
    .launch = launch_keep_on_first_rank,
    .adds_to_gradients = false,
    .shard = shard_elementwise,
};
constinit const OpDef detail::op_defs::take_rows = {
    .n_in = 1,
    .infer_outputs = infer_scattered,
    .vjp = vjp_take_rows,
    .flops = no_flops,
    .launch = launch_take_rows,
    .adds_to_gradients = false,
    .shard = shard_reduce_scatter,
};
constinit const OpDef detail::op_defs::share_rows = {
    .n_in = 1,
    .infer_outputs = infer_shared,
    .vjp = vjp_share_rows,
    .in_place = {.out = 0, .in = 0},
    .flops = no_flops,
    .launch = launch_copy,
    .is_identity = true,
};
constinit const OpDef detail::op_defs::all_reduce_rows =
    collective(infer_shared, nullptr, {.out = 0, .in = 0});
constinit const OpDef detail::op_defs::all_reduce =
    collective(infer_same, vjp_propagate, {.out = 0, .in = 0}, shard_elementwise);
constinit const OpDef detail::op_defs::all_gather =
    collective(infer_gathered, vjp_all_gather, {}, shard_all_gather);
constinit const OpDef detail::op_defs::reduce_scatter =
    collective(infer_scattered, vjp_reduce_scatter, {}, shard_reduce_scatter);
constinit const OpDef detail::op_defs::all_to_all =
    collective(infer_exchanged, vjp_all_to_all, {}, shard_all_to_all);
constinit const OpDef detail::op_defs::join_rows = {
    .n_in = 1,
    .infer_outputs = infer_permuted,
    .vjp = vjp_join_rows,
    .flops = no_flops,
    .launch = launch_join_rows,
    .adds_to_gradients = false,
    .shard = shard_permuted,
};
constinit const OpDef detail::op_defs::split_rows = {
    .n_in = 1,
    .infer_outputs = infer_permuted,
    .vjp = vjp_split_rows,
    .flops = no_flops,
    .launch = launch_split_rows,
    .adds_to_gradients = false,
    .shard = shard_permuted,
};
constinit const OpDef detail::op_defs::join_columns = {
    .n_in = 1,
    .infer_outputs = infer_join_columns,
    .vjp = vjp_join_columns,
    .flops = no_flops,
    .launch = launch_join_columns,
    .adds_to_gradients = false,
    .shard = shard_join_columns,
};
constinit const OpDef detail::op_defs::split_columns = {
    .n_in = 1,
    .infer_outputs = infer_split_columns,
    .vjp = vjp_split_columns,
    .flops = no_flops,
    .launch = launch_split_columns,
    .adds_to_gradients = false,
    .shard = shard_split_columns,
};

}  // namespace strata
