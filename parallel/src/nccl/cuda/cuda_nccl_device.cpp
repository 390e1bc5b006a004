#include "nccl/cuda/cuda_nccl_device.h"

#include <array>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"

namespace strata::detail {

Result<void*> CudaNcclDevice::stream_handle(Stream& stream) const {
  STRATA_TRY_ASSIGN(const cudaStream_t handle, cuda_stream(stream));
  return static_cast<void*>(handle);
}

Status CudaNcclDevice::reduce_async(const PieceArgs& piece, Stream& stream) const {
  return reduce_on_gpu(piece, stream);
}

Result<GpuIdentity> CudaNcclDevice::identity(Stream& stream) const {
  STRATA_TRY(stream_handle(stream).status());  // selects the device
  GpuIdentity identity;
  int device = 0;
  std::array<char, 32> bus_id{};
  STRATA_CUDA_TRY(cudaGetDevice(&device));
  STRATA_CUDA_TRY(cudaGetDeviceCount(&identity.visible_gpus));
  STRATA_CUDA_TRY(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()) - 1, device));
  identity.bus_id = bus_id.data();
  return identity;
}

}  // namespace strata::detail
