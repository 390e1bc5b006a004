#include "mpi/peers.h"

#include <algorithm>
#include <cstring>

#include <strata/runtime/str.h>

namespace strata::detail {

Status lost_peer(const LeaveCause& cause, int size) {
  return Status::error(Code::lost_peer, str("rank ", cause.rank, " of ", size, " has left the group",
                                            cause.reason.empty() ? "" : ": ", cause.reason));
}

Peers::Peers(int id, int rank, std::vector<int> world_ranks)
    : id_(id), rank_(rank), world_ranks_(std::move(world_ranks)), peers_(world_ranks_.size()) {}

bool Peers::is_lost(int rank, bool sends) const {
  const Peer& p = peer(rank);
  return p.left && (sends ? p.sent >= p.all_received : p.received >= p.all_sent);
}

LeaveMessage Peers::leave_message(int to, const LeaveCause& cause) const {
  LeaveMessage message{
      .group = id_, .cause = cause.rank, .sent = peer(to).sent, .received = peer(to).received};
  const std::size_t n = std::min(cause.reason.size(), sizeof message.reason - 1);
  std::memcpy(message.reason, cause.reason.data(), n);
  return message;
}

void Peers::note(const LeaveMessage& message, int from_world_rank) {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), from_world_rank);
  if (found == world_ranks_.end()) return;
  Peer& from = peers_[static_cast<std::size_t>(found - world_ranks_.begin())];
  from.left = true;
  from.all_sent = message.sent;
  from.all_received = message.received;
  from.cause = {message.cause, std::string(message.reason, ::strnlen(message.reason, sizeof message.reason))};
}

}  // namespace strata::detail
