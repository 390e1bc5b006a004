#pragma once

#include <cublasLt.h>

#include <strata/runtime/status.h>

namespace strata::kernels::detail {

/// The functions of cuBLASLt that are used, of a library that is loaded at the first product: a program
/// without products, and one on a machine without it, does without.
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
/// Errors: `unsupported` naming what was looked for.
Result<const CublasLt*> cublas_lt();

}  // namespace strata::kernels::detail
