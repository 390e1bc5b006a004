#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::kernels {
struct CrossEntropyForwardArgs;
struct CrossEntropyBackwardArgs;
struct LinearCrossEntropyArgs;
struct LinearCrossEntropyBackwardArgs;
}  // namespace strata::kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status cross_entropy_forward(Backend& backend, Stream& stream, const CrossEntropyForwardArgs& args);
Status cross_entropy_backward(Backend& backend, Stream& stream, const CrossEntropyBackwardArgs& args);
Status linear_cross_entropy(Backend& backend, Stream& stream, const LinearCrossEntropyArgs& args);
Status linear_cross_entropy_backward(Backend& backend, Stream& stream,
                                     const LinearCrossEntropyBackwardArgs& args);

}  // namespace strata::kernels::cuda
