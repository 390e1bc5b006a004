// Defines the symbols of cuda_backend.cpp and cuda_devices.cpp in builds without CUDA.
#include <strata/runtime/backend/cuda_backend.h>

namespace strata {

int cuda_device_count() { return 0; }
bool cuda_available() { return false; }
std::string cuda_status() { return "no GPU: this build has no CUDA"; }

Result<CudaDevice> cuda_device(int device) {
  (void)device;
  return Status::error(Code::unsupported, cuda_status());
}

Result<std::unique_ptr<Backend>> create_cuda_backend(const CudaBackendOptions& options, ThreadPool& pool) {
  (void)options, (void)pool;
  return Status::error(Code::unsupported, cuda_status());
}

}  // namespace strata
