#pragma once

#include <strata/offload/placement_planner.h>
#include <strata/runtime/rng.h>

namespace strata::test {

/// Draws for each size class the window on the device through which its payloads pass: its own, or a larger
/// one.
inline void random_device_windows(const Rng& rng, const ChunkLayout& layout, Placement& placement) {
  const std::vector<std::uint32_t> homes = placement.home_counts(layout, Tier::device);
  const auto n = static_cast<std::uint32_t>(placement.classes.size());
  placement.device_windows.resize(n);
  for (std::uint32_t c = n; c-- > 0;) {
    std::vector<std::uint32_t> windows = {c};
    for (std::uint32_t w = c + 1; w < n && homes[c] == 0; ++w)
      if (placement.device_windows[w] == w) windows.push_back(w);
    placement.device_windows[c] = windows[rng.below(c, windows.size())];
  }
}

/// Draws the homes of every chunk from `seed`: all states on the device, or each payload in RAM or on nvme;
/// the accumulated gradient on any tier. With every other seed, windows on the device are shared.
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
  if (seed % 2 == 0) random_device_windows(Rng(seed, 3), layout, placement);
}

}  // namespace strata::test
