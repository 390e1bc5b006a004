#pragma once

#include <cstddef>
#include <string>

#include <strata/runtime/status.h>

namespace strata {

/// Whether this build has CUDA and this machine has a usable GPU.
bool cuda_available();
/// 0 if no GPU is usable.
int cuda_device_count();
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

}  // namespace strata
