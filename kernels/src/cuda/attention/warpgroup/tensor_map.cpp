#include "cuda/attention/warpgroup/tensor_map.h"

#include <cuda_runtime_api.h>

#include <string>

#include "backend/cuda/cuda_error.h"

namespace strata::kernels::detail {
namespace {

/// Looks up the driver's function once: libcuda is not linked against.
Status encoder(decltype(&cuTensorMapEncodeTiled)& encode) {
  static decltype(&cuTensorMapEncodeTiled) found = nullptr;
  static const Status looked_for = [] {
    void* at = nullptr;
    cudaDriverEntryPointQueryResult result{};
    constexpr unsigned kSince = 12000;
    STRATA_CUDA_TRY(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, kSince, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess || at == nullptr)
      return Status::error(
          Code::unsupported,
          "attention: the driver lacks cuTensorMapEncodeTiled; install a driver for CUDA 12.0 or later");
    found = reinterpret_cast<decltype(found)>(at);
    return Status::ok();
  }();
  encode = found;
  return looked_for;
}

}  // namespace

Status make_tensor_map(const TmaTensor& matrix, DType dtype, CUtensorMap& map) {
  decltype(&cuTensorMapEncodeTiled) encode = nullptr;
  STRATA_TRY(encoder(encode));
  constexpr cuuint32_t kEveryElement[] = {1, 1, 1};
  const CUresult result =
      encode(&map, dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             3, const_cast<void*>(matrix.at), matrix.sizes, matrix.strides, TmaTensor::kBox, kEveryElement,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return Status::error(Code::internal, "attention: cuTensorMapEncodeTiled rejects a matrix of shape [" +
                                             std::to_string(matrix.sizes[2]) + ", " +
                                             std::to_string(matrix.sizes[1]) + ", " +
                                             std::to_string(matrix.sizes[0]) + "] with error " +
                                             std::to_string(static_cast<int>(result)));
  return Status::ok();
}

}  // namespace strata::kernels::detail
