#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/gate.h>

#include "cuda/experts/row_parts.h"

namespace strata::kernels::cuda {
namespace {

using dispatch::kThreads;
using dispatch::row_grid;

// The grid has the parts of a row in x, and rows in y, of which a block has several if there are many.
template <int kN, class T, class Gate>
__global__ void __launch_bounds__(kThreads)
    gate_forward(Gate gate, const T* gate_up, const float* weights, const std::int32_t* source, T* a,
                 int rows, int f, int parts) {
  const int first = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kN;
  if (first >= f) return;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y))
    detail::expert_gate_part<kN>(gate, gate_up + std::int64_t{row} * parts * f,
                                 weights[source == nullptr ? row : source[row]], a + std::int64_t{row} * f,
                                 (parts - 1) * f, first);
}
// A half warp per row.
template <class T, class Gate>
__global__ void __launch_bounds__(kThreads)
    gate_backward(Gate gate, const T* gate_up, const float* weights, const std::int32_t* source, const T* da,
                  T* dgate_up, float* dweights, std::int64_t rows, std::int64_t f, std::int64_t parts) {
  const std::int64_t row = dispatch::half_warp_index();
  if (row >= rows) return;
  const dispatch::HalfWarp lanes;
  const std::int64_t choice = source == nullptr ? row : source[row];
  const float dweight =
      detail::expert_gate_row_backward(lanes, gate, gate_up + row * parts * f, weights[choice], da + row * f,
                                       dgate_up + row * parts * f, f, (parts - 1) * f);
  if (lanes.is_leader()) dweights[choice] = dweight;
}

/// Null: the rows are the choices in order.
template <class Args>
const std::int32_t* source_of(const Args& a) {
  return dispatch::is_present(a.source) ? a.source.template as<std::int32_t>() : nullptr;
}

}  // namespace

Status expert_gate_forward(Backend&, Stream& stream, const ExpertGateForwardArgs& a) {
  if (a.a.n_elems() == 0) return Status::ok();
  const auto rows = static_cast<int>(dispatch::row_count(a.a)),
             f = static_cast<int>(dispatch::row_length(a.a));
  const auto parts = static_cast<int>(a.gate.parts());
  const auto* const weights = a.weights.as<float>();
  const std::int32_t* const source = source_of(a);
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.a.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int kSize = detail::Pack<T>::kSize;
    const T* const from = a.gate_up.as<T>();
    T* const into = a.a.as<T>();
    const bool packed = f % kSize == 0 && dispatch::are_pack_aligned(from, into);
    const auto launch = [&](auto gate) {
      if (packed)
        gate_forward<kSize><<<row_grid(rows, f / kSize), kThreads, 0, queue>>>(gate, from, weights, source,
                                                                               into, rows, f, parts);
      else
        gate_forward<1>
            <<<row_grid(rows, f), kThreads, 0, queue>>>(gate, from, weights, source, into, rows, f, parts);
    };
    detail::with_gate(a.gate, launch);
  });
}

Status expert_gate_backward(Backend&, Stream& stream, const ExpertGateBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.da), f = dispatch::row_length(a.da);
  if (rows == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.da.dtype, [&]<class T>(std::type_identity<T>) {
    const auto launch = [&](auto gate) {
      gate_backward<<<dispatch::num_blocks(rows, dispatch::kRowsPerBlock), kThreads, 0, queue>>>(
          gate, a.gate_up.as<T>(), a.weights.as<float>(), source_of(a), a.da.as<T>(), a.dgate_up.as<T>(),
          a.dweights.as<float>(), rows, f, a.gate.parts());
    };
    detail::with_gate(a.gate, launch);
  });
}

}  // namespace strata::kernels::cuda
