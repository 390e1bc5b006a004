#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::kernels {
struct LayernormForwardArgs;
struct LayernormBackwardArgs;
struct RmsnormForwardArgs;
struct RmsnormBackwardArgs;
struct QkNormForwardArgs;
struct QkNormBackwardArgs;
}  // namespace strata::kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status layernorm_forward(Backend& backend, Stream& stream, const LayernormForwardArgs& args);
Status layernorm_backward(Backend& backend, Stream& stream, const LayernormBackwardArgs& args);
Status rmsnorm_forward(Backend& backend, Stream& stream, const RmsnormForwardArgs& args);
Status rmsnorm_backward(Backend& backend, Stream& stream, const RmsnormBackwardArgs& args);
Status qk_norm_forward(Backend& backend, Stream& stream, const QkNormForwardArgs& args);
Status qk_norm_backward(Backend& backend, Stream& stream, const QkNormBackwardArgs& args);

}  // namespace strata::kernels::cuda
