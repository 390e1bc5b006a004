#include <strata/session/ranks/rank_groups.h>

#include <numeric>
#include <vector>

#include <strata/runtime/str.h>

namespace strata {

Result<RankGroups> RankGroups::create(ProcessGroup& world, const DataParallel& ranks) {
  if (world.size() != ranks.ranks || world.rank() != ranks.rank)
    return Status::error(Code::invalid, str("the plan is for rank ", ranks.rank, " of ", ranks.ranks,
                                            ", but this is rank ", world.rank(), " of ", world.size()));
  RankGroups groups(world);
  if (ranks.sums_in_program()) {
    std::vector<int> in_order(static_cast<std::size_t>(ranks.ranks));
    std::iota(in_order.begin(), in_order.end(), 0);
    STRATA_TRY_ASSIGN(groups.in_program_, world.split(in_order));
  }
  if (ranks.shards() == 1 || ranks.replicas() == 1) return groups;
  STRATA_TRY_ASSIGN(const DeviceMesh mesh, mesh_of(ranks));
  std::vector<int> all(static_cast<std::size_t>(ranks.ranks));
  for (std::int32_t rank = 0; rank < ranks.ranks; ++rank)
    all[static_cast<std::size_t>(ranks.part(rank))] = rank;
  STRATA_TRY_ASSIGN(groups.sums_, world.split(all));
  STRATA_TRY_ASSIGN(groups.shards_, world.split(mesh.along(MeshAxis::fsdp, ranks.rank)));
  STRATA_TRY_ASSIGN(groups.replicas_, world.split(mesh.along(MeshAxis::dp, ranks.rank)));
  return groups;
}

GroupCounters RankGroups::counters() const noexcept {
  GroupCounters all = world_->counters();
  for (const auto* group : {&sums_, &shards_, &replicas_, &in_program_}) {
    if (*group == nullptr) continue;
    const GroupCounters more = (*group)->counters();
    all.calls += more.calls;
    all.sent_bytes += more.sent_bytes;
    all.received_bytes += more.received_bytes;
  }
  return all;
}

}  // namespace strata
