#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include <strata/kernels/attention.h>
#include <strata/runtime/status.h>

#include "cudnn_attention_support.h"

/// Attention by cuDNN (AttentionBackend::cudnn), which is loaded when the first is asked for. Builds without
/// the headers of cudnn-frontend answer `unsupported`.
namespace strata::kernels::detail {

/// For heads that cudnn_supports(). Errors: `unsupported` where cuDNN has no plan for them in this scratch.
Status cudnn_attention_forward(const AttentionForwardArgs& args, cudaStream_t queue);
Status cudnn_attention_backward(const AttentionBackwardArgs& args, cudaStream_t queue);

/// A way of cuDNN's to do it: its name, which says engine and knobs, and the scratch it takes.
struct CudnnPlan {
  std::string name;
  std::int64_t bytes = 0;
};
/// Its favourite for a GPU that is described by cuDNN's "device properties" in JSON. Compiles it; needs no
/// GPU, but a libcuda.so.1.
Result<CudnnPlan> cudnn_plan(const CudnnAttention& attention, std::string_view gpu);

}  // namespace strata::kernels::detail
