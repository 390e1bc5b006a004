#pragma once

#include "recurrent/delta_backward.h"

/// The gated delta rule, or the state scan (scan_rows.h), on the rows of sequences, for a Unit
/// (delta_rows.h). The types of X and of its scratch choose the functions for the rows of a chunk.
namespace strata::kernels::detail {

/// A sequence of one key head. The window has the states before it, if `is_continued`, and after it.
template <class Unit, class X, class Scratch, class T>
STRATA_DEVICE_INLINE void forward_sequence(const Unit& unit, const DeltaSizes& d, const X& x,
                                           const Scratch& s, const DeltaWindow& window,
                                           const DeltaChunks& chunks, bool is_continued, bool folds_last,
                                           T* out, std::int64_t out_width) {
  for (std::int64_t row = 0; row < chunks.seq;) {
    const std::int64_t end = chunks.end_of(row);
    const DeltaSpan span = {0, end - row, chunks.begins_document(row) && !(row == 0 && is_continued)};
    const bool folds = end < chunks.seq ? !chunks.begins_document(end) : folds_last;
    forward_rows(unit, d, x.from(row), s, window, span, folds, false, out + row * out_width, out_width);
    row = end;
  }
}

/// One row of a batch: rows that name a sequence and their position in it.
struct CachedRows {
  const std::int32_t *positions, *slots;
  std::int64_t count;

  /// The number of rows from `row` on that are of one chunk.
  STRATA_HD std::int64_t run_of(std::int64_t row) const {
    std::int64_t n = 1;
    while (row + n < count && slots[row + n] == slots[row] && positions[row + n] == positions[row] + n &&
           positions[row + n] % kDeltaChunk != 0)
      ++n;
    return n;
  }
};

/// The rows of one key head, whose windows are `state_row` floats apart from one sequence to the next.
template <class Unit, class X, class Scratch, class T>
STRATA_DEVICE_INLINE void cached_rows(const Unit& unit, const DeltaSizes& d, const X& x, const Scratch& s,
                                      const CachedRows& rows, float* state, std::int64_t state_row, T* out,
                                      std::int64_t out_width) {
  for (std::int64_t row = 0; row < rows.count;) {
    T* const to = out + row * out_width;
    if (rows.slots[row] < 0) {
      unit.rows(1, [&](std::int64_t, const auto& lanes) {
        lanes.for_each(d.group * d.dv, [&](std::int64_t c) { to[c] = from_f32<T>(0.0f); });
      });
      ++row;
      continue;
    }
    const std::int64_t position = rows.positions[row], first = position % kDeltaChunk, n = rows.run_of(row);
    const bool folds = first + n == kDeltaChunk;
    forward_rows(unit, d, x.from(row), s, {state + rows.slots[row] * state_row, d.dk, d.dv},
                 {first, first + n, position < kDeltaChunk}, folds, !folds, to, out_width);
    row += n;
  }
}

/// The states at the borders of chunks that continue a document: that before row r is number r / 64 - 1 of
/// `borders` [group, dk, dv].
template <class Unit, class X, class Scratch>
STRATA_DEVICE_INLINE void find_borders(const Unit& unit, const DeltaSizes& d, const X& x, const Scratch& s,
                                       const DeltaWindow& window, const DeltaChunks& chunks, float* borders) {
  const float* before = borders;  // not read before a border is written
  for (std::int64_t row = 0; row < chunks.seq;) {
    const std::int64_t end = chunks.end_of(row);
    if (end < chunks.seq && !chunks.begins_document(end)) {
      float* const after = borders + (end / kDeltaChunk - 1) * d.group * d.dk * d.dv;
      border_rows(unit, d, x.from(row), s, window, {0, end - row, chunks.begins_document(row)}, before,
                  after);
      before = after;
    }
    row = end;
  }
}

template <class Unit, class X, class Gradients, class Scratch, class T>
STRATA_DEVICE_INLINE void backward_sequence(const Unit& unit, const DeltaSizes& d, const X& x,
                                            const Gradients& to, const T* dout, std::int64_t out_width,
                                            const Scratch& s, const DeltaWindow& window,
                                            const DeltaChunks& chunks, float* borders) {
  const std::int64_t floats = d.group * d.dk * d.dv;
  find_borders(unit, d, x, s.forward, window, chunks, borders);
  for (std::int64_t end = chunks.seq; end > 0;) {
    const std::int64_t row = chunks.begin_of(end - 1);
    const bool begins = chunks.begins_document(row);
    const BackwardRows<X, Gradients, Scratch, T> rows = {d,
                                                         x.from(row),
                                                         to.from(row),
                                                         dout + row * out_width,
                                                         out_width,
                                                         s,
                                                         window,
                                                         end - row,
                                                         begins,
                                                         end == chunks.seq || chunks.begins_document(end)};
    backward_rows(unit, rows, begins ? borders : borders + (row / kDeltaChunk - 1) * floats);
    end = row;
  }
}

}  // namespace strata::kernels::detail
