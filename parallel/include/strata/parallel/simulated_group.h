#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <strata/parallel/process_group.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/backend/simulation.h>

namespace strata {

/// How long collectives take: latency_s + max(sent, received) / bytes_per_s, by wire_bytes().
struct NetworkRate {
  double bytes_per_s = 0;  ///< 0: they take no time
  double latency_s = 0;
};
/// The time of a collective that sends and receives `bytes`, at least 1; 0 for a rate of 0, and if nothing is
/// sent or received.
std::int64_t duration_ns(const NetworkRate& rate, const CollectiveBytes& bytes) noexcept;

/// Ranks of one node may exchange data faster than those of different nodes.
struct NetworkRates {
  NetworkRate between = {};  ///< ranks of different nodes
  NetworkRate within = {};   ///< a node
  int node_ranks = 0;        ///< consecutive ranks that are on one node; 0: all ranks exchange as `between`
  /// The rate of a collective of these ranks of the run.
  const NetworkRate& of(std::span<const int> members) const noexcept;
};

/// A group whose other ranks do not exist, for dry runs and simulations: a collective moves nothing, is a
/// host call of its duration on its stream, and is checked and counted like any other. `backend` must outlive
/// it.
std::unique_ptr<ProcessGroup> create_simulated_group(int size, int rank, Backend& backend,
                                                     const NetworkRates& rates = {});

/// Ranks of a run that are simulated together, with one SimWorld; the others of the run do not exist. Used by
/// the rank whose turn it is.
class SimulatedRanks {
 public:
  /// `ranks`: those of the run that exist.
  explicit SimulatedRanks(std::span<const int> ranks) : exist_(ranks.begin(), ranks.end()) {}

  /// Identifies a collective: the lineage of its group, the two ranks of a message, and its number among
  /// those.
  using Key = std::vector<int>;
  /// Where the existing ones of `members` meet for a collective; each of them asks once.
  std::shared_ptr<SimMeeting> meeting(const Key& key, std::span<const int> members);
  /// Collectives for which some of their ranks, but not all, have come.
  std::size_t n_unmatched() const noexcept { return open_.size(); }

 private:
  struct Open {
    std::shared_ptr<SimMeeting> meeting;
    int asked = 0;
  };
  std::set<int> exist_;
  std::map<Key, Open> open_;
};
/// The objects that a rank needs to meet others.
struct SimulatedPeers {
  SimulatedRanks& ranks;
  Simulation& machine;
};
/// A group of all ranks of a run, of which rank `rank` is simulated together with others: a collective begins
/// when the last of its ranks that exist has come to it. `peers` outlives it.
std::unique_ptr<ProcessGroup> create_simulated_group(int size, int rank, const SimulatedPeers& peers,
                                                     const NetworkRates& rates = {});

}  // namespace strata
