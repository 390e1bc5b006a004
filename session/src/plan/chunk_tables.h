#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <strata/session/state_plan.h>

namespace strata::detail {

/// A piece of a tensor in a range of a chunk: the work of one task in a pass over the range. It has at most
/// kBlockElems elements and a whole number of norm partials, except for a tensor's last one, so that
/// splitting never changes a sum.
struct TensorBlock {
  static constexpr std::int64_t kBlockElems = 65536;
  std::int64_t offset = 0;  ///< in elements, from the start of the range
  std::int64_t n = 0;
  std::int64_t first_partial = 0;  ///< index of its first norm partial
  std::int64_t at = 0;             ///< in elements, from the start of the tensor
  std::int32_t tensor = 0;         ///< index into the layout's tensors
};

/// For each trained chunk the blocks of its tensors, and for each such tensor the place of its norm partials.
/// Partials are numbered trainee by trainee, and those of one in the order in which the program declares its
/// parameters, so the tree of the norm does not depend on chunks. Ranges of different ranks meet between two
/// partials.
///
/// Where ranks share tensors of the model, a partial covers either elements that this rank counts or others
/// (TensorPart::uncounted), which partials of another rank cover.
struct ChunkTables {
  using Blocks = std::vector<std::vector<TensorBlock>>;  ///< indexed by chunk
  Blocks blocks;                                         ///< the blocks of the states that this rank holds
  Blocks whole;  ///< the blocks of the whole chunk; empty if that is the same, or if it is never worked on
  /// The blocks of the part of the gradient that this rank sums; empty if that is all of its states, and
  /// partials are not split.
  Blocks part;
  std::vector<std::int64_t> first_partial_of_tensor;  ///< indexed by tensor of the layout
  std::int64_t n_partials = 0;
  std::vector<std::int64_t> first_partial_of_trainee;  ///< and at the end n_partials
  /// The same partials numbered chunk by chunk, for sums that ranks exchange for one chunk: by tensor of the
  /// layout, its first one among those of its chunk, in which the tensor is whole; by chunk, how many are
  /// before it, and at the end all.
  std::vector<std::int64_t> first_in_chunk, before_chunk;
  /// Ranges [first, second) of partials of elements that other ranks count, in ascending order.
  std::vector<std::pair<std::int64_t, std::int64_t>> uncounted;

  /// The range that a rank's own micro-batches are summed over.
  const std::vector<TensorBlock>& accumulated(ChunkId chunk) const {
    return whole.empty() ? summed(chunk) : whole[chunk];
  }
  const std::vector<TensorBlock>& summed(ChunkId chunk) const {
    return part.empty() ? blocks[chunk] : part[chunk];
  }
};
ChunkTables chunk_tables(const TensorTable& tensors, const ChunkLayout& layout, std::int32_t n_trainees = 1);
/// Number of norm partials of a tensor.
std::int64_t count_norm_partials(const TensorTable& tensors, std::size_t tensor);
/// Returns ChunkTables::n_partials, which is the same for every layout.
std::int64_t count_norm_partials(const TensorTable& tensors);

}  // namespace strata::detail
