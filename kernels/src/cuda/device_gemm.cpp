#include "cuda/device_gemm.h"

#include <map>
#include <tuple>

#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

#include "cuda/blas_lt.h"
#include "cuda/cuda_error.h"

namespace strata::kernels::detail {
namespace {

Status lt_failure(cublasStatus_t error, const char* call, const Gemm& g) {
  return Status::error(Code::internal, str("cuBLASLt: ", call, " of [", g.m, ", ", g.k, "] by [", g.k, ", ",
                                           g.n, "] in ", to_string(g.dtype), " into ", to_string(g.c_dtype),
                                           " ended with status ", static_cast<int>(error)));
}
#define STRATA_LT_TRY(call)                                                        \
  do {                                                                             \
    if (const cublasStatus_t lt_error = (call); lt_error != CUBLAS_STATUS_SUCCESS) \
      return lt_failure(lt_error, #call, g);                                       \
  } while (false)

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// Algorithms may ask for so much; more than a cache line's worth makes no difference.
std::uint32_t alignment_of(const void* p) {
  constexpr std::uintptr_t kMost = 256;
  const auto at = reinterpret_cast<std::uintptr_t>(p) | kMost;
  return static_cast<std::uint32_t>(at & ~(at - 1));
}

/// What is multiplied, apart from where it lies.
struct Key {
  int device;
  bool trans_a, trans_b, has_bias;
  DType dtype, c_dtype;
  std::int64_t m, n, k, lda, ldb, ldc;
  std::uint32_t a_align, b_align, c_align;
  friend auto operator<=>(const Key&, const Key&) = default;
};
struct Product {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algo{};
};

// cuBLASLt counts by columns: a row-major matrix is its transpose there, so C^T = op(B)^T op(A)^T is asked
// for.
Result<Product> make_product(const BlasLt& lt, cublasLtHandle_t handle, const Gemm& g, const Key& key) {
  Product p;
  STRATA_LT_TRY(lt.desc_create(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    return lt.desc_set(p.desc, what, &value, sizeof value);
  };
  STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (key.has_bias) {
    STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(g.dtype)));
  }
  const auto layout = [&](cublasLtMatrixLayout_t& made, DType dtype, std::int64_t rows, std::int64_t columns,
                          std::int64_t ld) {
    return lt.layout_create(&made, type_of(dtype), static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), ld);
  };
  STRATA_LT_TRY(layout(p.first, g.dtype, g.trans_b ? g.k : g.n, g.trans_b ? g.n : g.k, g.ldb));
  STRATA_LT_TRY(layout(p.second, g.dtype, g.trans_a ? g.m : g.k, g.trans_a ? g.k : g.m, g.lda));
  STRATA_LT_TRY(layout(p.result, g.c_dtype, g.n, g.m, g.ldc));

  cublasLtMatmulPreference_t preference = nullptr;
  STRATA_LT_TRY(lt.preference_create(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    return lt.preference_set(preference, what, &value, sizeof value);
  };
  const std::uint64_t no_workspace = 0;
  cublasStatus_t status = prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, no_workspace);
  for (const auto& [what, bytes] : {std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_align},
                                    std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_align},
                                    std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_align},
                                    std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_align}})
    if (status == CUBLAS_STATUS_SUCCESS) status = prefer(what, bytes);
  cublasLtMatmulHeuristicResult_t found{};
  int n_found = 0;
  if (status == CUBLAS_STATUS_SUCCESS)
    status =
        lt.heuristic(handle, p.desc, p.first, p.second, p.result, p.result, preference, 1, &found, &n_found);
  lt.preference_destroy(preference);
  STRATA_LT_TRY(status);
  if (n_found == 0) return lt_failure(CUBLAS_STATUS_NOT_SUPPORTED, "the search for an algorithm", g);
  p.algo = found.algo;
  return p;
}

/// Handles by device and products by key: made once, and not many.
class Products {
 public:
  /// Valid for the life of the process.
  Result<const Product*> get(const BlasLt& lt, const Gemm& g, const Key& key, cublasLtHandle_t& handle)
      STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    cublasLtHandle_t& of_device = handles_[key.device];
    if (of_device == nullptr) STRATA_LT_TRY(lt.create(&of_device));
    handle = of_device;
    auto at = products_.find(key);
    if (at == products_.end()) {
      STRATA_TRY_ASSIGN(const Product product, make_product(lt, of_device, g, key));
      at = products_.emplace(key, product).first;
    }
    return &at->second;
  }

 private:
  Mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_ STRATA_GUARDED_BY(mutex_);
  std::map<Key, Product> products_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace

Status device_gemm(const Gemm& g, const void* row_bias, cudaStream_t queue) {
  if (g.m == 0 || g.n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const BlasLt* const lt, blas_lt());
  Key key{
      0,     g.trans_a, g.trans_b, row_bias != nullptr, g.dtype,           g.c_dtype,        g.m, g.n, g.k,
      g.lda, g.ldb,     g.ldc,     alignment_of(g.a),   alignment_of(g.b), alignment_of(g.c)};
  STRATA_CUDA_TRY(cudaGetDevice(&key.device));
  static Products products;
  cublasLtHandle_t handle = nullptr;
  STRATA_TRY_ASSIGN(const Product* const p, products.get(*lt, g, key, handle));
  cublasLtMatmulDesc_t desc = p->desc;
  // The one thing of a description that is an address: a copy of it has this product's.
  cublasLtMatmulDescOpaque_t with_bias;
  if (row_bias != nullptr) {
    with_bias = *p->desc;
    desc = &with_bias;
    STRATA_LT_TRY(lt->desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row_bias, sizeof row_bias));
  }
  const float one = 1.0f, beta = g.accumulate ? 1.0f : 0.0f;
  STRATA_LT_TRY(lt->matmul(handle, desc, &one, g.b, p->first, g.a, p->second, &beta, g.c, p->result, g.c,
                           p->result, &p->algo, nullptr, 0, queue));
  return Status::ok();
}

}  // namespace strata::kernels::detail
