#include <strata/parallel/device_mesh.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {
constexpr std::array<std::string_view, kMeshAxes> kNames = {"dp", "fsdp", "pp", "cp", "tp3", "tp2", "tp"};
}

std::string_view to_string(MeshAxis axis) noexcept { return kNames[static_cast<std::size_t>(axis)]; }

Result<DeviceMesh> DeviceMesh::create(const Coordinates& sizes, int ranks) {
  DeviceMesh mesh;
  mesh.sizes_ = sizes;
  std::int64_t product = 1;
  for (std::size_t i = 0; i < kMeshAxes; ++i) {
    if (sizes[i] < 1)
      return Status::error(Code::invalid, str("the mesh has ", sizes[i], " ranks along ", kNames[i]));
    product *= sizes[i];
  }
  if (product != ranks)
    return Status::error(Code::invalid, str("the mesh ", mesh.description(), " has ", product,
                                            " ranks, but the run has ", ranks));
  return mesh;
}

int DeviceMesh::ranks() const noexcept {
  int product = 1;
  for (const int size : sizes_) product *= size;
  return product;
}

DeviceMesh::Coordinates DeviceMesh::coordinates(int rank) const noexcept {
  Coordinates at{};
  for (std::size_t i = kMeshAxes; i-- > 0; rank /= sizes_[i]) at[i] = rank % sizes_[i];
  return at;
}

int DeviceMesh::rank(const Coordinates& coordinates) const noexcept {
  int rank = 0;
  for (std::size_t i = 0; i < kMeshAxes; ++i) rank = rank * sizes_[i] + coordinates[i];
  return rank;
}

std::vector<int> DeviceMesh::along(MeshAxis axis, int rank) const {
  Coordinates at = coordinates(rank);
  std::vector<int> found;
  for (int i = 0; i < size(axis); ++i) {
    at[static_cast<std::size_t>(axis)] = i;
    found.push_back(this->rank(at));
  }
  return found;
}

std::string DeviceMesh::description() const {
  std::string text;
  for (std::size_t i = 0; i < kMeshAxes; ++i)
    if (sizes_[i] > 1) text += str(text.empty() ? "" : " x ", kNames[i], " ", sizes_[i]);
  return text.empty() ? "1 rank" : text;
}

}  // namespace strata
