#include <strata/kernels/align/segment_sum.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/runtime/assert.h>

#include "align/segment_math.h"
#include "work_split.h"

namespace strata::kernels {

STRATA_OP(segment_sum, SegmentSumArgs);
STRATA_OP(segment_sum_backward, SegmentSumBackwardArgs);

std::size_t segment_sum_workspace_bytes(std::int64_t segments) noexcept {
  return static_cast<std::size_t>(segments) * 2 * sizeof(double);
}

void segment_sum_host(const SegmentSumArgs& a, ThreadPool&) {
  const std::int64_t n = a.sums.n_elems();
  auto* const sums = reinterpret_cast<double*>(a.workspace.data);
  double* const counts = sums + n;
  std::fill_n(sums, 2 * n, 0.0);
  const auto* segments = a.segments.as<std::int32_t>();
  for (std::int64_t t = 0; t < a.x.n_elems(); ++t) {
    const std::int32_t segment = segments[t];
    STRATA_DCHECK(segment < n, "a segment is ", segment, " of ", n);
    if (segment < 0) continue;
    sums[segment] += static_cast<double>(a.x.as<float>()[t]);
    counts[segment] += 1.0;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    a.sums.as<float>()[i] = detail::segment_result(sums[i], counts[i], a.mean);
    a.counts.as<float>()[i] = static_cast<float>(counts[i]);
  }
}

void segment_sum_backward_host(const SegmentSumBackwardArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(
      pool, a.dx.n_elems(), detail::kElementsPerItem, [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t)
          a.dx.as<float>()[t] = detail::segment_gradient(
              a.segments.as<std::int32_t>()[t], a.dsums.as<float>(), a.mean ? a.counts.as<float>() : nullptr);
      });
}

Status segment_sum_async(Backend& backend, Stream& stream, const SegmentSumArgs& a) {
  const std::int64_t n = a.sums.n_elems(), tokens = a.x.n_elems();
  STRATA_TRY(dispatch::Check("segment_sum")
                 .elements("x", a.x, DType::f32, tokens)
                 .elements("segments", a.segments, DType::i32, tokens)
                 .elements("sums", a.sums, DType::f32, n)
                 .elements("counts", a.counts, DType::f32, n)
                 .workspace(a.workspace, segment_sum_workspace_bytes(n))
                 .status());
  return dispatch::enqueue(backend, stream, segment_sum_op, a, {a.x, a.segments}, {a.sums, a.counts},
                           a.workspace);
}

Status segment_sum_backward_async(Backend& backend, Stream& stream, const SegmentSumBackwardArgs& a) {
  const std::int64_t n = a.dsums.n_elems();
  STRATA_TRY(dispatch::Check("segment_sum_backward")
                 .elements("dsums", a.dsums, DType::f32, n)
                 .elements("counts", a.counts, DType::f32, n)
                 .elements("segments", a.segments, DType::i32, a.segments.n_elems())
                 .elements("dx", a.dx, DType::f32, a.segments.n_elems())
                 .status());
  return dispatch::enqueue(backend, stream, segment_sum_backward_op, a, {a.segments, a.counts, a.dsums},
                           {a.dx});
}

}  // namespace strata::kernels
