#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <strata/chunk/types.h>

namespace strata {

/// One use of a payload in the schedule, which is known in advance.
struct Use {
  std::int32_t position = 0;
  PayloadKey key;
  Tier tier = Tier::device;
};

/// When each payload is used first in a pass that is to come, in device and in pinned memory.
class FirstUses {
 public:
  /// `uses` in order of position, below `cycle`. They are copied.
  FirstUses(std::size_t n_chunks, std::span<const Use> uses, std::int32_t cycle);
  /// kNever if there is none.
  std::int32_t of(PayloadKey key, Tier tier) const noexcept { return first_[index_of(key)][index_of(tier)]; }
  std::int32_t cycle() const noexcept { return cycle_; }

 private:
  std::vector<std::array<std::int32_t, 2>> first_;  // indexed by key; device, pinned
  std::int32_t cycle_;
};

/// When each payload is needed next, in device and in pinned memory: what eviction and prefetch ask. The
/// caller of the chunk manager sets the uses and the position; the manager marks the uses that were made.
///
/// Invariant: next_use() depends on these calls alone, and is at or after the present position.
class UseSchedule {
 public:
  static constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  static constexpr std::int32_t kImmediately = -1;  ///< before every position

  explicit UseSchedule(std::size_t n_chunks);

  /// Sets the uses from here on, in order of position, and the position to 0. Position `cycle` is position 0
  /// of the next round. The uses are copied.
  void set_uses(std::span<const Use> uses, std::int32_t cycle);
  /// Sets the uses that follow those that are set now, in order. The span is copied, and the objects that it
  /// points to outlive the schedule. Empty: the same uses again.
  void set_following(std::span<const FirstUses* const> following) {
    following_.assign(following.begin(), following.end());
  }
  /// The uses at `position` come next; each counts as pending until its payload is marked as used.
  void set_position(std::int32_t position) noexcept {
    position_ = position;
    ++epoch_;
  }
  /// How often the position has been set: a time for what depends on how long ago something was.
  std::uint64_t n_positions() const noexcept { return epoch_; }
  /// The same one round ago.
  std::uint64_t n_positions_a_round_ago() const noexcept {
    const auto round = static_cast<std::uint64_t>(cycle_);
    return epoch_ > round ? epoch_ - round : 0;
  }
  /// The uses of `key` at this position have been made.
  void mark_used(PayloadKey key) noexcept { last_used_epoch_[index_of(key)] = epoch_; }
  /// Position of the next use of `key` in `tier`, device or pinned. It exceeds the cycle if that is in what
  /// follows, or after that in the next round, and is kNever if there is none.
  std::int32_t next_use(PayloadKey key, Tier tier) const noexcept;
  /// The first use at or after `position`, likewise.
  std::int32_t use_from(PayloadKey key, Tier tier, std::int32_t position) const noexcept;

 private:
  using Positions = std::vector<std::int32_t>;       // ascending
  std::vector<std::array<Positions, 2>> positions_;  // indexed by key; device, pinned
  std::vector<std::uint64_t> last_used_epoch_;       // indexed by key
  std::vector<const FirstUses*> following_;
  std::int32_t position_ = 0, cycle_ = 0;
  std::uint64_t epoch_ = 1;  // incremented by set_position(), since positions repeat each round
};

}  // namespace strata
