#include "chunk_tables.h"

#include <algorithm>

#include <strata/cpuopt/norm.h>

namespace strata {

ChunkTables chunk_tables(const TensorTable& tensors, const ChunkLayout& layout) {
  ChunkTables tables;
  tables.blocks.resize(layout.n_chunks());
  tables.leaf_of_tensor.resize(tensors.specs.size());
  for (std::size_t param = 0; param < tensors.tensor_of_param.size(); ++param) {
    const auto tensor = tensors.tensor_of_param[param];
    if (!tensors.specs[static_cast<std::size_t>(tensor)].group.trainable) continue;
    const Slice& slice = layout.slice(tensor);
    tables.leaf_of_tensor[static_cast<std::size_t>(tensor)] = tables.n_leaves;
    for (std::int64_t at = 0; at < slice.n_elems; at += Block::kBlockElems)
      tables.blocks[slice.chunk].push_back({slice.offset + at,
                                            std::min(Block::kBlockElems, slice.n_elems - at),
                                            tables.n_leaves + at / cpuopt::kNormPartialElems, at, tensor});
    tables.n_leaves += cpuopt::norm_partial_count(slice.n_elems);
  }
  return tables;
}

std::int64_t count_leaves(const TensorTable& tensors) {
  std::int64_t n = 0;
  for (const LayoutTensor& tensor : tensors.specs)
    if (tensor.group.trainable) n += cpuopt::norm_partial_count(tensor.n_elems);
  return n;
}

}  // namespace strata
