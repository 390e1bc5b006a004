#include "mpi/watch/heartbeats.h"

#include <type_traits>

namespace strata::detail {
namespace {
constexpr int kHeartbeatTag = 2;
static_assert(std::is_trivially_copyable_v<RankPosition> && sizeof(RankPosition) <= 128);
}  // namespace

std::vector<int> watchers_of(int rank, int size) {
  std::vector<int> ranks;
  for (int distance = 1; distance < size; distance *= 2) ranks.push_back((rank + distance) % size);
  return ranks;
}

std::vector<int> watched_by(int rank, int size) {
  std::vector<int> ranks;
  for (int distance = 1; distance < size; distance *= 2) ranks.push_back((rank + size - distance) % size);
  return ranks;
}

Heartbeats::Heartbeats(const MpiApi& api, int rank, int size) : api_(api) {
  for (const int other : watched_by(rank, size)) incoming_.push_back({.rank = other});
  for (const int other : watchers_of(rank, size)) outgoing_.push_back({.rank = other});
}

// An error ends a request as well: a rank that cannot be reached is noticed by its silence.
bool Heartbeats::is_over(MpiRequest& request) const {
  int done = 0;
  MpiReceived ignored;
  return api_.test(&request, &done, &ignored) != 0 || done != 0;
}

void Heartbeats::send(const RankPosition& position) {
  for (Outgoing& to : outgoing_) {
    if (to.in_flight && !is_over(to.request)) continue;
    to.position = position;
    to.in_flight = api_.isend(MpiChannel::control, &to.position, sizeof to.position, to.rank, kHeartbeatTag,
                              &to.request) == 0;
    if (to.in_flight) bytes_.sent += sizeof to.position;
  }
}

bool Heartbeats::arrived(Incoming& from) {
  bool any = false;
  if (from.posted && is_over(from.request)) {
    from.position = from.next;
    from.posted = false;
    bytes_.received += sizeof from.position;
    any = true;
  }
  if (!from.posted)
    from.posted = api_.irecv(MpiChannel::control, &from.next, sizeof from.next, from.rank, kHeartbeatTag,
                             &from.request) == 0;
  return any;
}

void Heartbeats::close() {
  for (Incoming& from : incoming_) {
    if (!from.posted || api_.cancel(&from.request) != 0) continue;
    while (!is_over(from.request)) {
    }
    from.posted = false;
  }
  for (Outgoing& to : outgoing_)
    if (to.in_flight && !is_over(to.request)) (void)api_.abandon(&to.request);
}

}  // namespace strata::detail
