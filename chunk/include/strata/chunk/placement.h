#pragma once

#include <array>
#include <optional>
#include <vector>

#include <strata/chunk/layout.h>
#include <strata/chunk/types.h>

namespace strata {

/// Slots of one size; every payload of a chunk belongs to the class of its size.
struct SizeClass {
  std::size_t slot_bytes = 0;
  /// Slots beyond the homes: in device and pinned memory the window through which payloads pass, on nvme the
  /// spares into which new generations are written.
  std::array<std::uint32_t, kTiers> window{};
  /// On nvme besides: room for generations that stay beside the ones that followed them.
  std::uint32_t snapshots = 0;
};

/// Where every payload lives between uses (its home, whose slot is always its own), and how much room each
/// tier has besides. The planner makes it, the chunk manager obeys it. A payload without a home exists only
/// in passing.
struct Placement {
  std::vector<SizeClass> classes;
  std::vector<std::array<std::optional<Tier>, kPayloads>> homes;  ///< by chunk

  std::optional<Tier> home(PayloadKey key) const {
    return homes[key.chunk][static_cast<std::size_t>(key.payload)];
  }
  /// Homes in `tier`, by class.
  std::vector<std::uint32_t> home_counts(const ChunkLayout& layout, Tier tier) const;
  /// The class of a payload; the layout must be the one the classes were made for.
  std::uint32_t class_of(const ChunkLayout& layout, PayloadKey key) const;
  /// Bytes of all slots (homes and window) in `tier`.
  std::size_t bytes(const ChunkLayout& layout, Tier tier) const;
};
/// The distinct payload sizes of `layout`, smallest first, with empty windows.
std::vector<SizeClass> slot_classes(const ChunkLayout& layout);

}  // namespace strata
