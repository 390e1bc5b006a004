#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::kernels {
struct GeluForwardArgs;
struct GeluBackwardArgs;
struct ReluForwardArgs;
struct ReluBackwardArgs;
struct SwigluForwardArgs;
struct SwigluBackwardArgs;
struct AddArgs;
struct ScaleArgs;
struct SoftcapArgs;
struct FillArgs;
struct CastRowsArgs;
}  // namespace strata::kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status gelu_forward(Backend& backend, Stream& stream, const GeluForwardArgs& args);
Status gelu_backward(Backend& backend, Stream& stream, const GeluBackwardArgs& args);
Status relu_forward(Backend& backend, Stream& stream, const ReluForwardArgs& args);
Status relu_backward(Backend& backend, Stream& stream, const ReluBackwardArgs& args);
Status swiglu_forward(Backend& backend, Stream& stream, const SwigluForwardArgs& args);
Status swiglu_backward(Backend& backend, Stream& stream, const SwigluBackwardArgs& args);
Status add(Backend& backend, Stream& stream, const AddArgs& args);
Status scale(Backend& backend, Stream& stream, const ScaleArgs& args);
Status softcap(Backend& backend, Stream& stream, const SoftcapArgs& args);
Status fill(Backend& backend, Stream& stream, const FillArgs& args);
Status cast_rows(Backend& backend, Stream& stream, const CastRowsArgs& args);

}  // namespace strata::kernels::cuda
