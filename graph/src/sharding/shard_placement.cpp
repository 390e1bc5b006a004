#include <strata/graph/shard_placement.h>

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata {

std::string to_string(const ShardPlacement& placement) {
  switch (placement.kind) {
    case ShardPlacement::Kind::replicated:
      return "replicated";
    case ShardPlacement::Kind::copied:
      return "copied";
    case ShardPlacement::Kind::partial:
      return "partial";
    case ShardPlacement::Kind::split:
      break;
  }
  return placement.cut.n == 0 ? str("split ", placement.dim)
                              : str("split ", placement.dim, " (", to_string(placement.cut), ")");
}

Cut ShardAxis::cut_of_rows(std::int64_t extent) const {
  const std::int64_t part = rows.extent() / std::max<std::int64_t>(1, rows.times);
  if (rows.n == 0 || extent % part != 0) return Cut::even(extent);
  Cut cut = rows;
  cut.times = extent / part;
  return cut;
}

bool ShardQuery::is_split(int i, int dim) const {
  const ShardPlacement* const is = placed[static_cast<std::size_t>(i)];
  return is != nullptr && is->is_split() && is->dim == dim && is->cut.n > 0;
}

Cut ShardQuery::cut_of(int i, int dim) const {
  const auto operand = static_cast<std::size_t>(i);
  if (is_split(i, dim)) return placed[operand]->cut;
  const std::int64_t extent = in[operand]->shape.dim(dim);
  return dim == 0 ? axis.cut_of_rows(extent) : Cut::even(extent);
}

Cut ShardQuery::common_cut(int dim) const {
  for (int i = 0; i < static_cast<int>(in.size()); ++i)
    if (is_split(i, dim)) return cut_of(i, dim);
  return dim == 1 && columns.n > 0 ? columns : cut_of(0, dim);
}

}  // namespace strata
