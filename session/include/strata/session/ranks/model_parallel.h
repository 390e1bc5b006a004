#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <strata/parallel/device_mesh.h>
#include <strata/session/ranks/data_parallel.h>

namespace strata {

/// How ranks share the layers and sequences of one copy of the model, along axes of the mesh. They run the
/// same micro-batches, and count as one rank of DataParallel. All ranks have the same values except `rank`.
struct ModelParallel {
  std::int32_t pp = 1, cp = 1, tp3 = 1, tp2 = 1, tp = 1;
  std::int32_t rank = 0;  ///< among those that share a copy; neighbours in number are neighbours along tp

  std::int32_t ranks() const noexcept { return pp * cp * tp3 * tp2 * tp; }
  /// Ranks along an axis; 1 for axes that do not share the model.
  std::int32_t size(MeshAxis axis) const noexcept;
  /// This rank's number along an axis.
  std::int32_t place(MeshAxis axis) const noexcept;
};
/// The axes along which ranks share the model, outermost first.
inline constexpr std::array kModelAxes = {MeshAxis::pp, MeshAxis::cp, MeshAxis::tp3, MeshAxis::tp2,
                                          MeshAxis::tp};
/// The axes along which tensors are divided.
inline constexpr std::array kSplitAxes = {MeshAxis::cp, MeshAxis::tp3, MeshAxis::tp2, MeshAxis::tp};
/// "cp 2 x tp 4"
std::string to_string(const ModelParallel& model);

/// All ranks of a run. Errors: those of DeviceMesh::create().
Result<DeviceMesh> mesh_of(const DataParallel& ranks, const ModelParallel& model);
/// The number of this rank in that mesh, whose neighbours are those that share a copy of the model.
std::int32_t rank_in_mesh(const DataParallel& ranks, const ModelParallel& model) noexcept;
/// Errors: `invalid`, naming the numbers.
Status check(const ModelParallel& model);

}  // namespace strata
