#pragma once

#include <cublasLt.h>

#include <strata/runtime/status.h>

namespace strata::kernels::detail {

/// The functions of cuBLASLt in use. The library is loaded at the first GEMM, so a program without GEMMs also
/// runs on a machine without cuBLASLt.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtGetVersion) version;
};
/// Loads the library at the first call. Errors: `unsupported`, naming what was looked for.
Result<const CublasLt*> cublas_lt();

}  // namespace strata::kernels::detail
