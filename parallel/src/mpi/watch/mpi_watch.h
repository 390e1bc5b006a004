#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mpi/watch/heartbeats.h"
#include "watch/peer_watch.h"
#include "watch/process_identity.h"
#include "watch/process_watch.h"

namespace strata::detail {

/// Notices ranks that have ended, are stopped, or do not come back from code of the caller. Of the MPI
/// thread.
class MpiWatch {
 public:
  /// `identities` of all ranks, and the progress of this one, outlive the object.
  MpiWatch(const MpiApi& api, const std::vector<ProcessIdentity>& identities, int me,
           const RankProgress& progress, std::int64_t now_ns);
  void set(const WatchOptions& options);

  struct Loss {
    int rank = 0;
    std::string reason = {};  ///< states the host, too, and what the rank did last
  };
  /// To be called in every round of the MPI thread; most calls only read the time. `waits`: this rank waits
  /// for messages of others. `has_left(rank)`: the rank has said that it ends. Returns a rank that is newly
  /// lost.
  template <class HasLeft>
  std::optional<Loss> poll(bool waits, std::int64_t now_ns, const HasLeft& has_left) {
    if (!is_due(now_ns)) return std::nullopt;
    exchange(now_ns);
    for (std::size_t rank = 0; rank < identities_.size(); ++rank) {
      const int other = static_cast<int>(rank);
      if (other == me_ || others_[rank].lost || has_left(other)) continue;
      if (std::optional<Loss> loss = judge(other, waits, now_ns)) return loss;
    }
    return std::nullopt;
  }
  /// Another rank has found this one lost.
  void note_lost(int rank) { others_[static_cast<std::size_t>(rank)].lost = true; }
  void close() { heartbeats_.close(); }
  /// The bytes of heartbeats since the last call.
  CollectiveBytes take_bytes() noexcept { return heartbeats_.take_bytes(); }

 private:
  struct Other {
    bool watched = false, late = false, lost = false;
    std::int64_t ended_ns = 0;  // when its process was first seen to have ended; 0: it has not
  };
  bool is_due(std::int64_t now_ns);
  void exchange(std::int64_t now_ns);
  std::optional<Loss> judge(int rank, bool waits, std::int64_t now_ns);
  std::optional<Loss> judge_process(int rank, std::int64_t now_ns);
  void warn(int rank, std::string_view text) const;

  const std::vector<ProcessIdentity>& identities_;
  const int me_;
  const RankProgress& progress_;
  WatchOptions options_;
  Heartbeats heartbeats_;
  PeerWatch peers_;
  ProcessWatch processes_;
  std::vector<Other> others_;
  std::int64_t next_poll_ns_ = 0, next_beat_ns_ = 0;
};

}  // namespace strata::detail
