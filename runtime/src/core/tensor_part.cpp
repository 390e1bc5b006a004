#include <strata/runtime/tensor_part.h>

#include <strata/runtime/assert.h>

namespace strata {

TensorPart TensorPart::all_of(const Shape& shape) {
  STRATA_ASSERT(shape.rank >= 1 && shape.rank <= 3, "a tensor of ", shape.rank, " dimensions is not shared");
  TensorPart part;
  part.whole = shape;
  part.rows = {{0, 0, shape.dim(0)}};
  if (shape.rank > 1) part.columns = {{0, 0, row_length(shape)}};
  return part;
}

namespace {

std::vector<PartRun> shard_of(const std::vector<PartRun>& runs, const Cut& by, int ranks, int rank) {
  std::vector<PartRun> shard;
  const std::vector<CutRun> wanted = runs_of(by, ranks, rank);
  for (std::size_t s = 0; s < wanted.size(); ++s) {
    const CutRun& want = wanted[s];
    const std::int64_t units = by.segment[s % static_cast<std::size_t>(by.n)].units;
    const bool is_first = units >= ranks || rank % (ranks / units) == 0;
    for (const PartRun& run : runs) {
      const std::int64_t begin = std::max(run.own, want.whole),
                         end = std::min(run.own + run.n, want.whole + want.n);
      if (begin >= end) continue;
      const std::int64_t own = want.shard + begin - want.whole, whole = run.whole + begin - run.own;
      const bool counts = run.counts && is_first;
      if (!shard.empty() && shard.back().counts == counts && shard.back().whole + shard.back().n == whole)
        shard.back().n += end - begin;
      else
        shard.push_back({whole, own, end - begin, counts});
    }
  }
  return shard;
}

}  // namespace

void TensorPart::cut(int dim, const Cut& by, int ranks, int rank) {
  std::vector<PartRun>& runs = dim == 0 ? rows : columns;
  STRATA_ASSERT(by.extent() == extent(runs) && (dim == 0 || whole.rank == 2), to_string(by), " does not cut ",
                extent(runs), " of dimension ", dim);
  runs = shard_of(runs, by, ranks, rank);
}

void TensorPart::replicate(int rank) {
  if (rank == 0) return;
  for (PartRun& run : rows) run.counts = false;
}

Shape TensorPart::shape() const {
  Shape shape = whole;
  shape.dims[0] = is_elsewhere ? 0 : extent(rows);
  if (whole.rank == 2) shape.dims[1] = extent(columns);
  return shape;
}

// A run of columns that does not count would be a range in every row.
std::vector<TensorPart::Range> TensorPart::uncounted() const {
  const std::int64_t width = this->width();
  std::vector<Range> ranges;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  };
  for (const PartRun& run : rows) {
    if (!run.counts) {
      add(run.own * width, (run.own + run.n) * width);
      continue;
    }
    for (const PartRun& beside : columns)
      if (!beside.counts)
        for (std::int64_t row = run.own; row < run.own + run.n; ++row)
          add(row * width + beside.own, row * width + beside.own + beside.n);
  }
  return ranges;
}

}  // namespace strata
