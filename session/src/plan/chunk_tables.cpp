#include "plan/chunk_tables.h"

#include <algorithm>
#include <span>

#include <strata/simd/norm.h>

namespace strata::detail {

namespace {

// How the norm partials of a tensor are numbered: they begin at multiples of their size, and where elements
// that the rank counts meet others.
class PartialNumbers {
 public:
  PartialNumbers(const TensorTable& tensors, std::size_t tensor) : n_elems_(tensors.specs[tensor].n_elems) {
    if (tensors.parts.empty()) return;
    n_elems_ = tensors.parts[tensor].n_left();
    uncounted_ = tensors.parts[tensor].uncounted();
    for (const TensorPart::Range& range : uncounted_)
      for (const std::int64_t at : {range.begin, range.end})
        if (at % simd::kNormPartialElems != 0 && at < n_elems_) breaks_.push_back(at);
  }
  /// The number of the partial that contains element `at`, or begins there.
  std::int64_t index(std::int64_t at) const {
    return at / simd::kNormPartialElems +
           (std::upper_bound(breaks_.begin(), breaks_.end(), at) - breaks_.begin());
  }
  std::int64_t count() const {
    return simd::norm_partial_count(n_elems_) + static_cast<std::int64_t>(breaks_.size());
  }
  /// The end of a block that begins at `at`.
  std::int64_t block_end(std::int64_t at, std::int64_t end) const {
    const auto next = std::upper_bound(breaks_.begin(), breaks_.end(), at);
    if (next != breaks_.end()) end = std::min(end, *next);
    const std::int64_t into_partial = at % simd::kNormPartialElems;
    return std::min(
        end, at + (into_partial == 0 ? TensorBlock::kBlockElems : simd::kNormPartialElems - into_partial));
  }
  std::span<const TensorPart::Range> uncounted() const noexcept { return uncounted_; }
  std::int64_t end_index(std::int64_t end) const { return end == n_elems_ ? count() : index(end); }

 private:
  std::int64_t n_elems_;
  std::vector<TensorPart::Range> uncounted_;
  std::vector<std::int64_t> breaks_;  // that are no multiples
};

// The elements of its tensor that `slice` has in `range` of the chunk.
ElemRange elements_in(const Slice& slice, const ElemRange& range) {
  const std::int64_t begin = std::max<std::int64_t>(0, range.begin - slice.offset),
                     end = std::min(slice.n_elems, range.end - slice.offset);
  return {slice.first + begin, slice.first + end};
}

// Adds the blocks of the elements of `slice` that are in `range`.
void add_blocks(const Slice& slice, const ElemRange& range, std::int64_t first_partial,
                std::vector<TensorBlock>& blocks) {
  const auto [begin, end] = elements_in(slice, range);
  for (std::int64_t at = begin; at < end; at += TensorBlock::kBlockElems)
    blocks.push_back({slice.offset + at - slice.first - range.begin,
                      std::min(TensorBlock::kBlockElems, end - at),
                      first_partial + at / simd::kNormPartialElems, at, slice.tensor});
}

// The same, where no block covers more than one partial begins apart from multiples of their size.
void add_split_blocks(const Slice& slice, const ElemRange& range, std::int64_t first_partial,
                      const PartialNumbers& numbers, std::vector<TensorBlock>& blocks) {
  const auto [begin, end] = elements_in(slice, range);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t next = numbers.block_end(at, end);
    blocks.push_back({slice.offset + at - slice.first - range.begin, next - at,
                      first_partial + numbers.index(at), at, slice.tensor});
    at = next;
  }
}

void number_by_chunk(const TensorTable& tensors, const ChunkLayout& layout, ChunkTables& tables) {
  tables.first_in_chunk.resize(tensors.specs.size());
  tables.before_chunk.assign(layout.n_chunks() + 1, 0);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
    std::int64_t n = 0;
    for (const Slice& slice : layout.chunk(chunk).slices) {
      const auto tensor = static_cast<std::size_t>(slice.tensor);
      const PartialNumbers numbers(tensors, tensor);
      tables.first_in_chunk[tensor] = n;
      if (tensors.specs[tensor].group.trainable)
        n += numbers.end_index(slice.end()) - numbers.index(slice.first);
    }
    tables.before_chunk[chunk + 1] = tables.before_chunk[chunk] + n;
  }
}

// Numbers the norm partials of a trained tensor after those there are, and adds its blocks.
void add_tensor(const TensorTable& tensors, const ChunkLayout& layout, std::int32_t tensor,
                ChunkTables& tables) {
  const auto index = static_cast<std::size_t>(tensor);
  const PartialNumbers numbers(tensors, index);
  const std::int64_t first = tables.n_partials;
  tables.first_partial_of_tensor[index] = first;
  tables.n_partials += numbers.count();
  if (tensors.specs[index].is_elsewhere) {
    tables.uncounted.emplace_back(first, tables.n_partials);
    return;
  }
  for (const Slice& slice : layout.slices(tensor)) {
    const auto add = [&](ChunkTables::Blocks& blocks, const ElemRange& range) {
      if (!blocks.empty()) add_blocks(slice, range, first, blocks[slice.chunk]);
    };
    add(tables.blocks, layout.range(slice.chunk, Payload::param));
    add(tables.whole, {0, layout.chunk(slice.chunk).n_elems});
    if (!tables.part.empty())
      add_split_blocks(slice, layout.summed(slice.chunk), first, numbers, tables.part[slice.chunk]);
  }
  for (const TensorPart::Range& range : numbers.uncounted())
    tables.uncounted.emplace_back(first + numbers.index(range.begin), first + numbers.end_index(range.end));
}

}  // namespace

ChunkTables chunk_tables(const TensorTable& tensors, const ChunkLayout& layout, std::int32_t n_trainees) {
  const Sharding& sharding = layout.sharding();
  ChunkTables tables;
  tables.blocks.resize(layout.n_chunks());
  if (sharding.ranks > 1 && sharding.sums_locally) tables.whole.resize(layout.n_chunks());
  if (sharding.ranks > sharding.shards || !tensors.parts.empty()) tables.part.resize(layout.n_chunks());
  tables.first_partial_of_tensor.resize(tensors.specs.size());
  for (std::int32_t trainee = 0; trainee < n_trainees; ++trainee) {
    tables.first_partial_of_trainee.push_back(tables.n_partials);
    for (const std::int32_t tensor : tensors.tensor_of_param) {
      const GroupKey& group = tensors.specs[static_cast<std::size_t>(tensor)].group;
      if (group.trainable && group.trainee == trainee) add_tensor(tensors, layout, tensor, tables);
    }
  }
  tables.first_partial_of_trainee.push_back(tables.n_partials);
  number_by_chunk(tensors, layout, tables);
  return tables;
}

std::int64_t count_norm_partials(const TensorTable& tensors, std::size_t tensor) {
  return PartialNumbers(tensors, tensor).count();
}

std::int64_t count_norm_partials(const TensorTable& tensors) {
  std::int64_t n = 0;
  for (std::size_t t = 0; t < tensors.specs.size(); ++t)
    if (tensors.specs[t].group.trainable) n += count_norm_partials(tensors, t);
  return n;
}

}  // namespace strata::detail
