#include "planner/reuse_window.h"

#include <algorithm>
#include <vector>

namespace strata::detail {
namespace {

/// How many uses of a parameter come after uses of d other chunks since its last one, by d.
std::vector<std::uint64_t> uses_by_distance(const AccessTrace& trace) {
  std::vector<std::uint64_t> uses;
  std::vector<ChunkId> latest;  // the last one used is at the end
  for (const AccessTrace::Access& access : trace.accesses)
    for (const PayloadKey key : access.on_device) {
      if (key.payload != Payload::param && key.payload != Payload::gathered) continue;
      if (const auto last = std::find(latest.rbegin(), latest.rend(), key.chunk); last != latest.rend()) {
        const auto distance = static_cast<std::size_t>(last - latest.rbegin());
        if (uses.size() <= distance) uses.resize(distance + 1);
        ++uses[distance];
        latest.erase(std::next(last).base());
      }
      latest.push_back(key.chunk);
    }
  uses.resize(std::max(uses.size(), latest.size()) + 1);
  return uses;
}

}  // namespace

std::uint32_t reuse_window(const AccessTrace& trace) {
  const std::vector<std::uint64_t> uses = uses_by_distance(trace);
  // loads[w]: uses that do not find their parameter among the w other chunks that were used last.
  std::vector<std::uint64_t> loads(uses.size() + 1, 0);
  for (std::size_t w = uses.size(); w-- > 0;) loads[w] = loads[w + 1] + uses[w];
  const std::size_t half_of_model = uses.size() / 2;
  const std::uint64_t enough = 2 * loads[half_of_model];
  if (loads[1] <= 2 * enough) return 0;
  std::uint32_t window = 1;
  while (loads[window] > enough) ++window;
  return window;
}

}  // namespace strata::detail
