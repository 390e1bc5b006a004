#include "cuda/gemm/cublas_lt.h"

#include <dlfcn.h>

#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/runtime/str.h>

namespace strata::kernels::detail {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

template <class F>
bool find(void* library, const char* name, F& into) {
  into = reinterpret_cast<F>(::dlsym(library, name));
  return into != nullptr;
}

Result<CublasLt> load() {
  std::string why;
  for (const char* name : kNames) {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);  // for the life of the process
    if (library == nullptr) {
      why += str(why.empty() ? "" : "; ", ::dlerror());
      continue;
    }
    CublasLt f{};
    if (find(library, "cublasLtCreate", f.create) &&
        find(library, "cublasLtMatmulDescCreate", f.desc_create) &&
        find(library, "cublasLtMatmulDescSetAttribute", f.desc_set) &&
        find(library, "cublasLtMatrixLayoutCreate", f.layout_create) &&
        find(library, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
        find(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
        find(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set) &&
        find(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic) &&
        find(library, "cublasLtMatmulAlgoCheck", f.algo_check) && find(library, "cublasLtMatmul", f.matmul) &&
        find(library, "cublasLtGetVersion", f.version))
      return f;
    why += str(why.empty() ? "" : "; ", name, " lacks a required function");
  }
  return Status::error(Code::unsupported, str("GEMMs on a GPU need cuBLASLt: ", why));
}

}  // namespace

Result<const CublasLt*> cublas_lt() {
  static const Result<CublasLt> loaded = load();
  if (!loaded.has_value()) return loaded.status();
  return &*loaded;
}

}  // namespace strata::kernels::detail

namespace strata::kernels {

// The version is major * 10000 + minor * 100 + patch (cuBLAS's documentation).
std::string cublaslt_version() {
  const auto lt = detail::cublas_lt();
  if (!lt.has_value()) return "no cuBLASLt";
  const std::size_t version = (*lt)->version();
  return str("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace strata::kernels
