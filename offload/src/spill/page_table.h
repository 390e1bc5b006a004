#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <strata/runtime/io/io_ticket.h>

namespace strata::detail {

/// Pages are numbered in the order of their objects, so that a lower number is older.
using PageNumber = std::uint64_t;

enum class PageState : std::uint8_t {
  copying,  ///< its frame is being filled by put()
  dirty,    ///< in its frame alone
  writing,  ///< the same, and a write is in flight
  clean,    ///< in its frame and on NVMe
  stored,   ///< on NVMe alone; it has no frame
  reading,  ///< on NVMe, and a read into its frame is in flight
};
inline constexpr std::size_t kPageStates = 6;

constexpr bool is_valid_transition(PageState from, PageState to) noexcept {
  using enum PageState;
  switch (from) {
    case copying:
      return to == dirty;
    case dirty:
      return to == writing;
    case writing:
      return to == clean || to == dirty;  // written, or failed
    case clean:
      return to == stored;  // its frame is used for another page
    case stored:
      return to == reading;
    case reading:
      return to == clean || to == stored;  // read, or failed
  }
  return false;
}

using FrameIndex = std::uint32_t;
inline constexpr FrameIndex kNoFrame = ~FrameIndex{0};

struct Page {
  PageState state = PageState::copying;
  FrameIndex frame = kNoFrame;
  std::uint32_t bytes = 0;
  std::uint32_t part = 0;     // the part of the NVMe tier; from writing on
  std::uint32_t readers = 0;  // threads that copy from its frame
  bool is_dead = false;       // removed when its request has ended and its readers are done
  bool write_failed = false;  // not written again before put() has returned the error
  std::uint64_t object = 0;
  IoTicket ticket;
};

/// The pages of a SpillStore, their states, and the frames of pinned memory that they are in. Guarded by its
/// owner.
class PageTable {
 public:
  explicit PageTable(std::uint32_t n_frames);

  /// Adds a page in the state copying. Requires a free frame.
  Page& add(PageNumber number, std::uint64_t object, std::uint32_t bytes);
  void remove(PageNumber number);
  Page* find(PageNumber number);
  Page& operator[](PageNumber number);
  /// Takes a frame for `reading`, gives it back for `stored`.
  void set(PageNumber number, PageState to);

  std::size_t n(PageState state) const noexcept { return numbers(state).size(); }
  const std::set<PageNumber>& numbers(PageState state) const noexcept {
    return by_state_[static_cast<std::size_t>(state)];
  }
  std::uint32_t n_free_frames() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t n_used_frames() const noexcept { return n_frames_ - n_free_frames(); }

  std::optional<PageNumber> oldest_to_write() const;  ///< dirty, and its write has not failed
  std::optional<PageNumber> oldest_to_drop() const;   ///< clean, without readers
  /// Clean, without readers, and not of [from, to): the oldest below `from`, or else the newest.
  std::optional<PageNumber> clean_outside(PageNumber from, PageNumber to) const;
  std::optional<PageNumber> newest_stored(PageNumber below) const;
  /// The oldest of [from, to).
  std::optional<PageNumber> oldest_stored(PageNumber from, PageNumber to) const;
  bool forget_failed_writes();  ///< whether there were any

 private:
  std::set<PageNumber>& of(PageState state) noexcept { return by_state_[static_cast<std::size_t>(state)]; }

  const std::uint32_t n_frames_;
  std::map<PageNumber, Page> pages_;
  std::array<std::set<PageNumber>, kPageStates> by_state_;
  std::vector<FrameIndex> free_;
};

}  // namespace strata::detail
