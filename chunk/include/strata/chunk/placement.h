#pragma once

#include <array>
#include <optional>
#include <vector>

#include <strata/chunk/layout.h>
#include <strata/chunk/types.h>
#include <strata/runtime/status.h>

namespace strata {

/// The slots of one size; each payload of a chunk belongs to the class of its size.
struct SizeClass {
  std::size_t slot_bytes = 0;
  /// Slots in addition to the homes. In device and pinned memory they are the window through which payloads
  /// pass; on nvme they are the spare extents into which new generations are written.
  std::array<std::uint32_t, kTiers> window{};
  /// Further nvme extents for snapshots, that is, old generations kept in addition to newer ones.
  std::uint32_t snapshots = 0;
};

/// The home of every payload (the tier where it lives between uses, in a slot of its own) and the size of
/// each tier's window. The planner computes it and the chunk manager follows it. A payload without a home
/// exists only temporarily.
struct Placement {
  std::vector<SizeClass> classes;
  std::vector<std::array<std::optional<Tier>, kPayloads>> homes;  ///< indexed by chunk, then payload
  /// The class in whose device window the payloads of each class pass: its own, or a larger one, so that
  /// classes that are used at different times share memory. A class with homes on the device has its own.
  /// Empty: each has its own.
  std::vector<std::uint32_t> device_windows;

  std::optional<Tier> home(PayloadKey key) const {
    return homes[key.chunk][static_cast<std::size_t>(key.payload)];
  }
  /// Number of homes in `tier`, by class.
  std::vector<std::uint32_t> home_counts(const ChunkLayout& layout, Tier tier) const;
  /// The class of a payload; `layout` must be the one that the classes were made for.
  std::uint32_t class_of(const ChunkLayout& layout, PayloadKey key) const;
  /// The class whose slots in `tier` a payload of `size_class` gets.
  std::uint32_t window_class(std::uint32_t size_class, Tier tier) const noexcept {
    return tier == Tier::device && !device_windows.empty() ? device_windows[size_class] : size_class;
  }
  /// Bytes of all slots (homes and window) in `tier`.
  std::size_t bytes(const ChunkLayout& layout, Tier tier) const;
  /// Whether a chunk manager can follow it: there are homes for all chunks, only for payloads that exist, a
  /// spare extent in every class with homes on nvme, and device windows that are large enough. Errors:
  /// `invalid`.
  Status check(const ChunkLayout& layout) const;
};
/// The distinct payload sizes of `layout`, smallest first, with empty windows.
std::vector<SizeClass> slot_classes(const ChunkLayout& layout);

}  // namespace strata
