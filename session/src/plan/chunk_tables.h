#pragma once

#include <cstdint>
#include <vector>

#include <strata/session/state_plan.h>

namespace strata::detail {

/// A piece of a tensor in a chunk: the work of one task in a pass over the chunk. It has at most kBlockElems
/// elements and a whole number of norm partials, except for a tensor's last one, so that splitting never
/// changes a sum.
struct TensorBlock {
  static constexpr std::int64_t kBlockElems = 65536;
  std::int64_t offset = 0;  ///< in elements, from the start of the chunk
  std::int64_t n = 0;
  std::int64_t first_partial = 0;  ///< index of its first norm partial
  std::int64_t at = 0;             ///< in elements, from the start of the tensor
  std::int32_t tensor = 0;         ///< index into the layout's tensors
};

/// For each trained chunk the blocks of its tensors, and for each such tensor the place of its norm partials.
/// Partials are numbered in the order in which the program declares its parameters, so the tree of the norm
/// does not depend on chunks.
struct ChunkTables {
  std::vector<std::vector<TensorBlock>> blocks;       ///< by chunk
  std::vector<std::int64_t> first_partial_of_tensor;  ///< by tensor of the layout
  std::int64_t n_partials = 0;
};
ChunkTables chunk_tables(const TensorTable& tensors, const ChunkLayout& layout);
/// Returns ChunkTables::n_partials, which is the same for every layout.
std::int64_t count_norm_partials(const TensorTable& tensors);

}  // namespace strata::detail
