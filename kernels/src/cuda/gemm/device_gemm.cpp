#include "cuda/gemm/device_gemm.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

#include "cuda/gemm/cublas_lt.h"
#include "backend/cuda/cuda_error.h"
#include "cuda/gemm/gemm_algorithms.h"

namespace strata::kernels::detail {
namespace {

Status lt_failure(cublasStatus_t error, const char* call, const Gemm& g) {
  return Status::error(Code::internal, str("cuBLASLt: ", call, " of [", g.m, ", ", g.k, "] by [", g.k, ", ",
                                           g.n, "] in ", to_string(g.dtype), " into ", to_string(g.c_dtype),
                                           " failed with status ", static_cast<int>(error)));
}
#define STRATA_LT_TRY(call)                                                        \
  do {                                                                             \
    if (const cublasStatus_t lt_error = (call); lt_error != CUBLAS_STATUS_SUCCESS) \
      return lt_failure(lt_error, #call, g);                                       \
  } while (false)

cudaDataType_t cuda_data_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    case DType::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

// Algorithms may require an alignment; more than kMaxAlignment makes no difference to them.
std::uint32_t alignment_of(const void* p) {
  constexpr std::uintptr_t kMaxAlignment = 256;
  const auto at = reinterpret_cast<std::uintptr_t>(p) | kMaxAlignment;
  return static_cast<std::uint32_t>(at & ~(at - 1));
}

using Algorithm = decltype(GemmAlgorithm::algorithm);

struct GemmPlan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algo{};
};

// cuBLASLt is column-major: it sees a row-major matrix as its transpose, so we request C^T = op(B)^T op(A)^T.
Result<GemmPlan> make_plan(const CublasLt& lt, const Gemm& g, const GemmKey& key) {
  GemmPlan p;
  STRATA_LT_TRY(lt.desc_create(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    return lt.desc_set(p.desc, what, &value, sizeof value);
  };
  STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (key.has_bias) {
    STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    STRATA_LT_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_data_type(g.c_dtype)));
  }
  const auto layout = [&](cublasLtMatrixLayout_t& made, DType dtype, std::int64_t rows, std::int64_t columns,
                          std::int64_t ld) {
    return lt.layout_create(&made, cuda_data_type(dtype), static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), ld);
  };
  STRATA_LT_TRY(layout(p.first, key.b_dtype, g.trans_b ? g.k : g.n, g.trans_b ? g.n : g.k, g.ldb));
  STRATA_LT_TRY(layout(p.second, g.dtype, g.trans_a ? g.m : g.k, g.trans_a ? g.k : g.m, g.lda));
  STRATA_LT_TRY(layout(p.result, g.c_dtype, g.n, g.m, g.ldc));
  return p;
}

// The addresses of a GEMM's bias and scales are known only when it is enqueued. A search that looks at them
// treats a missing address as no bias and no scale, and may then find no algorithm. These placeholders have
// the maximum alignment, and nothing reads from them.
cublasStatus_t set_placeholder_addresses(const CublasLt& lt, cublasLtMatmulDesc_t desc, const GemmKey& key) {
  alignas(256) static const std::byte anywhere[256] = {};
  const void* const address = anywhere;
  const auto set_placeholder = [&](cublasLtMatmulDescAttributes_t what) {
    return lt.desc_set(desc, what, &address, sizeof address);
  };
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (key.has_bias) status = set_placeholder(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  if (size_of(key.dtype) > 1) return status;
  if (status == CUBLAS_STATUS_SUCCESS) status = set_placeholder(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  if (status == CUBLAS_STATUS_SUCCESS) status = set_placeholder(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  return status;
}

// The first algorithm that cuBLASLt's heuristic proposes.
Result<cublasLtMatmulAlgo_t> search_algorithm(const CublasLt& lt, cublasLtHandle_t handle, const Gemm& g,
                                              const GemmPlan& p, const GemmKey& key) {
  cublasLtMatmulPreference_t preference = nullptr;
  STRATA_LT_TRY(lt.preference_create(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    return lt.preference_set(preference, what, &value, sizeof value);
  };
  cublasStatus_t status =
      prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{key.workspace_bytes});
  // Split-K parts that were added in C would be rounded to its dtype each time.
  if (status == CUBLAS_STATUS_SUCCESS)
    status = prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto& [what, bytes] : {std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_align},
                                    std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_align},
                                    std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_align},
                                    std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_align}})
    if (status == CUBLAS_STATUS_SUCCESS) status = prefer(what, bytes);
  cublasLtMatmulHeuristicResult_t found{};
  int n_found = 0;
  const auto search = [&](cublasLtMatmulDesc_t desc) {
    const cublasStatus_t answer =
        lt.heuristic(handle, desc, p.first, p.second, p.result, p.result, preference, 1, &found, &n_found);
    if (answer != CUBLAS_STATUS_SUCCESS) n_found = 0;
    return answer == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : answer;  // it found none
  };
  if (status == CUBLAS_STATUS_SUCCESS) status = search(p.desc);
  if (status == CUBLAS_STATUS_SUCCESS && n_found == 0) {
    cublasLtMatmulDescOpaque_t addressed = *p.desc;
    status = set_placeholder_addresses(lt, &addressed, key);
    if (status == CUBLAS_STATUS_SUCCESS) status = search(&addressed);
  }
  lt.preference_destroy(preference);
  STRATA_LT_TRY(status);
  if (n_found == 0) return lt_failure(CUBLAS_STATUS_NOT_SUPPORTED, "the search for an algorithm", g);
  return found.algo;
}

// Asks cuBLASLt whether an algorithm recorded in another run works on this GPU and with this version.
Result<cublasLtMatmulAlgo_t> check_recorded_algorithm(const CublasLt& lt, cublasLtHandle_t handle,
                                                      const Gemm& g, const GemmPlan& p, const GemmKey& key,
                                                      const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t algo{};
  static_assert(sizeof algo == sizeof algorithm);
  std::memcpy(&algo, algorithm.data(), sizeof algo);
  cublasLtMatmulHeuristicResult_t answer{};
  STRATA_LT_TRY(lt.algo_check(handle, p.desc, p.first, p.second, p.result, p.result, &algo, &answer));
  STRATA_LT_TRY(answer.state);
  if (answer.workspaceSize > key.workspace_bytes)
    return lt_failure(CUBLAS_STATUS_INVALID_VALUE, "the recorded algorithm, which needs more workspace,", g);
  return algo;
}

/// Handles by device, and plans by device and key. They are made once, and there are few.
class GemmPlanCache {
 public:
  /// The returned plan is valid for the life of the process.
  Result<const GemmPlan*> get(const CublasLt& lt, const Gemm& g, const GemmKey& key, int device,
                              cublasLtHandle_t& handle) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    cublasLtHandle_t& device_handle = handles_[device];
    if (device_handle == nullptr) STRATA_LT_TRY(lt.create(&device_handle));
    handle = device_handle;
    auto at = plans_.find({device, key});
    if (at == plans_.end()) {
      STRATA_TRY_ASSIGN(GemmPlan plan, make_plan(lt, g, key));
      if (const auto choice = recorded_.find(key); choice != recorded_.end()) {
        STRATA_TRY_ASSIGN(plan.algo,
                          check_recorded_algorithm(lt, device_handle, g, plan, key, choice->second));
      } else {
        STRATA_TRY_ASSIGN(plan.algo, search_algorithm(lt, device_handle, g, plan, key));
      }
      at = plans_.emplace(std::pair{device, key}, plan).first;
    }
    return &at->second;
  }

  std::vector<GemmAlgorithm> choices() STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::map<GemmKey, Algorithm> all = recorded_;
    for (const auto& [where, plan] : plans_)
      std::memcpy(all[where.second].data(), &plan.algo, sizeof plan.algo);
    std::vector<GemmAlgorithm> choices;
    for (const auto& [key, algorithm] : all) choices.push_back({key, algorithm});
    return choices;
  }
  void use(const std::vector<GemmAlgorithm>& choices) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (const GemmAlgorithm& choice : choices) recorded_[choice.of] = choice.algorithm;
  }

  static GemmPlanCache& instance() {
    static GemmPlanCache cache;
    return cache;
  }

 private:
  Mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_ STRATA_GUARDED_BY(mutex_);
  std::map<std::pair<int, GemmKey>, GemmPlan> plans_ STRATA_GUARDED_BY(mutex_);
  std::map<GemmKey, Algorithm> recorded_ STRATA_GUARDED_BY(mutex_);
};

/// The key of a GEMM's plan: everything that the plan depends on.
GemmKey key_of(const Gemm& g, bool has_bias, const Fp8GemmScales* fp8, std::size_t workspace_bytes) {
  return {.trans_a = g.trans_a,
          .trans_b = g.trans_b,
          .has_bias = has_bias,
          .dtype = g.dtype,
          .b_dtype = fp8 == nullptr ? g.dtype : fp8->b_dtype,
          .c_dtype = g.c_dtype,
          .m = g.m,
          .n = g.n,
          .k = g.k,
          .lda = g.lda,
          .ldb = g.ldb,
          .ldc = g.ldc,
          .a_align = alignment_of(g.a),
          .b_align = alignment_of(g.b),
          .c_align = alignment_of(g.c),
          .workspace_bytes = workspace_bytes};
}

}  // namespace

Status device_gemm(const Gemm& g, const void* row_bias, BufferView workspace, cudaStream_t queue,
                   const Fp8GemmScales* fp8) {
  if (g.m == 0 || g.n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const CublasLt* const lt, cublas_lt());
  int device = 0;
  STRATA_CUDA_TRY(cudaGetDevice(&device));
  const GemmKey key = key_of(g, row_bias != nullptr, fp8, workspace.bytes);
  cublasLtHandle_t handle = nullptr;
  STRATA_TRY_ASSIGN(const GemmPlan* const p, GemmPlanCache::instance().get(*lt, g, key, device, handle));
  cublasLtMatmulDesc_t desc = p->desc;
  // A call's addresses go into a copy of the plan's descriptor. cuBLASLt's A is our B.
  cublasLtMatmulDescOpaque_t own;
  if (row_bias != nullptr || fp8 != nullptr) {
    own = *p->desc;
    desc = &own;
  }
  if (row_bias != nullptr)
    STRATA_LT_TRY(lt->desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row_bias, sizeof row_bias));
  if (fp8 != nullptr) {
    STRATA_LT_TRY(
        lt->desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &fp8->b_scale_inv, sizeof fp8->b_scale_inv));
    STRATA_LT_TRY(
        lt->desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &fp8->a_scale_inv, sizeof fp8->a_scale_inv));
  }
  const float one = 1.0f, beta = g.accumulate ? 1.0f : 0.0f;
  STRATA_LT_TRY(lt->matmul(handle, desc, &one, g.b, p->first, g.a, p->second, &beta, g.c, p->result, g.c,
                           p->result, &p->algo, workspace.data, workspace.bytes, queue));
  return Status::ok();
}

}  // namespace strata::kernels::detail

namespace strata::kernels {

std::string cuda_gemm_algorithms() { return detail::to_text(detail::GemmPlanCache::instance().choices()); }

Status use_cuda_gemm_algorithms(std::string_view text) {
  STRATA_TRY_ASSIGN(const std::vector<detail::GemmAlgorithm> choices, detail::parse_gemm_algorithms(text));
  detail::GemmPlanCache::instance().use(choices);
  return Status::ok();
}

}  // namespace strata::kernels
