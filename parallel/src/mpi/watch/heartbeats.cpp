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

// An error ends a request as well.
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

// A rank that cannot be reached is noticed by its silence, so an error is no heartbeat. The next call posts
// another receive.
bool Heartbeats::arrived(Incoming& from) {
  const bool was_posted = from.posted;
  if (was_posted) {
    int done = 0;
    MpiReceived ignored;
    const int error = api_.test(&from.request, &done, &ignored);
    from.posted = error == 0 && done == 0;
    if (from.posted || error != 0) return false;
    from.position = from.next;
    bytes_.received += sizeof from.position;
  }
  from.posted = api_.irecv(MpiChannel::control, &from.next, sizeof from.next, from.rank, kHeartbeatTag,
                           &from.request) == 0;
  return was_posted;
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
