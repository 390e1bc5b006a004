#include "plan/chunk_tables.h"

#include <algorithm>

#include <strata/cpuopt/norm.h>

namespace strata::detail {

ChunkTables chunk_tables(const TensorTable& tensors, const ChunkLayout& layout) {
  ChunkTables tables;
  tables.blocks.resize(layout.n_chunks());
  tables.first_partial_of_tensor.resize(tensors.specs.size());
  for (std::size_t param = 0; param < tensors.tensor_of_param.size(); ++param) {
    const auto tensor = tensors.tensor_of_param[param];
    if (!tensors.specs[static_cast<std::size_t>(tensor)].group.trainable) continue;
    const Slice& slice = layout.slice(tensor);
    tables.first_partial_of_tensor[static_cast<std::size_t>(tensor)] = tables.n_partials;
    for (std::int64_t at = 0; at < slice.n_elems; at += TensorBlock::kBlockElems)
      tables.blocks[slice.chunk].push_back({slice.offset + at,
                                            std::min(TensorBlock::kBlockElems, slice.n_elems - at),
                                            tables.n_partials + at / cpuopt::kNormPartialElems, at, tensor});
    tables.n_partials += cpuopt::norm_partial_count(slice.n_elems);
  }
  return tables;
}

std::int64_t count_norm_partials(const TensorTable& tensors) {
  std::int64_t n = 0;
  for (const LayoutTensor& tensor : tensors.specs)
    if (tensor.group.trainable) n += cpuopt::norm_partial_count(tensor.n_elems);
  return n;
}

}  // namespace strata::detail
