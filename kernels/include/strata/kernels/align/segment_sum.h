#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// Sums of the values of each of n segments, in f64 in the order of the values, or their means. An empty
/// segment has 0. The log-probability of a response is such a sum.
struct SegmentSumArgs {
  TensorView x;          ///< f32, T values
  TensorView segments;   ///< i32, T values below n; below 0: in no segment. The caller has checked them
  TensorView sums;       ///< f32, n values, written
  TensorView counts;     ///< f32, n values, written: how many values each segment has
  BufferView workspace;  ///< segment_sum_workspace_bytes(n), 8-aligned
  bool mean = false;     ///< divide the sums by the counts
};
std::size_t segment_sum_workspace_bytes(std::int64_t segments) noexcept;
Status segment_sum_async(Backend& backend, Stream& stream, const SegmentSumArgs& args);
void segment_sum_host(const SegmentSumArgs& args, ThreadPool& pool);

struct SegmentSumBackwardArgs {
  TensorView segments;  ///< as in SegmentSumArgs
  TensorView counts;    ///< f32, n values that segment_sum wrote
  TensorView dsums;     ///< f32, n values
  TensorView dx;        ///< f32, T values, written; 0 where there is no segment
  bool mean = false;
};
Status segment_sum_backward_async(Backend& backend, Stream& stream, const SegmentSumBackwardArgs& args);
void segment_sum_backward_host(const SegmentSumBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
