#pragma once

#include <strata/offload/placement_planner.h>
#include <strata/runtime/rng.h>

namespace strata::test {

/// Draws the homes of every chunk from `seed`: all states on the device, or each payload in RAM or on nvme;
/// the accumulated gradient on any tier.
inline void random_homes(std::uint64_t seed, const ChunkLayout& layout, Placement& placement) {
  const Rng rng(seed, 1);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum}) {
      if (!layout.has(chunk, payload)) continue;
      const bool on_device = rng.below(chunk * 8 + 7, 3) == 0;
      const bool in_ram = rng.below(chunk * 8 + static_cast<std::uint64_t>(payload), 2) == 0;
      const bool sum_on_device = payload == Payload::accum && rng.below(chunk * 8 + 6, 3) == 0;
      placement.homes[chunk][static_cast<std::size_t>(payload)] = on_device || sum_on_device ? Tier::device
                                                                  : in_ram                   ? Tier::pinned
                                                                                             : Tier::nvme;
    }
}

}  // namespace strata::test
