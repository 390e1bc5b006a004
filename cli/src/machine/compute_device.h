#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/io.h>
#include <strata/runtime/thread_pool.h>
#include <strata/runtime/trace.h>

namespace strata::cli {

/// What computes: this machine's cores, or its first GPU.
struct ComputeDevice {
  DeviceKind kind = DeviceKind::host;
  std::string name;              ///< of a GPU
  std::uint64_t free_bytes = 0;  ///< of a GPU
  int compute_capability = 0;    ///< of a GPU, ten times it
};
/// `backend`: host or cuda, as memory.backend has it. Errors: `unsupported`: there is no such GPU, or it is
/// older than the kernels are built for.
Result<ComputeDevice> compute_device(const std::string& backend);

struct BackendOptions {
  std::uint64_t device_bytes = 0;  ///< cap of a GPU's memory; 0: none
  std::size_t queue_depth = 1024;
  Trace* trace = nullptr;  ///< of the host backend alone
};
Result<std::unique_ptr<Backend>> create_backend(DeviceKind kind, const BackendOptions& options,
                                                ThreadPool& pool, Clock& clock);

/// By which products and where, for whoever compares bits: "AVX512-BF16", "cuBLASLt 13.1.0 on NVIDIA H200".
/// `dtype` and `attention`: of the run; where cuDNN attends, it is named, too. Empty: they are the same on
/// all machines that run this.
std::string gemm_implementation(const std::string& backend, const std::string& dtype,
                                const std::string& attention);
/// By which algorithms a GPU's products were made so far, for load_gemm_algorithms(); `implementation`: of
/// gemm_implementation().
std::string gemm_algorithms_text(const std::string& implementation);
/// From here on a GPU's products are made by the algorithms that `file` holds, where there is one. False
/// where it is a record of other products: then nothing changes. Errors: `invalid` with the line that is
/// none.
Result<bool> load_gemm_algorithms(const std::string& file, const std::string& implementation, Io& io);

}  // namespace strata::cli
