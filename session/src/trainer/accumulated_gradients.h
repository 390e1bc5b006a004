#pragma once

#include <span>
#include <vector>

#include <strata/session/state_context.h>

namespace strata::detail {

/// The gradients that a trainer has handed over since the last step, in the chunks' accumulated gradients.
class AccumulatedGradients {
 public:
  explicit AccumulatedGradients(StateContext& context);

  /// Adds a gradient to that of the tensor, or sets it if there is none. Returns when it has been read.
  Status add(std::int32_t tensor, const std::byte* gradient, DType dtype);
  bool has(std::int32_t tensor) const { return present_[static_cast<std::size_t>(tensor)]; }
  bool has_any(ChunkId chunk) const { return is_written_[chunk]; }
  double square_sum(std::int32_t tensor) const;
  /// The square root of the sum of all norm partials, by one tree over all tensors.
  double norm() const;
  void forget(std::int32_t tensor);
  /// Leaves the gradients of a chunk for its update, and takes them out of all norms.
  void clear_norms(ChunkId chunk);
  /// Forgets the gradients of one chunk, or of all.
  Status drop(ChunkId chunk);
  void clear() noexcept;

 private:
  void clear_norm(std::int32_t tensor);
  std::span<double> partials_of(std::int32_t tensor) const;

  StateContext& context_;
  std::vector<bool> present_;     // indexed by tensor
  std::vector<bool> is_written_;  // whether each chunk has any
};

}  // namespace strata::detail
