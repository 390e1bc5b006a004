#include "watch/peer_watch.h"

#include <algorithm>

#include <fmt/format.h>

namespace strata::detail {
namespace {

// A call of the caller's code may take so many times the longest before until its rank is late, or lost.
constexpr double kLonger = 5, kMuchLonger = 10;
constexpr std::int64_t kStoppedNs = 1'000'000'000;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

WatchOptions within_patience(WatchOptions options) {
  options.silence_s = std::min(options.silence_s, options.patience_s / 2);
  options.user_code_s = std::min(options.user_code_s, options.patience_s / 2);
  options.heartbeat_s = std::min(options.heartbeat_s, options.silence_s / 4);
  return options;
}

PeerWatch::PeerWatch(int n_ranks, std::int64_t now_ns)
    : peers_(static_cast<std::size_t>(n_ranks)), last_tick_ns_(now_ns) {
  for (Peer& peer : peers_) peer.heard_ns = peer.changed_ns = now_ns;
}

void PeerWatch::heard(int rank, const RankPosition& position, std::int64_t now_ns) {
  Peer& peer = of(rank);
  if (position.changes != peer.position.changes) {
    // When the call ended is not known, only that it had not when it was last heard of.
    if (peer.position.activity == RankPosition::Activity::user_code)
      peer.longest_ns = std::max(peer.longest_ns, peer.heard_ns - peer.changed_ns);
    peer.changed_ns = now_ns;
  }
  peer.heard_ns = now_ns;
  peer.position = position;
}

void PeerWatch::tick(std::int64_t now_ns, std::int64_t since_ns) {
  const std::int64_t missed = now_ns - std::max(last_tick_ns_, since_ns);
  last_tick_ns_ = now_ns;
  if (missed < kStoppedNs) return;
  for (Peer& peer : peers_) {
    peer.heard_ns += missed;
    peer.changed_ns += missed;
  }
}

PeerWatch::Verdict PeerWatch::judge(int rank, bool waits, std::int64_t now_ns) const {
  const Peer& peer = of(rank);
  const double silent = seconds(now_ns - peer.heard_ns), stays = seconds(now_ns - peer.changed_ns);
  if (silent > options_.silence_s)
    return {
        silent > options_.patience_s ? State::lost : State::late,
        fmt::format("nothing has been heard of it for {:.1f} s, so its process is stopped or its host cannot "
                    "be reached; it was last {}",
                    silent, to_string(peer.position))};
  const double longest = seconds(peer.longest_ns);
  if (!waits || peer.position.activity != RankPosition::Activity::user_code ||
      stays <= std::max(options_.user_code_s, kLonger * longest))
    return {};
  return {stays > std::max(options_.patience_s, kMuchLonger * longest) ? State::lost : State::late,
          fmt::format("it has been {} for {:.1f} s without coming back", to_string(peer.position), stays)};
}

}  // namespace strata::detail
