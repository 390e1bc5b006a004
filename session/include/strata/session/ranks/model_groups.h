#pragma once

#include <map>
#include <memory>
#include <utility>

#include <strata/parallel/process_group.h>
#include <strata/session/ranks/model_parallel.h>

namespace strata {

/// The groups in which the ranks that share a copy of the model exchange activations and gradients.
class ModelGroups {
 public:
  /// A collective call of all ranks. `world` outlives the object. Errors: `invalid` if its size or rank is
  /// not that of the mesh; those of ProcessGroup::split().
  static Result<ModelGroups> create(ProcessGroup& world, const DataParallel& ranks,
                                    const ModelParallel& model);

  /// The ranks that share this rank's copy of the model.
  ProcessGroup& all() const noexcept { return *all_; }
  /// The ranks of the same copies' place: those that DataParallel counts.
  ProcessGroup& data() const noexcept { return *data_; }
  /// The ranks along an axis.
  ProcessGroup& along(MeshAxis axis) const { return *along_.at(axis); }
  /// Creates the group of `n` neighbours along an axis, to which this rank belongs, if it does not exist yet.
  /// A collective call.
  Status prepare_neighbours(MeshAxis axis, std::int32_t n);
  ProcessGroup& neighbours(MeshAxis axis, std::int32_t n) const { return *neighbours_.at({axis, n}); }
  /// The counters of all groups together, except `data`.
  GroupCounters counters() const noexcept;

 private:
  ModelGroups() = default;
  std::unique_ptr<ProcessGroup> all_, data_;
  std::map<MeshAxis, std::unique_ptr<ProcessGroup>> along_;
  std::map<std::pair<MeshAxis, std::int32_t>, std::unique_ptr<ProcessGroup>> neighbours_;
};

}  // namespace strata
