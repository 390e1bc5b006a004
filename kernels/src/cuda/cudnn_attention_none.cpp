#include <strata/kernels/cuda_products.h>

#include "cuda/attention_choices.h"
#include "cuda/cudnn_attention.h"

namespace strata::kernels::detail {
namespace {
Status absent() {
  return Status::error(Code::unsupported,
                       "attention by cuDNN: this build is without; it takes cuDNN's headers and those of "
                       "cudnn-frontend (scripts/get_cudnn_frontend.sh)");
}
}  // namespace

Status cudnn_attention_forward(const AttentionForwardArgs&, cudaStream_t) { return absent(); }
Status cudnn_attention_backward(const AttentionBackwardArgs&, cudaStream_t) { return absent(); }
Result<CudnnPlan> cudnn_plan(const CudnnAttention&, std::string_view) { return absent(); }

}  // namespace strata::kernels::detail

namespace strata::kernels {

Result<std::string> cuda_cudnn() { return detail::absent(); }
std::string cuda_attention_choices() { return ""; }
Status use_cuda_attention_choices(std::string_view text) {
  return detail::parse_attention_choices(text).status();
}

}  // namespace strata::kernels
