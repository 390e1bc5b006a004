#pragma once

#include <cmath>
#include <string>

#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>

#include "attention/head_dim.h"
#include "cuda/attention/attention_math.h"
#include "cuda/shared_memory.h"

/// Helpers that the attention kernels' launches share.
namespace strata::kernels::detail {

/// Launches `blocks` thread blocks, each with `bytes` of dynamic shared memory. Errors: `unsupported` if the
/// device cannot give a block that much.
template <class Kernel, class... Args>
Status launch_attention(Kernel kernel, std::int64_t blocks, int threads, std::int64_t bytes,
                        cudaStream_t queue, const Args&... args) {
  STRATA_TRY(shared_memory_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      bytes));
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<std::size_t>(bytes),
           queue>>>(args...);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

template <class T, class Args>
AttentionView<T> attention_view(const Args& a) {
  const std::int64_t d = head_dim_of(a);
  return {a.qkv.template as<T>(),
          dispatch::is_present(a.doc_start) ? a.doc_start.template as<std::int32_t>() : nullptr,
          a.shape.heads,
          a.shape.kv_heads,
          d,
          a.shape.seq,
          attention_scale(a.shape, d),
          a.shape.causal,
          a.shape.window,
          a.shape.softcap,
          dispatch::is_present(a.kv) ? a.kv.template as<T>() : nullptr,
          a.shape.queries,
          a.shape.keys,
          dispatch::is_present(a.sinks) ? a.sinks.template as<T>() : nullptr};
}

/// Where the deltas of all rows are: given, wanted, or in the workspace.
inline float* delta_of(const AttentionBackwardArgs& a) {
  if (dispatch::is_present(a.delta)) return a.delta.as<float>();
  return dispatch::is_present(a.delta_out) ? a.delta_out.as<float>()
                                           : reinterpret_cast<float*>(a.workspace.data);
}

/// The maximum opt-in shared memory of a block, queried once from the current device.
inline std::int64_t max_shared_bytes_per_block() {
  static const std::int64_t bytes = [] {
    int device = 0, max_bytes = 48 << 10;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
      (void)cudaGetLastError();
    return std::int64_t{max_bytes};
  }();
  return bytes;
}

}  // namespace strata::kernels::detail
