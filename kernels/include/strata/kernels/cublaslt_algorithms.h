#pragma once

#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata::kernels {

/// What products on a GPU are made with: "cuBLASLt 13.1.0". Its version is part of what decides their bits.
/// Where there is none: "no cuBLASLt". Loads the library.
std::string cublaslt_version();

/// The algorithms that products on a GPU were made by in this process, and those given to
/// use_cuda_gemm_algorithms(): one line a product; empty where there was none.
std::string cuda_gemm_algorithms();
/// From here on a product that has a line in `text`, which is of cuda_gemm_algorithms() with the same
/// cublaslt_version() on the same kind of GPU, is made by the algorithm there, whatever cuBLASLt would
/// propose; one that was made already stays as it is. Errors: `invalid` with the line, and then nothing
/// changes. An algorithm that cuBLASLt does not take is an error of the op that asks for it.
Status use_cuda_gemm_algorithms(std::string_view text);

/// What AttentionBackend::cudnn is made with: "cuDNN 9.19.0". Loads the library. Errors: `unsupported` where
/// this build or this machine has none, or too old a one.
Result<std::string> cudnn_version();
/// As with products: the plans of cuDNN's that attention was made by, or is to be made by. Lines of the one
/// are none to the other, so that both may be in one text.
std::string cuda_attention_plans();
Status use_cuda_attention_plans(std::string_view text);

}  // namespace strata::kernels
