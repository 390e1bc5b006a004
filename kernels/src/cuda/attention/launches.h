#pragma once

#include <strata/runtime/backend/backend.h>

namespace strata::kernels {
struct AttentionForwardArgs;
struct AttentionBackwardArgs;
struct CachedAttentionArgs;
}  // namespace strata::kernels

/// Launches on CUDA, with arguments that were checked. no_cuda.cpp defines the same symbols for builds
/// without CUDA.
namespace strata::kernels::cuda {

Status attention_forward(Backend& backend, Stream& stream, const AttentionForwardArgs& args);
Status attention_backward(Backend& backend, Stream& stream, const AttentionBackwardArgs& args);
Status cached_attention(Backend& backend, Stream& stream, const CachedAttentionArgs& args);

}  // namespace strata::kernels::cuda
