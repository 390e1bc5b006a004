#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::kernels {
struct LinearForwardArgs;
struct LinearBackwardInputArgs;
struct LinearBackwardWeightArgs;
struct LinearBackwardBiasArgs;
}  // namespace strata::kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status linear_forward(Backend& backend, Stream& stream, const LinearForwardArgs& args);
Status linear_backward_input(Backend& backend, Stream& stream, const LinearBackwardInputArgs& args);
Status linear_backward_weight(Backend& backend, Stream& stream, const LinearBackwardWeightArgs& args);
Status linear_backward_bias(Backend& backend, Stream& stream, const LinearBackwardBiasArgs& args);

}  // namespace strata::kernels::cuda
