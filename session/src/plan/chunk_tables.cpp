#include "plan/chunk_tables.h"

#include <algorithm>

#include <strata/cpuopt/norm.h>

namespace strata::detail {

namespace {

// Adds the blocks of the elements of `slice` that are in `range`.
void add_blocks(const Slice& slice, const ElemRange& range, std::int64_t first_partial, std::int32_t tensor,
                std::vector<TensorBlock>& blocks) {
  const std::int64_t end = std::min(slice.n_elems, range.end - slice.offset);
  for (std::int64_t at = std::max<std::int64_t>(0, range.begin - slice.offset); at < end;
       at += TensorBlock::kBlockElems)
    blocks.push_back({slice.offset + at - range.begin, std::min(TensorBlock::kBlockElems, end - at),
                      first_partial + at / cpuopt::kNormPartialElems, at, tensor});
}

void number_by_chunk(const TensorTable& tensors, const ChunkLayout& layout, ChunkTables& tables) {
  tables.first_in_chunk.resize(tensors.specs.size());
  tables.before_chunk.assign(layout.n_chunks() + 1, 0);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
    std::int64_t n = 0;
    for (const std::int32_t tensor : layout.chunk(chunk).tensors) {
      const LayoutTensor& spec = tensors.specs[static_cast<std::size_t>(tensor)];
      tables.first_in_chunk[static_cast<std::size_t>(tensor)] = n;
      if (spec.group.trainable) n += cpuopt::norm_partial_count(spec.n_elems);
    }
    tables.before_chunk[chunk + 1] = tables.before_chunk[chunk] + n;
  }
}

}  // namespace

ChunkTables chunk_tables(const TensorTable& tensors, const ChunkLayout& layout) {
  const Sharding& sharding = layout.sharding();
  ChunkTables tables;
  tables.blocks.resize(layout.n_chunks());
  if (sharding.ranks > 1 && sharding.sums_locally) tables.whole.resize(layout.n_chunks());
  if (sharding.ranks > sharding.shards) tables.part.resize(layout.n_chunks());
  tables.first_partial_of_tensor.resize(tensors.specs.size());
  for (std::size_t param = 0; param < tensors.tensor_of_param.size(); ++param) {
    const auto tensor = tensors.tensor_of_param[param];
    if (!tensors.specs[static_cast<std::size_t>(tensor)].group.trainable) continue;
    const Slice& slice = layout.slice(tensor);
    tables.first_partial_of_tensor[static_cast<std::size_t>(tensor)] = tables.n_partials;
    const auto add = [&](ChunkTables::Blocks& blocks, const ElemRange& range) {
      if (!blocks.empty()) add_blocks(slice, range, tables.n_partials, tensor, blocks[slice.chunk]);
    };
    add(tables.blocks, layout.range(slice.chunk, Payload::param));
    add(tables.whole, {0, layout.chunk(slice.chunk).n_elems});
    add(tables.part, layout.summed(slice.chunk));
    tables.n_partials += cpuopt::norm_partial_count(slice.n_elems);
  }
  number_by_chunk(tensors, layout, tables);
  return tables;
}

std::int64_t count_norm_partials(const TensorTable& tensors) {
  std::int64_t n = 0;
  for (const LayoutTensor& tensor : tensors.specs)
    if (tensor.group.trainable) n += cpuopt::norm_partial_count(tensor.n_elems);
  return n;
}

}  // namespace strata::detail
