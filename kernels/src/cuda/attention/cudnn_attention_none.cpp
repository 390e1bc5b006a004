#include <strata/kernels/cublaslt_algorithms.h>

#include "cuda/attention/attention_plans.h"
#include "cuda/attention/cudnn_attention.h"

namespace strata::kernels::detail {
namespace {
Status absent() {
  return Status::error(Code::unsupported,
                       "attention by cuDNN: not in this build; rebuild with the headers of cuDNN and "
                       "cudnn-frontend (scripts/get_cudnn_frontend.sh)");
}
}  // namespace

Status cudnn_attention_forward(const AttentionForwardArgs&, cudaStream_t) { return absent(); }
Status cudnn_attention_backward(const AttentionBackwardArgs&, cudaStream_t) { return absent(); }
Result<CudnnPlan> cudnn_plan(const CudnnAttention&, std::string_view) { return absent(); }

}  // namespace strata::kernels::detail

namespace strata::kernels {

Result<std::string> cudnn_version() { return detail::absent(); }
std::string cuda_attention_plans() { return ""; }
Status use_cuda_attention_plans(std::string_view text) {
  return detail::parse_attention_plans(text).status();
}

}  // namespace strata::kernels
