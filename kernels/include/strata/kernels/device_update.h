#pragma once

#include <cstdint>

#include <strata/cpuopt/update.h>

namespace strata::kernels {

/// cpuopt::update_block() with all pointers of `block` in the memory of the current GPU: the same bits (of a
/// NaN kept in f32, the GPU's own). Queued on `cuda_stream`, a cudaStream_t. Of lamb it updates the moments
/// alone. `grad_factor`, in the GPU's memory, is read in stream order in place of the step's; it may be null.
/// Of builds with CUDA. Errors: `internal` with the driver's text where the launch fails.
Status launch_update(const cpuopt::UpdateStep& step, const cpuopt::UpdateBlock& block, std::int64_t n,
                     cpuopt::Dither dither, void* cuda_stream, const float* grad_factor = nullptr);

}  // namespace strata::kernels
