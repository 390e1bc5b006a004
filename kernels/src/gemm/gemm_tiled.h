#pragma once

#include <strata/runtime/threads/thread_pool.h>

#include "gemm/gemm.h"

namespace strata::kernels::detail {

/// Computes the tiles of C in parallel, each as an independent GEMM over the whole of k. `row_bias` (n values
/// of `dtype`, or null) is added to every row of C before C is rounded.
void gemm_tiled(const Gemm& gemm, const void* row_bias, ThreadPool& pool);

}  // namespace strata::kernels::detail
