#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// The axes along which ranks divide work and states. The ranks of an inner axis are closer to each other:
/// neighbours in number.
enum class MeshAxis : std::uint8_t {
  dp,    ///< data parallelism: copies of the states
  fsdp,  ///< shards of one copy of the states
  pp,    ///< stages of a pipeline
  cp,    ///< parts of sequences
  tp3,   ///< parts of layers, in layouts of several dimensions
  tp2,   ///< the same
  tp,    ///< parts of layers
};
inline constexpr std::size_t kMeshAxes = 7;
std::string_view to_string(MeshAxis axis) noexcept;

/// The ranks of a run as a grid, outermost axis first.
class DeviceMesh {
 public:
  using Coordinates = std::array<int, kMeshAxes>;  ///< indexed by MeshAxis
  DeviceMesh() noexcept { sizes_.fill(1); }
  /// Errors: `invalid`, naming the axis, for a size below 1, or if the product of all is not `ranks`.
  static Result<DeviceMesh> create(const Coordinates& sizes, int ranks);

  int size(MeshAxis axis) const noexcept { return sizes_[static_cast<std::size_t>(axis)]; }
  int ranks() const noexcept;
  Coordinates coordinates(int rank) const noexcept;
  int rank(const Coordinates& coordinates) const noexcept;
  /// The ranks that differ from `rank` in this axis alone, itself included, in ascending order.
  std::vector<int> along(MeshAxis axis, int rank) const;
  /// "dp 2 x fsdp 4"; "1 rank".
  std::string description() const;

 private:
  Coordinates sizes_{};
};

}  // namespace strata
