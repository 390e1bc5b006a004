#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::state_kernels {
struct UpdateArgs;
struct LambPartialsArgs;
struct LambApplyArgs;
struct AccumulateArgs;
struct SquareSumPartialsArgs;
}  // namespace strata::state_kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::state_kernels::cuda {

Status update(Backend& backend, Stream& stream, const UpdateArgs& args);
Status lamb_partials(Backend& backend, Stream& stream, const LambPartialsArgs& args);
Status lamb_apply(Backend& backend, Stream& stream, const LambApplyArgs& args);
Status accumulate(Backend& backend, Stream& stream, const AccumulateArgs& args);
Status square_sum_partials(Backend& backend, Stream& stream, const SquareSumPartialsArgs& args);

}  // namespace strata::state_kernels::cuda
