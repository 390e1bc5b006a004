#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::kernels {
struct EmbeddingForwardArgs;
struct EmbeddingBackwardArgs;
struct PositionsArgs;
struct RopeTableArgs;
struct RopeArgs;
}  // namespace strata::kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status embedding_forward(Backend& backend, Stream& stream, const EmbeddingForwardArgs& args);
Status embedding_backward(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& args);
Status positions(Backend& backend, Stream& stream, const PositionsArgs& args);
Status rope_table(Backend& backend, Stream& stream, const RopeTableArgs& args);
Status rope(Backend& backend, Stream& stream, const RopeArgs& args);

}  // namespace strata::kernels::cuda
