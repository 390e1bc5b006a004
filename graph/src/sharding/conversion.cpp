#include "sharding/conversion.h"

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>

namespace strata::detail {
namespace {

using Kind = ShardPlacement::Kind;
using Steps = std::vector<ConversionStep>;

bool is_shared_out(const ShardPlacement& at, std::int64_t extent, int ranks) {
  return at.cut.extent() == extent && at.cut.divides(ranks) && !at.cut.repeats(ranks) &&
         !at.cut.has_remainder;
}
bool is_rows(const ShardPlacement& at, const Shape& whole, int ranks) {
  return at.dim == 0 && whole.rank <= 2 && is_shared_out(at, whole.dim(0), ranks);
}
bool is_columns(const ShardPlacement& at, const Shape& whole, int ranks) {
  return at.dim == 1 && whole.rank == 2 && is_shared_out(at, whole.dim(1), ranks);
}
/// The same where several ranks may get a column.
bool may_be_columns(const ShardPlacement& to, const Shape& whole, int ranks) {
  return to.dim == 1 && whole.rank == 2 && to.cut.extent() == whole.dim(1) && to.cut.divides(ranks) &&
         !to.cut.has_remainder;
}

/// Columns of which some ranks have one more than others.
bool are_unequal_columns(const ShardPlacement& at, const Shape& whole, int ranks) {
  return at.dim == 1 && whole.rank == 2 && at.cut.has_remainder && at.cut.extent() == whole.dim(1) &&
         at.cut.divides(ranks) && !at.cut.repeats(ranks);
}

/// The collectives of rows, which need a local copy before or after them where columns are split, or where
/// the rows of a rank do not follow each other.
struct Ways {
  const Shape& whole;
  const ShardAxis& axis;
  CollectiveAttrs attrs{};

  bool follow_each_other(const ShardPlacement& rows) const { return rows.cut == Cut::even(whole.dim(0)); }
  ConversionStep local(Op op, const Cut& cut) const { return {op, CutAttrs{cut, axis.ranks}}; }
  void split_rows(const ShardPlacement& to, Steps& steps) const {
    if (!follow_each_other(to)) steps.push_back(local(Op::split_rows, to.cut));
  }
  void join_rows(const ShardPlacement& from, Steps& steps) const {
    if (!follow_each_other(from)) steps.push_back(local(Op::join_rows, from.cut));
  }

  ConversionStep own(Op op, const Cut& cut) const { return {op, CutAttrs{cut, axis.ranks, axis.rank}}; }
  std::optional<Steps> from_split(const ShardPlacement& from, Op collective, bool copied) const {
    if (are_unequal_columns(from, whole, axis.ranks)) {
      Steps steps{own(Op::put_columns, from.cut), {Op::all_reduce, attrs}};
      if (copied) steps.push_back({Op::copy_to_ranks, attrs});
      return steps;
    }
    CollectiveAttrs with = attrs;
    with.copied = copied;
    Steps steps{{collective, with}};
    if (is_rows(from, whole, axis.ranks))
      join_rows(from, steps);
    else if (is_columns(from, whole, axis.ranks))
      steps.push_back(local(Op::join_columns, from.cut));
    else
      return std::nullopt;
    return steps;
  }
  std::optional<Steps> to_split(const ShardPlacement& to, Op collective) const {
    Steps steps;
    if (are_unequal_columns(to, whole, axis.ranks)) {
      if (collective == Op::reduce_scatter) steps.push_back({Op::all_reduce, attrs});
      steps.push_back({Op::copy_to_ranks, attrs});
      steps.push_back(own(Op::get_columns, to.cut));
      return steps;
    }
    if (is_rows(to, whole, axis.ranks))
      split_rows(to, steps);
    else if (may_be_columns(to, whole, axis.ranks))
      steps.push_back(local(Op::split_columns, to.cut));
    else
      return std::nullopt;
    steps.push_back({collective, attrs});
    return steps;
  }
  std::optional<Steps> between_splits(const ShardPlacement& from, const ShardPlacement& to) const {
    Steps steps;
    if (is_rows(from, whole, axis.ranks) && are_unequal_columns(to, whole, axis.ranks)) {
      steps = *from_split(from, Op::all_gather, true);
      steps.push_back(own(Op::get_columns, to.cut));
      return steps;
    }
    if (are_unequal_columns(from, whole, axis.ranks) && is_rows(to, whole, axis.ranks)) {
      steps = *to_split(to, Op::reduce_scatter);
      steps.insert(steps.begin(), own(Op::put_columns, from.cut));
      return steps;
    }
    if (is_rows(from, whole, axis.ranks) && may_be_columns(to, whole, axis.ranks)) {
      steps = {local(Op::split_columns, to.cut), {Op::all_to_all, attrs}};
      join_rows(from, steps);
      return steps;
    }
    if (is_columns(from, whole, axis.ranks) && is_rows(to, whole, axis.ranks)) {
      split_rows(to, steps);
      steps.push_back({Op::all_to_all, attrs});
      steps.push_back(local(Op::join_columns, from.cut));
      return steps;
    }
    return std::nullopt;
  }
};

}  // namespace

std::optional<std::vector<ConversionStep>> conversion(const ShardPlacement& from, const ShardPlacement& to,
                                                      const Shape& whole, const ShardAxis& axis) {
  const Ways ways{whole, axis, {.axis = axis.number, .ranks = axis.ranks, .rank = axis.rank}};
  if (from == to) return Steps{};
  switch (from.kind) {
    case Kind::replicated:
      if (to.kind == Kind::copied) return Steps{{Op::copy_to_ranks, ways.attrs}};
      if (to.kind == Kind::partial) return Steps{{Op::keep_on_first_rank, ways.attrs}};
      return ways.to_split(to, Op::take_rows);
    case Kind::copied:
      return std::nullopt;
    case Kind::split:
      if (to.kind == Kind::replicated) return ways.from_split(from, Op::all_gather, false);
      if (to.kind == Kind::copied) return ways.from_split(from, Op::all_gather, true);
      if (to.kind == Kind::split) return ways.between_splits(from, to);
      return std::nullopt;
    case Kind::partial:
      if (to.kind == Kind::replicated) return Steps{{Op::all_reduce, ways.attrs}};
      if (to.kind == Kind::copied)
        return Steps{{Op::all_reduce, ways.attrs}, {Op::copy_to_ranks, ways.attrs}};
      return ways.to_split(to, Op::reduce_scatter);
  }
  return std::nullopt;
}

double bytes_of(const std::vector<ConversionStep>& steps, const ValueInfo& whole, bool has_grad, int ranks) {
  double part = static_cast<double>(whole.bytes()) * (ranks - 1) / ranks;
  double backward = has_grad ? part : 0;
  double bytes = 0;
  for (const ConversionStep& step : steps) switch (step.op) {
      case Op::split_columns: {
        const Cut& cut = step.attrs.as<CutAttrs>().cut;
        const double copies =
            static_cast<double>(cut.shard_extent(ranks) * ranks) / static_cast<double>(cut.extent());
        part *= copies;
        backward *= copies;
        break;
      }
      case Op::copy_to_ranks:
        bytes += 2 * backward;
        break;
      case Op::all_reduce:
        bytes += 2 * part;
        break;
      case Op::take_rows:
        bytes += backward;
        break;
      case Op::all_gather:
        bytes += part + (step.attrs.as<CollectiveAttrs>().copied ? backward : 0);
        break;
      case Op::reduce_scatter:
        bytes += part + backward;
        break;
      case Op::all_to_all:
        bytes += (part + backward) / ranks;
        break;
      default:
        break;
    }
  return bytes;
}

}  // namespace strata::detail
