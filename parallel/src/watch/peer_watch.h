#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/parallel/rank_progress.h>
#include <strata/parallel/watch_options.h>

namespace strata::detail {

/// The options, so that a rank is late before it is lost however short the patience is, and is heard of often
/// enough meanwhile.
WatchOptions within_patience(WatchOptions options);

/// Judges other ranks by what is heard of them: which of them are silent, or do not come back from code of
/// the caller. Times are nanoseconds of one clock and never go back. Not thread-safe.
class PeerWatch {
 public:
  PeerWatch(int n_ranks, std::int64_t now_ns);
  void set(const WatchOptions& options) { options_ = within_patience(options); }

  void heard(int rank, const RankPosition& position, std::int64_t now_ns);
  /// To be called at least every second while this process listens, which it has done since `since_ns` if not
  /// for longer. If it was stopped meanwhile, the others are given the time that it has not listened.
  void tick(std::int64_t now_ns, std::int64_t since_ns = 0);
  const RankPosition& last(int rank) const { return of(rank).position; }

  enum class State : std::uint8_t { well, late, lost };
  struct Verdict {
    State state = State::well;
    std::string reason = {};  ///< unless well
  };
  /// `waits`: this rank waits for another one, without which nobody is hung. A rank is late before it is
  /// lost, and may be well again.
  Verdict judge(int rank, bool waits, std::int64_t now_ns) const;

 private:
  struct Peer {
    RankPosition position = {};
    std::int64_t heard_ns = 0, changed_ns = 0;
    std::int64_t longest_ns = 0;  // that it was heard of in one call of the caller's code
  };
  Peer& of(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& of(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  WatchOptions options_;
  std::vector<Peer> peers_;
  std::int64_t last_tick_ns_;
};

}  // namespace strata::detail
