#include "mpi/watch/mpi_watch.h"

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kPollNs = 20 * kMs;
// Messages that a rank has sent before its process ended, such as why, may still be on their way; and the
// processes that watch it know what it did last.
constexpr std::int64_t kLastWordsNs = 100 * kMs, kWordOfWatchersNs = 500 * kMs;

}  // namespace

MpiWatch::MpiWatch(const MpiApi& api, const std::vector<ProcessIdentity>& identities, int me,
                   const RankProgress& progress, std::int64_t now_ns)
    : identities_(identities),
      me_(me),
      progress_(progress),
      heartbeats_(api, me, static_cast<int>(identities.size())),
      peers_(static_cast<int>(identities.size()), now_ns),
      processes_(identities, me),
      others_(identities.size()) {
  for (const int rank : watched_by(me, static_cast<int>(identities.size())))
    others_[static_cast<std::size_t>(rank)].watched = true;
}

void MpiWatch::set(const WatchOptions& options) {
  options_ = within_patience(options);
  next_beat_ns_ = 0;
  peers_.set(options);
}

bool MpiWatch::is_due(std::int64_t now_ns) {
  if (now_ns < next_poll_ns_ || options_.heartbeat_s <= 0) return false;
  next_poll_ns_ = now_ns + kPollNs;
  return true;
}

void MpiWatch::exchange(std::int64_t now_ns) {
  peers_.tick(now_ns);
  if (now_ns >= next_beat_ns_) {
    next_beat_ns_ = now_ns + static_cast<std::int64_t>(options_.heartbeat_s * 1e9);
    heartbeats_.send(progress_.position());
  }
  heartbeats_.receive([&](int rank, const RankPosition& position) { peers_.heard(rank, position, now_ns); });
}

void MpiWatch::warn(int rank, std::string_view text) const {
  if (!options_.warn) return;
  try {
    options_.warn(str("rank ", rank, " of ", identities_.size(), " on host ",
                      identities_[static_cast<std::size_t>(rank)].host, ": ", text));
  } catch (...) {  // code of the caller, which may not end the thread that all exchanges need
  }
}

std::optional<MpiWatch::Loss> MpiWatch::judge_process(int rank, std::int64_t now_ns) {
  Other& other = others_[static_cast<std::size_t>(rank)];
  if (other.ended_ns == 0 && processes_.has_ended(rank)) other.ended_ns = now_ns;
  if (other.ended_ns == 0 || now_ns - other.ended_ns < (other.watched ? kLastWordsNs : kWordOfWatchersNs))
    return std::nullopt;
  other.lost = true;
  std::string reason =
      str("on host ", identities_[static_cast<std::size_t>(rank)].host, ", ", processes_.how_ended(rank));
  if (other.watched) reason += str("; it was last ", to_string(peers_.last(rank)));
  return Loss{rank, std::move(reason)};
}

std::optional<MpiWatch::Loss> MpiWatch::judge(int rank, bool waits, std::int64_t now_ns) {
  Other& other = others_[static_cast<std::size_t>(rank)];
  if (std::optional<Loss> ended = judge_process(rank, now_ns)) return ended;
  if (!other.watched || other.ended_ns != 0) return std::nullopt;
  const PeerWatch::Verdict verdict = peers_.judge(rank, waits, now_ns);
  if (verdict.state == PeerWatch::State::lost) {
    other.lost = true;
    return Loss{rank,
                str("on host ", identities_[static_cast<std::size_t>(rank)].host, ", ", verdict.reason)};
  }
  const bool late = verdict.state == PeerWatch::State::late;
  if (late != other.late && (late || waits)) {
    warn(rank, late ? verdict.reason + "; the others wait for it" : "it goes on");
    other.late = late;
  }
  return std::nullopt;
}

}  // namespace strata::detail
