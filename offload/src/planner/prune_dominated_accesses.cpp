#include <algorithm>
#include <map>
#include <vector>

#include "planner/placement_windows.h"

namespace strata::detail {

AccessTrace prune_dominated_accesses(const AccessTrace& trace) {
  std::vector<std::vector<std::uint64_t>> sets;
  for (const AccessTrace::Access& access : trace.accesses) {
    std::vector<std::uint64_t> keys;
    for (const PayloadKey key : access.on_device)
      keys.push_back(std::uint64_t{key.chunk} * kPayloads + static_cast<std::uint64_t>(key.payload));
    std::sort(keys.begin(), keys.end());
    if (!keys.empty()) sets.push_back(std::move(keys));
  }
  std::sort(sets.begin(), sets.end(),
            [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
  std::map<std::uint64_t, std::vector<std::size_t>> kept_with;  // the kept sets that contain each key
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    // Sets with its rarest key are looked at, as nearly all accesses may share another.
    const std::uint64_t rarest = *std::min_element(
        sets[i].begin(), sets[i].end(),
        [&](std::uint64_t a, std::uint64_t b) { return kept_with[a].size() < kept_with[b].size(); });
    const std::vector<std::size_t>& near = kept_with[rarest];
    if (std::any_of(near.begin(), near.end(), [&](std::size_t k) {
          return std::includes(sets[k].begin(), sets[k].end(), sets[i].begin(), sets[i].end());
        }))
      continue;
    kept.push_back(i);
    for (const std::uint64_t key : sets[i]) kept_with[key].push_back(i);
  }
  AccessTrace out;
  out.micro_batches = trace.micro_batches;
  out.training = trace.training;
  out.keeps_gathered = trace.keeps_gathered;
  out.device_fixed_bytes = trace.device_fixed_bytes;
  out.pinned_fixed_bytes = trace.pinned_fixed_bytes;
  out.nvme_fixed_bytes = trace.nvme_fixed_bytes;
  for (const std::size_t i : kept) {
    AccessTrace::Access access;
    for (const std::uint64_t key : sets[i])
      access.on_device.push_back(
          {static_cast<ChunkId>(key / kPayloads), static_cast<Payload>(key % kPayloads)});
    out.accesses.push_back(std::move(access));
  }
  return out;
}

}  // namespace strata::detail
