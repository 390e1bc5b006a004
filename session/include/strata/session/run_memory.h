#pragma once

#include <array>
#include <functional>
#include <memory>

#include <strata/offload/object_store.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/memory/budget.h>
#include <strata/session/state_plan.h>

namespace strata {

/// One budget for each tier. Several sessions or engines that are given the same budgets stay within them
/// together. Thread-safe.
class TierBudgets {
 public:
  explicit TierBudgets(const TierBytes& limits)
      : budgets_{Budget("device", limits[0]), Budget("pinned", limits[1]), Budget("nvme", limits[2])} {}
  Budget& of(Tier tier) noexcept { return budgets_[static_cast<std::size_t>(tier)]; }
  /// Used + reserved bytes now, and their maximum so far, by tier.
  TierBytes used() const;
  TierBytes peak() const;

 private:
  std::array<Budget, kTiers> budgets_;
};

/// Opens the slow tier with the slot classes of `options`; null if the run has no data to store.
using OpenStore = std::function<Result<StorePtr<ObjectStore>>(const NvmeOptions& options)>;

/// All memory of one plan: a slab on the device, a slab in pinned memory and a store, allocated once. Slabs
/// have exactly the planned size. The driver's memory comes first in each slab, then the session's own, then
/// the slots of chunks.
class RunMemory {
 public:
  /// Charges everything but the chunks' slots to `budgets`, which outlive the object; ChunkManager charges
  /// those. Errors: `does_not_fit`, `out_of_memory`, `no_space`, `io_error`.
  static Result<std::unique_ptr<RunMemory>> create(const StatePlan& plan, std::size_t session_pinned_bytes,
                                                   TierBudgets& budgets, Backend& backend,
                                                   const OpenStore& open_store, Trace* trace);

  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;
  /// Abandons the pinned slab, as the store, if a request of the store never ends.
  ~RunMemory();

  BufferView arena() const noexcept { return arena_; }
  BufferView device_states() const noexcept { return device_states_; }
  BufferView driver_pinned() const noexcept { return driver_pinned_; }
  BufferView session_pinned() const noexcept { return session_pinned_; }
  BufferView device_slots() const noexcept { return device_slots_; }
  BufferView pinned_slots() const noexcept { return pinned_slots_; }
  ObjectStore* store() const noexcept { return store_.get(); }  ///< null if the tier is not used

 private:
  RunMemory() = default;
  std::array<Reservation, 4> reservations_;
  Buffer device_, pinned_;
  BufferView arena_, device_states_, driver_pinned_, session_pinned_, device_slots_, pinned_slots_;
  StorePtr<ObjectStore> store_;
};

}  // namespace strata
