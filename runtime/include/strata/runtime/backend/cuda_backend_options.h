#pragma once

#include <cstddef>

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

}  // namespace strata
