#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <strata/offload/spill_store.h>

namespace strata::detail {

/// The NVMe tier of a SpillStore: slots of a page each, in parts that are opened when they are needed, each
/// as large as all before it. Slots are counted here, and chosen by the stores. Guarded by its owner.
class SpillSpace {
 public:
  /// The memory outlives the space. `first_slots`: of the first part.
  SpillSpace(const SpillOptions& options, std::size_t page_bytes, std::uint32_t first_slots,
             BufferView memory);

  /// Counts a slot as used and returns its part. Opens a part if all are full. Errors: `does_not_fit`; those
  /// of opening.
  Result<std::uint32_t> reserve();
  void give_back(std::uint32_t part) noexcept { --parts_[part].used; }
  /// Gives back a slot for good, after a failed write: the store does not use such slots again.
  void retire(std::uint32_t part) noexcept;
  /// Waits for all requests in flight. Returns false if one never ends.
  bool drain() noexcept;
  ObjectStore& store(std::uint32_t part) const noexcept { return *parts_[part].store; }

  std::uint64_t max_slots() const noexcept { return max_slots_; }
  std::uint64_t n_used() const noexcept;
  std::uint64_t n_retired() const noexcept { return n_retired_; }
  NvmeCounters counters() const;

 private:
  struct Part {
    StorePtr<ObjectStore> store;
    std::uint32_t slots = 0;
    std::uint32_t used = 0;
  };
  Status open(std::uint64_t slots);

  const std::function<Result<StorePtr<ObjectStore>>(const SlotClass&)> open_store_;
  const std::size_t page_bytes_;
  const std::uint32_t first_slots_;
  std::uint64_t max_slots_;  // without retired ones
  std::uint64_t n_retired_ = 0;
  const BufferView memory_;
  std::uint64_t n_slots_ = 0;  // the slots of all parts, without retired ones
  std::vector<Part> parts_;
};

}  // namespace strata::detail
