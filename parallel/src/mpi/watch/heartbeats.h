#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <strata/parallel/collective.h>
#include <strata/parallel/rank_progress.h>

#include "mpi/mpi_api.h"

namespace strata::detail {

/// A rank is watched by those whose number is a power of two above its own, around the ring: so a rank has
/// few to tell, and whoever fails together with one that watches it is still watched by another.
std::vector<int> watchers_of(int rank, int size);
std::vector<int> watched_by(int rank, int size);

/// Tells other ranks where this one is, and receives where they are. Of the MPI thread.
class Heartbeats {
 public:
  Heartbeats(const MpiApi& api, int rank, int size);

  /// Tells this rank's watchers, except those that have not received the last heartbeat yet.
  void send(const RankPosition& position);
  /// Calls `heard(rank, position)` for what has arrived.
  template <class Heard>
  void receive(const Heard& heard) {
    for (Incoming& from : incoming_)
      while (arrived(from)) heard(from.rank, from.position);
  }
  /// Ends what is in flight, as far as it can be ended.
  void close();
  /// Bytes exchanged since the last call.
  CollectiveBytes take_bytes() noexcept { return std::exchange(bytes_, {}); }

 private:
  struct Incoming {
    int rank;
    bool posted = false;
    RankPosition next = {}, position = {};
    MpiRequest request = {};
  };
  struct Outgoing {
    int rank;
    bool in_flight = false;
    RankPosition position = {};
    MpiRequest request = {};
  };
  bool arrived(Incoming& from);
  bool is_over(MpiRequest& request) const;

  const MpiApi& api_;
  std::vector<Incoming> incoming_;  // MPI writes into the elements, so the vectors never grow
  std::vector<Outgoing> outgoing_;
  CollectiveBytes bytes_;
};

}  // namespace strata::detail
