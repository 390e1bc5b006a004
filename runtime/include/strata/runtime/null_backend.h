#pragma once

#include <cstddef>
#include <memory>

#include <strata/runtime/backend.h>
#include <strata/runtime/status.h>

namespace strata {

struct NullBackendOptions {
  std::size_t device_bytes = 0;  ///< cap on device memory; 0: none
  std::size_t pinned_bytes = 0;  ///< cap on pinned memory; 0: none
};

/// A backend that plans: buffers are address space that may not be touched, work completes as it is queued
/// without running, and caps and counters hold as on a real one. The real scheduler over it proves that a run
/// fits.
Result<std::unique_ptr<Backend>> create_null_backend(const NullBackendOptions& options = {});

}  // namespace strata
