#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

struct CudaBackendOptions {
  int device = 0;
  std::size_t device_bytes = 0;  ///< cap on device memory; 0: none but that of cudaMalloc
  std::size_t pinned_bytes = 0;  ///< cap on pinned memory; 0: none
  bool huge_pages = true;
  /// Maximum bytes of one cudaHostRegister call, since drivers refuse 512 GiB in one. A larger pinned buffer
  /// is registered in several parts.
  std::size_t registration_bytes = std::size_t{64} << 30;
  /// Records timing events between the work of each stream. counters(), stall_meter() and the trace are
  /// derived from them.
  bool timed = true;
  Trace* trace = nullptr;  ///< gets tracks named after the stream roles; must outlive the backend
};

/// Whether this build has CUDA and this machine has a usable GPU.
bool cuda_available();
/// One human-readable line: the GPUs and versions, or why no GPU is usable.
std::string cuda_status();

/// The properties of a GPU and how much of its memory is free.
struct CudaDevice {
  std::string name;
  int compute_capability = 0;  ///< times ten: 90 for compute capability 9.0
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;  ///< excludes what other processes and this process's CUDA context occupy
};
/// Queries GPU `device`. Creates its context, which takes about a second and some device memory. Errors:
/// `unsupported` if there is no such GPU, with cuda_status() as the reason.
Result<CudaDevice> cuda_device(int device = 0);

/// Creates a backend for one GPU. Device buffers are plain cudaMalloc slabs; pinned buffers are exact
/// mappings that `pool` touches and that are then registered. `pool` must outlive the backend. After a sticky
/// CUDA error every call returns that error. When a host call fails, later host calls of its stream are
/// skipped, but copies and kernels already queued still run. Errors: `unsupported` if there is no such GPU,
/// with cuda_status() as the reason.
Result<std::unique_ptr<Backend>> create_cuda_backend(const CudaBackendOptions& options, ThreadPool& pool);

}  // namespace strata
