#pragma once

#include <algorithm>
#include <cstddef>

#include <strata/parallel/collective.h>

#include "reduce.h"

namespace strata::detail {

/// How a reduction moves: the source is divided into a part for each rank, which that rank reduces over all
/// ranks, and a part moves in pieces, so that the inbox for those of the others is small.
struct ReductionPieces {
  const std::byte* source;
  BufferView into;  ///< the rank's part, reduced
  DType dtype;
  Reduction reduction;
  bool whole_elements;  ///< the parts may differ by an element
  std::size_t total_bytes;
  int rank, size;
  std::size_t piece_bytes;

  /// The part of the rank in the source of every rank.
  std::size_t begin(int of) const {
    return whole_elements ? part_begin(total_bytes, dtype, of, size)
                          : static_cast<std::size_t>(of) * into.bytes;
  }
  /// The bytes of a piece of the part of a rank; none if the part has ended before.
  std::size_t bytes(int of, std::size_t piece) const {
    const std::size_t part = begin(of + 1) - begin(of), from = std::min(part, piece * piece_bytes);
    return std::min(part - from, piece_bytes);
  }
  const std::byte* piece(int of, std::size_t number) const {
    return source + begin(of) + number * piece_bytes;
  }
  std::size_t n_pieces() const {
    std::size_t longest = 0;
    for (int of = 0; of < size; ++of) longest = std::max(longest, begin(of + 1) - begin(of));
    return (longest + piece_bytes - 1) / piece_bytes;
  }
  /// The largest piece of this rank's part, of which the inbox holds one or more of each other rank.
  std::size_t slot_bytes() const { return std::min(into.bytes, piece_bytes); }
};

/// The pieces of a reduce_scatter or an all_reduce, of which `rank` reduces its part in place.
inline ReductionPieces reduction_pieces(const Collective& call, int rank, int size, std::size_t piece_bytes) {
  if (call.kind == CollectiveKind::reduce_scatter)
    return {call.send.data,  call.receive, call.dtype, call.reduction, false,
            call.send.bytes, rank,         size,       piece_bytes};
  const std::size_t begin = part_begin(call.receive.bytes, call.dtype, rank, size),
                    end = part_begin(call.receive.bytes, call.dtype, rank + 1, size);
  return {call.receive.data,
          call.receive.part(begin, end - begin),
          call.dtype,
          call.reduction,
          true,
          call.receive.bytes,
          rank,
          size,
          piece_bytes};
}

}  // namespace strata::detail
