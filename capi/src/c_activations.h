#pragma once

#include <memory>

#include <strata.h>
#include <strata/offload/spill_store.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>

#include "handle_table.h"

namespace strata::capi {

/// Activations behind a handle: a SpillStore with what it needs. Thread-safe.
class CActivations {
 public:
  /// Errors: `invalid`, naming the option; `does_not_fit` if the machine has not the memory; `out_of_memory`.
  static Result<std::shared_ptr<CActivations>> create(const strata_activation_options& options);

  SpillStore& store() const noexcept { return *store_; }

 private:
  CActivations() = default;
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<SpillStore> store_;
};

/// The activations of the process.
inline Result<HandleTable<CActivations>*> activations_table() { return table_of_process<CActivations, 1>(); }

}  // namespace strata::capi
