#include "trainer/accumulated_gradients.h"

#include <algorithm>
#include <cmath>

#include <strata/simd/gradient.h>
#include <strata/simd/norm.h>

#include "plan/chunk_tables.h"

namespace strata::detail {

AccumulatedGradients::AccumulatedGradients(StateContext& context)
    : context_(context),
      present_(context.plan().tensors.specs.size()),
      is_written_(context.plan().layout.n_chunks()) {
  std::fill_n(context.norm_partials(), context.tables().n_partials, 0.0);
}

std::span<double> AccumulatedGradients::partials_of(std::int32_t tensor) const {
  const auto i = static_cast<std::size_t>(tensor);
  const std::int64_t n = simd::norm_partial_count(context_.plan().tensors.specs[i].n_elems);
  return {context_.norm_partials() + context_.tables().first_partial_of_tensor[i],
          static_cast<std::size_t>(n)};
}

Status AccumulatedGradients::add(std::int32_t tensor, const std::byte* gradient, DType dtype) {
  const ChunkId chunk = context_.plan().layout.slice(tensor).chunk;
  const PayloadKey key{chunk, Payload::accum};
  Stream& stream = context_.streams().cpu;
  const bool is_first = !has(tensor);
  STRATA_TRY_ASSIGN(const ChunkPin pin,
                    context_.chunks().pin(key, Tier::pinned,
                                          is_written_[chunk] ? Intent::update : Intent::overwrite, stream));
  STRATA_TRY(context_.backend().synchronize(stream));
  STRATA_TRY(context_.backend().host_access({pin.view().data, pin.view().bytes, true}));
  auto* const sums = reinterpret_cast<float*>(pin.view().data);
  const std::vector<TensorBlock>& blocks = context_.tables().blocks[chunk];
  const auto first = std::find_if(blocks.begin(), blocks.end(),
                                  [&](const TensorBlock& block) { return block.tensor == tensor; });
  const auto end =
      std::find_if(first, blocks.end(), [&](const TensorBlock& block) { return block.tensor != tensor; });
  context_.pool().parallel_for(end - first, [&](std::int64_t i) {
    const TensorBlock& block = first[i];
    simd::accumulate({sums + block.offset, static_cast<std::size_t>(block.n)}, dtype,
                     gradient + static_cast<std::size_t>(block.at) * size_of(dtype), is_first);
    simd::square_sum_partials(DType::f32, sums + block.offset, block.n,
                              context_.norm_partials() + block.first_partial);
  });
  is_written_[chunk] = true;
  present_[static_cast<std::size_t>(tensor)] = true;
  return {};
}

double AccumulatedGradients::square_sum(std::int32_t tensor) const {
  return has(tensor) ? simd::tree_sum(partials_of(tensor)) : 0;
}

double AccumulatedGradients::norm() const {
  return std::sqrt(simd::tree_sum(std::span<const double>(
      context_.norm_partials(), static_cast<std::size_t>(context_.tables().n_partials))));
}

void AccumulatedGradients::clear_norm(std::int32_t tensor) {
  const std::span<double> partials = partials_of(tensor);
  std::fill(partials.begin(), partials.end(), 0.0);
}

void AccumulatedGradients::clear_norms(ChunkId chunk) {
  for (const Slice& slice : context_.plan().layout.chunk(chunk).slices)
    if (has(slice.tensor)) clear_norm(slice.tensor);
}

void AccumulatedGradients::forget(std::int32_t tensor) {
  if (!has(tensor)) return;
  present_[static_cast<std::size_t>(tensor)] = false;
  clear_norm(tensor);
}

Status AccumulatedGradients::drop(ChunkId chunk) {
  if (!is_written_[chunk]) return {};
  for (const Slice& slice : context_.plan().layout.chunk(chunk).slices) forget(slice.tensor);
  is_written_[chunk] = false;
  return context_.chunks().drop({chunk, Payload::accum});
}

void AccumulatedGradients::clear() noexcept {
  for (ChunkId chunk = 0; chunk < is_written_.size(); ++chunk) (void)drop(chunk);
}

}  // namespace strata::detail
