#include <string>
#include <string_view>

#include <strata/kernels/attention.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/runtime/str.h>

// Without CUDA there are no libraries of CUDA to ask.
namespace strata::kernels {
namespace {

Status no_cuda(const char* function) {
  return Status::error(Code::unsupported, str(function, ": this build has no CUDA support"));
}

}  // namespace

bool cuda_has_wgmma() { return false; }
std::string cublaslt_version() { return "no cuBLASLt"; }
std::string cuda_gemm_algorithms() { return ""; }
Status use_cuda_gemm_algorithms(std::string_view) { return no_cuda("use_cuda_gemm_algorithms"); }
Result<std::string> cudnn_version() { return no_cuda("cudnn_version"); }
std::string cuda_attention_plans() { return ""; }
Status use_cuda_attention_plans(std::string_view) { return no_cuda("use_cuda_attention_plans"); }

}  // namespace strata::kernels
