#pragma once

#include <cstddef>
#include <memory>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>

namespace strata {

struct NullBackendOptions {
  std::size_t device_bytes = 0;  ///< cap on device memory; 0: none
  std::size_t pinned_bytes = 0;  ///< cap on pinned memory; 0: none
};

/// Creates a backend for dry runs: buffers are reserved address space that must not be touched, and work
/// counts as complete as soon as it is queued, without running. Caps and counters behave as on a real
/// backend, so running the real scheduler on it proves that a run fits.
Result<std::unique_ptr<Backend>> create_null_backend(const NullBackendOptions& options = {});

}  // namespace strata
