#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

/// The device that computes: this machine's CPU cores, or a GPU.
struct ComputeDevice {
  DeviceKind kind = DeviceKind::host;
  // Set for a GPU only:
  std::string name;
  std::uint64_t free_bytes = 0;
  int compute_capability = 0;  ///< times ten: 90 is compute capability 9.0
};
/// `backend`: "host" or "cuda", the value of memory.backend. Errors: `unsupported` if there is no GPU, or if
/// its compute capability is lower than the kernels need.
Result<ComputeDevice> compute_device(const std::string& backend, int gpu = 0);
/// A GPU that can run the kernels, which memory.backend = auto takes. Errors: as compute_device().
Result<ComputeDevice> usable_gpu(int gpu = 0);
/// The GPU of a rank, by its number among the ranks of its machine: that with the same number, or the only
/// one that the launcher lets it see.
int gpu_of_local_rank(int local_rank);

struct BackendOptions {
  int gpu = 0;
  std::uint64_t device_bytes = 0;  ///< cap on the GPU memory; 0: no cap
  std::size_t queue_depth = 1024;
  Trace* trace = nullptr;
};
Result<std::unique_ptr<Backend>> create_backend(DeviceKind kind, const BackendOptions& options,
                                                ThreadPool& pool, Clock& clock);

/// Names the GEMM implementation whose bits a run's results depend on: "AVX512-BF16", "cuBLASLt 13.1.0 on
/// NVIDIA H200". `dtype` and `attention` are those of the run; if attention uses cuDNN, its version is named
/// too. Empty if results are the same on all machines.
std::string gemm_implementation(const std::string& backend, const std::string& dtype,
                                const std::string& attention);
/// The algorithms that GPU GEMMs have used so far, as a text for load_gemm_algorithms(). `implementation`:
/// the result of gemm_implementation().
std::string gemm_algorithms_text(const std::string& implementation);
/// Makes later GPU GEMMs use the algorithms listed in `file`; a missing file changes nothing and is no error.
/// Returns false, and changes nothing, if the file was written for another implementation. Errors: `invalid`
/// with the line that is not an algorithm.
Result<bool> load_gemm_algorithms(const std::string& file, const std::string& implementation, Io& io);

}  // namespace strata
