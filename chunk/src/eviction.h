#pragma once

#include <cstdint>
#include <optional>

#include <strata/chunk/placement.h>
#include <strata/chunk/residency_table.h>
#include <strata/chunk/slot_pool.h>
#include <strata/chunk/use_schedule.h>
#include <strata/chunk/write_back_queue.h>

namespace strata::detail {

/// The objects that the choice of a victim reads.
struct EvictionInputs {
  const Placement& placement;
  const UseSchedule& uses;
  const ResidencyTable& residency;
  const SlotPool& slots;
  const WriteBackQueue& write_backs;
};

/// The payload to evict from `tier` so that `key` gets a slot by position `needed_at`: the one whose next use
/// is latest and later than that, and a clean one among equals. Pinned copies, the only copies of payloads
/// without a home, and, unless the slot is needed immediately, recent write-backs are no candidates. None if
/// there is no candidate.
std::optional<PayloadKey> choose_victim(const EvictionInputs& inputs, PayloadKey key, Tier tier,
                                        std::int32_t needed_at) noexcept;

}  // namespace strata::detail
