#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// Equal units of `size` elements, one after the other.
struct CutSegment {
  std::int64_t units = 0;
  std::int64_t size = 1;
  bool from_last = false;  ///< the first units are those of the last rank, and so on
  friend bool operator==(const CutSegment&, const CutSegment&) = default;
};

/// How an extent is divided among the ranks along an axis of the mesh. The units of each segment are dealt
/// out evenly, in order; if there are fewer units than ranks, neighbours have the same one; if they are no
/// multiple of the ranks and the cut allows it, the first ranks have one more. A rank's shard consists of its
/// units of the first segment, then those of the second, ... So the rows q|k|v of a fused matrix are three
/// segments, whose units are heads.
///
/// The tokens of several sequences are `times` the segments of one. Two equal segments, of which the second
/// is dealt out from the last rank on, give each rank as much work of causal attention (zigzag; Zhu 2024).
struct Cut {
  std::array<CutSegment, 3> segment = {};
  std::int64_t n = 0;          ///< segments; none: the extent is not divided
  std::int64_t times = 1;      ///< that the segments follow each other
  bool has_remainder = false;  ///< whether the first ranks have one unit more

  /// One segment of `extent` units of one element.
  static Cut even(std::int64_t extent) noexcept { return {{CutSegment{extent, 1}}, 1}; }
  /// The same, where the ranks need not divide the extent.
  static Cut nearly_even(std::int64_t extent, int ranks) noexcept {
    return {{CutSegment{extent, 1}}, 1, 1, extent % ranks != 0};
  }
  /// Cuts `sequences` of `length` elements: every rank has one part of each sequence, or two if it is zigzag.
  static Cut of_sequences(std::int64_t sequences, std::int64_t length, int ranks, bool zigzag) noexcept;
  std::span<const CutSegment> all() const noexcept { return {segment.data(), static_cast<std::size_t>(n)}; }
  std::int64_t extent() const noexcept;
  /// Whether the units of every segment are a multiple of the ranks, or the other way round, or a remainder
  /// is allowed.
  bool divides(int ranks) const noexcept;
  /// Elements of a rank's shard, which are as many on every rank if there is no remainder.
  std::int64_t shard_extent(int ranks, int rank = 0) const noexcept;
  /// Whether some ranks have the same elements.
  bool repeats(int ranks) const noexcept;
  friend bool operator==(const Cut&, const Cut&) = default;
};
/// "32 x 128 | 8 x 128 | 8 x 128", for messages.
std::string to_string(const Cut& cut);

/// Elements [whole, whole + n) of the extent, which are elements [shard, shard + n) of a rank's shard.
struct CutRun {
  std::int64_t whole = 0, shard = 0, n = 0;
  friend bool operator==(const CutRun&, const CutRun&) = default;
};
/// The elements of a rank's shard, one run for each segment each time. `cut` divides the ranks.
std::vector<CutRun> runs_of(const Cut& cut, int ranks, int rank);

}  // namespace strata
