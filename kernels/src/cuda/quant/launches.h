#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::kernels {
struct Fp8CastArgs;
struct Fp8GemmArgs;
struct BlockQuantArgs;
}  // namespace strata::kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status fp8_cast(Backend& backend, Stream& stream, const Fp8CastArgs& args);
Status fp8_gemm(Backend& backend, Stream& stream, const Fp8GemmArgs& args);
Status quantize_blocks(Backend& backend, Stream& stream, const BlockQuantArgs& args);
Status dequantize_blocks(Backend& backend, Stream& stream, const BlockQuantArgs& args);

}  // namespace strata::kernels::cuda
