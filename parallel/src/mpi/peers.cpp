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

void LeaveMessage::set_reason(std::string_view text) {
  std::memcpy(reason, text.data(), std::min(text.size(), sizeof reason - 1));
}

std::string LeaveMessage::reason_text() const {
  return std::string(reason, ::strnlen(reason, sizeof reason));
}

LeaveMessage Peers::leave_message(int to, const LeaveCause& cause) const {
  LeaveMessage message{
      .group = id_, .cause = cause.rank, .sent = peer(to).sent, .received = peer(to).received};
  message.set_reason(cause.reason);
  return message;
}

int Peers::index_of(int world_rank) const {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  return found == world_ranks_.end() ? -1 : static_cast<int>(found - world_ranks_.begin());
}

void Peers::note(const LeaveMessage& message, int from_world_rank) {
  const int rank = index_of(from_world_rank);
  if (rank < 0) return;
  Peer& from = peer(rank);
  from.left = true;
  from.all_sent = message.sent;
  from.all_received = message.received;
  from.cause = {message.cause, message.reason_text()};
}

void Peers::lose(int world_rank, const std::string& reason) {
  const int rank = index_of(world_rank);
  if (rank < 0 || has_left(rank)) return;
  Peer& lost = peer(rank);
  lost.left = true;
  lost.all_sent = lost.received;
  lost.all_received = lost.sent;
  lost.cause = {rank, reason};
}

}  // namespace strata::detail
