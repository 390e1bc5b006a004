#pragma once

#include <strata/session/state_context.h>

namespace strata::detail {

/// The gradients of one micro-batch of each rank, one after the other in the order of the ranks' parts; or of
/// a single micro-batch.
struct Addends {
  BufferView all;
  DType dtype = DType::f32;
  DataParallel ranks = {};  ///< one rank: a single addend

  std::size_t bytes() const noexcept { return all.bytes / static_cast<std::size_t>(ranks.ranks); }
  /// The addend of the n-th micro-batch of those that the ranks process at the same time.
  BufferView nth(std::int32_t n) const noexcept {
    return all.part(static_cast<std::size_t>(ranks.part(n)) * bytes(), bytes());
  }
};

/// Queues the sum of the addends, in micro-batch order, on the CPU's stream or one of the device's. `first`:
/// they become the sum `into` instead of being added to it.
Status queue_accumulate(StateContext& context, ChunkId chunk, BufferView into, const Addends& addends,
                        bool first, Stream& stream);
/// Queues the norm partials of the elements that this rank sums; `sum` is the chunk's accumulated gradient as
/// far as this rank holds it.
Status queue_norm_partials(StateContext& context, ChunkId chunk, BufferView sum, Stream& stream);
/// The elements of `sum` that this rank sums.
BufferView summed_part(const StateContext& context, ChunkId chunk, BufferView sum);

}  // namespace strata::detail
