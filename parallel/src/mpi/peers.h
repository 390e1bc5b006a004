#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata::detail {

// Groups share one MPI communicator and are told apart by their tags. Creating a communicator blocks the
// thread that calls MPI until all members do the same, and what they still wait for could not progress
// meanwhile.
inline constexpr int kGroupBits = 11, kSequenceBits = 16;
inline constexpr int kMaxGroups = 1 << kGroupBits;
inline constexpr int kLargestTag = (1 << (kGroupBits + kSequenceBits + 1)) - 1;

/// Why a rank can no longer take part in a group: the rank of the group that was the first to leave or fail,
/// and the reason if it gave one.
struct LeaveCause {
  int rank = 0;
  std::string reason = {};
};

/// The Status of whoever waits for a rank that has left.
Status lost_peer(const LeaveCause& cause, int size);

/// A message to a member of a group: the sender exchanges nothing more in it.
struct LeaveMessage {
  std::int32_t group = 0, cause = 0;     ///< kLostRank: of the world, `cause` is lost without having left
  std::uint64_t sent = 0, received = 0;  ///< messages to and from the reader until then
  char reason[488] = {};

  void set_reason(std::string_view text);
  std::string reason_text() const;
};
inline constexpr std::int32_t kLostRank = -1;

/// A group as the MPI thread sees it. The counts tell whether a message of a rank that has left is still on
/// its way, since what it announces and what it has sent before may arrive in another order.
class Peers {
 public:
  Peers(int id, int rank, std::vector<int> world_ranks);
  int id() const noexcept { return id_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }

  /// The tag of the call with this number among the calls of the group or, if `pair`, among those from one
  /// rank to another. So the calls of two streams are never confused, in whatever order they run.
  int tag(std::uint64_t sequence, bool pair) const noexcept {
    const auto low = static_cast<int>(sequence % (1U << kSequenceBits));
    return (id_ << (kSequenceBits + 1)) | (low << 1) | (pair ? 1 : 0);
  }

  void count_sent(int rank) { ++peer(rank).sent; }
  void count_received(int rank) { ++peer(rank).received; }
  /// Whether a message to or from the rank that is not complete can never be.
  bool is_lost(int rank, bool sends) const;
  bool has_left(int rank) const { return peer(rank).left; }
  const LeaveCause& cause_of(int rank) const { return peer(rank).cause; }

  LeaveMessage leave_message(int to, const LeaveCause& cause) const;
  /// Ignores a message from a rank that is not a member.
  void note(const LeaveMessage& message, int from_world_rank);
  /// The rank will never be heard of again; ignored if it is not a member or has left.
  void lose(int world_rank, const std::string& reason);

 private:
  struct Peer {
    std::uint64_t sent = 0, received = 0;  // complete messages
    bool left = false;
    std::uint64_t all_sent = 0, all_received = 0;  // messages of the rank that has left
    LeaveCause cause = {};
  };
  int index_of(int world_rank) const;  ///< -1: not a member
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  const int id_, rank_;
  const std::vector<int> world_ranks_;
  std::vector<Peer> peers_;
};

}  // namespace strata::detail
