#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <strata/runtime/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_pool.h>
#include <strata/runtime/trace.h>

namespace strata {

struct CudaBackendOptions {
  int device = 0;
  std::size_t device_bytes = 0;  ///< cap on device memory; 0: what cudaMalloc gives
  std::size_t pinned_bytes = 0;  ///< cap on pinned memory; 0: none
  bool huge_pages = true;
  /// Of one cudaHostRegister: drivers refuse ones of 512 GiB. A larger pinned buffer takes several.
  std::size_t registration_bytes = std::size_t{64} << 30;
  /// Timed events between the work of streams, which tell counters(), stall_meter() and the trace when it was
  /// done.
  bool timed = true;
  Trace* trace = nullptr;  ///< gets tracks named after the stream roles; outlives the backend
};

/// Whether this build has CUDA and this machine a GPU that it can use.
bool cuda_available();
/// One line for people: the GPUs and versions, or why there are none.
std::string cuda_status();

/// What a GPU is, and how much of it is free.
struct CudaDevice {
  std::string name;
  int compute_capability = 0;  ///< ten times it: 90 of a GPU of 9.0
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;  ///< beside what other processes hold, and what CUDA itself holds for this one
};
/// Makes the GPU's context, which takes a second and some memory of it. Errors: `unsupported` where there is
/// no such GPU, with cuda_status() as the reason.
Result<CudaDevice> cuda_device(int device = 0);

/// One GPU. Device buffers are plain cudaMalloc slabs, pinned ones exact mappings touched by `pool` and
/// registered; `pool` must outlive it. After a sticky CUDA error every call returns
/// that error. Work queued after a host call that fails: host calls are skipped, copies and kernels already
/// queued are not. Errors: `unsupported` where there is no such GPU, with cuda_status() as the reason.
Result<std::unique_ptr<Backend>> create_cuda_backend(const CudaBackendOptions& options, ThreadPool& pool);

}  // namespace strata
