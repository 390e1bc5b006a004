#pragma once

#include <string>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata::kernels {

/// Name and version of the library that computes GEMMs on a GPU, such as "cuBLASLt 13.1.0", or "no cuBLASLt"
/// if there is none. The bits of GEMMs depend on the version. Loads the library.
std::string cublaslt_version();

/// The algorithms of the GEMMs that this process has run on a GPU and those given to
/// use_cuda_gemm_algorithms(), one line per GEMM; empty if there are none.
std::string cuda_gemm_algorithms();
/// Records algorithms: from now on a GEMM that has a line in `text` uses the algorithm of that line instead
/// of cuBLASLt's proposal. `text` must come from cuda_gemm_algorithms() with the same cublaslt_version() on
/// the same kind of GPU. A GEMM that has already run keeps its algorithm. Errors: `invalid` with the line,
/// and then nothing changes. If cuBLASLt rejects an algorithm, the op that uses it fails.
Status use_cuda_gemm_algorithms(std::string_view text);

/// Name and version of the library of AttentionBackend::cudnn, such as "cuDNN 9.19.0". Loads the library.
/// Errors: `unsupported` if this build or this machine has no cuDNN, or one that is too old.
Result<std::string> cudnn_version();
/// The same as for GEMMs, for the cuDNN plans of attention. GEMM lines are ignored here and plan lines there,
/// so one text may contain both.
std::string cuda_attention_plans();
Status use_cuda_attention_plans(std::string_view text);

}  // namespace strata::kernels
