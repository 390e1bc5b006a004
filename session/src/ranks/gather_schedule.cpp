#include <strata/session/ranks/gather_schedule.h>

#include <algorithm>
#include <set>

namespace strata {
namespace {

// The uses of sharded chunks in order.
std::vector<ChunkPosition> sharded_uses(const UseTrace& uses, const ChunkLayout& layout) {
  std::vector<ChunkPosition> found;
  for (std::size_t i = 0; i < uses.positions.size(); ++i)
    for (const ChunkId chunk : uses.positions[i].params)
      if (layout.has(chunk, Payload::gathered)) found.emplace_back(static_cast<std::int32_t>(i), chunk);
  return found;
}

// Whether at most `n` other chunks are used between two uses of one chunk.
bool stays(const std::vector<ChunkPosition>& uses, std::size_t from, std::size_t to, std::size_t n) {
  std::set<ChunkId> others;
  for (std::size_t i = from + 1; i < to && others.size() <= n; ++i) others.insert(uses[i].second);
  return others.size() <= n;
}

}  // namespace

GatherSchedule gather_schedule(const UseTrace& uses, const ChunkLayout& layout, const DataParallel& ranks) {
  const std::vector<ChunkPosition> found = sharded_uses(uses, layout);
  const auto ahead = static_cast<std::size_t>(ranks.gather_ahead);
  GatherSchedule schedule;
  std::vector<GatherSchedule::Gather>& gathers = schedule.gathers;
  // Both are indexed by chunk: the index of its last use in `found` and of its last gather; -1: none yet.
  std::vector<std::int64_t> last_use(layout.n_chunks(), -1), last_gather(layout.n_chunks(), -1);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [position, chunk] = found[i];
    const std::int64_t before = last_use[chunk];
    last_use[chunk] = static_cast<std::int64_t>(i);
    if (before >= 0 && (ranks.keeps_gathered() || stays(found, static_cast<std::size_t>(before), i, ahead))) {
      gathers[static_cast<std::size_t>(last_gather[chunk])].last = position;
      continue;
    }
    // While the chunks before are in use, but not before this one's last copy was dropped.
    std::int32_t begin = gathers.size() < ahead ? 0
                         : ahead == 0           ? position
                                                : gathers[gathers.size() - ahead].first;
    if (before >= 0) begin = std::max(begin, gathers[static_cast<std::size_t>(last_gather[chunk])].last + 1);
    last_gather[chunk] = static_cast<std::int64_t>(gathers.size());
    gathers.push_back({chunk, begin, position, position});
  }
  std::stable_sort(gathers.begin(), gathers.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  if (ranks.keeps_gathered()) return schedule;
  for (std::size_t g = 0; g < gathers.size(); ++g)
    schedule.by_release.push_back(static_cast<std::int32_t>(g));
  std::stable_sort(
      schedule.by_release.begin(), schedule.by_release.end(), [&](std::int32_t a, std::int32_t b) {
        return gathers[static_cast<std::size_t>(a)].last < gathers[static_cast<std::size_t>(b)].last;
      });
  return schedule;
}

}  // namespace strata
