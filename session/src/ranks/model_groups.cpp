#include <strata/session/ranks/model_groups.h>

#include <vector>

#include <strata/runtime/str.h>

namespace strata {

Result<ModelGroups> ModelGroups::create(ProcessGroup& world, const DataParallel& ranks,
                                        const ModelParallel& model) {
  STRATA_TRY_ASSIGN(const DeviceMesh mesh, mesh_of(ranks, model));
  const std::int32_t rank = rank_in_mesh(ranks, model);
  if (world.size() != mesh.ranks() || world.rank() != rank)
    return Status::error(Code::invalid, str("the plan is for rank ", rank, " of ", mesh.ranks(),
                                            ", but this is rank ", world.rank(), " of ", world.size()));
  std::vector<int> sharing, same_place;
  for (std::int32_t i = 0; i < model.ranks(); ++i) sharing.push_back(ranks.rank * model.ranks() + i);
  for (std::int32_t i = 0; i < ranks.ranks; ++i) same_place.push_back(i * model.ranks() + model.rank);
  ModelGroups groups;
  STRATA_TRY_ASSIGN(groups.all_, world.split(sharing));
  STRATA_TRY_ASSIGN(groups.data_, world.split(same_place));
  for (const MeshAxis axis : kModelAxes) {
    if (mesh.size(axis) == 1) continue;
    STRATA_TRY_ASSIGN(groups.along_[axis], world.split(mesh.along(axis, rank)));
  }
  return groups;
}

Status ModelGroups::prepare_neighbours(MeshAxis axis, std::int32_t n) {
  std::unique_ptr<ProcessGroup>& group = neighbours_[{axis, n}];
  if (group != nullptr) return {};
  ProcessGroup& all = along(axis);
  std::vector<int> members;
  for (int i = 0; i < n; ++i) members.push_back(all.rank() / n * n + i);
  STRATA_TRY_ASSIGN(group, all.split(members));
  return {};
}

GroupCounters ModelGroups::counters() const noexcept {
  GroupCounters all = all_->counters();
  const auto add = [&all](const ProcessGroup& group) {
    const GroupCounters more = group.counters();
    all.calls += more.calls;
    all.sent_bytes += more.sent_bytes;
    all.received_bytes += more.received_bytes;
  };
  for (const auto& [axis, group] : along_) add(*group);
  for (const auto& [key, group] : neighbours_) add(*group);
  return all;
}

}  // namespace strata
