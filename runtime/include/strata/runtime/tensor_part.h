#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <strata/runtime/cut.h>
#include <strata/runtime/tensor_view.h>

namespace strata {

/// Rows, or columns, [whole, whole + n) of a tensor, which are [own, own + n) of a rank's part of it.
struct PartRun {
  std::int64_t whole = 0, own = 0, n = 0;
  /// Whether this rank counts them where every element of the tensor is to be counted once: of the ranks that
  /// have them, one does.
  bool counts = true;
  friend bool operator==(const PartRun&, const PartRun&) = default;
};

/// Which elements of a tensor a rank has: those of some rows and some columns. The elements of a vector are
/// its rows. A tensor of three dimensions has rows along the first and is cut there alone.
struct TensorPart {
  Shape whole = {};  ///< has rank 0 if the ranks do not share the tensor
  /// Both are in the order of `own`, without gaps there; a vector has no columns.
  std::vector<PartRun> rows, columns;
  /// Whether this rank has none of them: they are those of the same rank of another stage of a pipeline.
  bool is_elsewhere = false;

  static TensorPart all_of(const Shape& shape);
  bool is_shared() const noexcept { return whole.rank > 0; }
  /// Only the rank's shard of dimension `dim`, 0 or 1, of what was left is left.
  void cut(int dim, const Cut& by, int ranks, int rank);
  /// Every rank along an axis has what was left.
  void replicate(int rank);
  /// The shape of the part of the tensor that this rank has.
  Shape shape() const;
  /// Elements that are left, wherever they are.
  std::int64_t n_left() const noexcept { return extent(rows) * width(); }

  /// Calls `use(whole, own, n)` for runs of elements of the part's [begin, begin + n): they are elements
  /// [whole, whole + n) of the tensor and [own, own + n) of the part. In ascending order of `own`.
  template <class Use>
  void for_each_run(std::int64_t begin, std::int64_t n, const Use& use) const;
  /// The same for the runs that this rank counts.
  template <class Use>
  void for_each_counted_run(std::int64_t begin, std::int64_t n, const Use& use) const;
  /// The ranges [begin, end) of the part's elements that this rank does not count, in ascending order.
  struct Range {
    std::int64_t begin = 0, end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::vector<Range> uncounted() const;

  friend bool operator==(const TensorPart&, const TensorPart&) = default;

 private:
  /// Elements of a row of a tensor, and of those that are left of it.
  static std::int64_t row_length(const Shape& shape) noexcept {
    std::int64_t n = 1;
    for (int d = 1; d < shape.rank; ++d) n *= shape.dim(d);
    return n;
  }
  std::int64_t width() const noexcept { return whole.rank > 1 ? extent(columns) : 1; }
  template <class Use>
  void each_run(std::int64_t begin, std::int64_t n, const Use& use) const;
  static std::int64_t extent(const std::vector<PartRun>& runs) noexcept {
    return runs.empty() ? 0 : runs.back().own + runs.back().n;
  }
  /// The run that contains position `own`.
  static const PartRun& run_at(const std::vector<PartRun>& runs, std::int64_t own) {
    return *std::find_if(runs.begin(), runs.end(),
                         [own](const PartRun& run) { return own < run.own + run.n; });
  }
};

template <class Use>
void TensorPart::for_each_run(std::int64_t begin, std::int64_t n, const Use& use) const {
  each_run(begin, n, [&](std::int64_t at, std::int64_t own, std::int64_t len, bool) { use(at, own, len); });
}

template <class Use>
void TensorPart::for_each_counted_run(std::int64_t begin, std::int64_t n, const Use& use) const {
  each_run(begin, n, [&](std::int64_t at, std::int64_t own, std::int64_t len, bool counts) {
    if (counts) use(at, own, len);
  });
}

template <class Use>
void TensorPart::each_run(std::int64_t begin, std::int64_t n, const Use& use) const {
  const std::int64_t end = begin + n;
  const std::int64_t width = this->width(), stride = row_length(whole);
  // Columns of which some do not count are told apart.
  const bool has_all_columns = width == stride && columns.size() < 2;
  while (begin < end) {
    const std::int64_t row = begin / width, column = begin % width;
    const PartRun& rows_here = run_at(rows, row);
    std::int64_t at = (rows_here.whole + row - rows_here.own) * stride + column, len = 0;
    bool counts = rows_here.counts;
    if (has_all_columns) {
      len = (rows_here.own + rows_here.n) * width - begin;
    } else {
      const PartRun& columns_here = run_at(columns, column);
      at += columns_here.whole - columns_here.own;
      len = columns_here.own + columns_here.n - column;
      counts = counts && columns_here.counts;
    }
    len = std::min(len, end - begin);
    use(at, begin, len, counts);
    begin += len;
  }
}

}  // namespace strata
