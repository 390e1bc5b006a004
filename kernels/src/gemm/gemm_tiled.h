#pragma once

#include <strata/runtime/threads/thread_pool.h>

#include "gemm/gemm.h"
#include "gemm/gemm_16bit.h"

namespace strata::kernels::detail {

/// Computes the tiles of C in parallel, each as an independent GEMM over the whole of k. `row_bias` (n values
/// of `dtype`, or null) is added to every row of C before C is rounded.
void gemm_tiled(const Gemm& gemm, const void* row_bias, ThreadPool& pool);

/// Computes an f32 C of at most one tile on the calling thread, from operands of any stored dtype. `panels`
/// has kPanelFloats values; f32 operands need none. Its bits depend only on shapes, leading dimensions and
/// flags.
void gemm_to_f32(const Gemm& gemm, float* panels) noexcept;

/// The scratch memory of all tiles.
TileScratch& tile_scratch();

}  // namespace strata::kernels::detail
