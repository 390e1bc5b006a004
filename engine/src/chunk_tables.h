#pragma once

#include <cstdint>
#include <vector>

#include <strata/engine/engine.h>

namespace strata {

/// A piece of a tensor in a chunk: what one task of a pass over the chunk handles. At most kBlockElems long
/// and a whole number of norm partials but for a tensor's last, so that splitting never changes a sum.
struct TensorBlock {
  static constexpr std::int64_t kBlockElems = 65536;
  std::int64_t offset = 0;  ///< elements, in the chunk
  std::int64_t n = 0;
  std::int64_t first_partial = 0;  ///< where its norm partials begin
  std::int64_t at = 0;             ///< elements, in the tensor
  std::int32_t tensor = 0;         ///< of the layout
};

/// Per chunk that is trained, the blocks of its tensors; and where each such tensor's norm partials are.
/// Partials are numbered in the order in which the program declares its parameters, so the norm's tree knows
/// nothing of chunks.
struct ChunkTables {
  std::vector<std::vector<TensorBlock>> blocks;       ///< by chunk
  std::vector<std::int64_t> first_partial_of_tensor;  ///< by tensor of the layout
  std::int64_t n_partials = 0;
};
ChunkTables chunk_tables(const TensorTable& tensors, const ChunkLayout& layout);
/// ChunkTables::n_partials, which no layout changes.
std::int64_t count_norm_partials(const TensorTable& tensors);

}  // namespace strata
