#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include <strata/kernels/attention.h>
#include <strata/runtime/status.h>

#include "attention/cudnn_attention_support.h"

/// Attention by cuDNN (AttentionBackend::cudnn), which is loaded at its first use. Builds without the headers
/// of cudnn-frontend return `unsupported`.
namespace strata::kernels::detail {

/// For heads that cudnn_supports() accepts. Errors: `unsupported` if no plan of cuDNN fits into the
/// workspace.
Status cudnn_attention_forward(const AttentionForwardArgs& args, cudaStream_t queue);
Status cudnn_attention_backward(const AttentionBackwardArgs& args, cudaStream_t queue);

/// A cuDNN execution plan: its name, which encodes engine and knobs, and the workspace that it needs.
struct CudnnPlan {
  std::string name;
  std::int64_t bytes = 0;
};
/// The plan that cuDNN's heuristic ranks first for a GPU described by cuDNN's "device properties" in JSON.
/// Compiles the plan; needs no GPU, but a libcuda.so.1.
Result<CudnnPlan> cudnn_plan(const CudnnAttention& attention, std::string_view gpu);

}  // namespace strata::kernels::detail
