#include <strata/session/ranks/model_parallel.h>

#include <strata/runtime/str.h>

namespace strata {

std::int32_t ModelParallel::size(MeshAxis axis) const noexcept {
  switch (axis) {
    case MeshAxis::pp:
      return pp;
    case MeshAxis::cp:
      return cp;
    case MeshAxis::tp3:
      return tp3;
    case MeshAxis::tp2:
      return tp2;
    case MeshAxis::tp:
      return tp;
    case MeshAxis::dp:
    case MeshAxis::fsdp:
      break;
  }
  return 1;
}

std::int32_t ModelParallel::place(MeshAxis axis) const noexcept {
  std::int32_t within = rank;
  for (std::size_t i = kModelAxes.size(); i-- > 0;) {
    const std::int32_t n = size(kModelAxes[i]);
    if (kModelAxes[i] == axis) return within % n;
    within /= n;
  }
  return 0;
}

std::string to_string(const ModelParallel& model) {
  std::string text;
  for (const MeshAxis axis : kModelAxes)
    if (model.size(axis) > 1) text += str(text.empty() ? "" : " x ", to_string(axis), " ", model.size(axis));
  return text.empty() ? "1 rank" : text;
}

Result<DeviceMesh> mesh_of(const DataParallel& ranks, const ModelParallel& model) {
  return DeviceMesh::create(
      {ranks.replicas(), ranks.shards(), model.pp, model.cp, model.tp3, model.tp2, model.tp},
      ranks.ranks * model.ranks());
}

std::int32_t rank_in_mesh(const DataParallel& ranks, const ModelParallel& model) noexcept {
  return ranks.rank * model.ranks() + model.rank;
}

Status check(const ModelParallel& model) {
  for (const MeshAxis axis : kModelAxes)
    if (model.size(axis) < 1)
      return Status::error(Code::invalid, str("parallel.", to_string(axis), " is ", model.size(axis),
                                              "; it must be at least 1"));
  if (model.rank < 0 || model.rank >= model.ranks())
    return Status::error(Code::invalid, str("rank ", model.rank, " does not exist among the ", model.ranks(),
                                            " that share a copy of the model"));
  return {};
}

}  // namespace strata
