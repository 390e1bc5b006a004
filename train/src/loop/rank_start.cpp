#include "loop/rank_start.h"

#include <strata/parallel/agree.h>
#include <strata/runtime/threads/core_share.h>
#include <strata/runtime/str.h>

namespace strata {

Status StartAnnouncement::make(const RankStart& start) {
  made_ = true;
  if (world_ == nullptr) return {};
  std::string checkpoints;  // each ends in a zero, which no path contains
  for (const std::string& checkpoint : start.checkpoints) (checkpoints += checkpoint) += '\0';
  for (const std::string& text : {start.path, start.config, checkpoints})
    STRATA_TRY(from_first_rank(world_, text).status());
  return {};
}

void StartAnnouncement::finish(const Status& status) {
  if (made_ || world_ == nullptr) return;
  made_ = true;
  if (status.is_ok())
    (void)make({});
  else
    (void)from_first_rank(world_, status);
}

Result<RankStart> receive_start(World& world) {
  RankStart start;
  STRATA_TRY_ASSIGN(start.path, from_first_rank(&world, std::string()));
  STRATA_TRY_ASSIGN(start.config, from_first_rank(&world, std::string()));
  STRATA_TRY_ASSIGN(const std::string checkpoints, from_first_rank(&world, std::string()));
  for (std::size_t at = 0, end = 0; (end = checkpoints.find('\0', at)) != std::string::npos; at = end + 1)
    start.checkpoints.push_back(checkpoints.substr(at, end - at));
  return start;
}

void describe_ranks(const World& world, std::span<const std::string> environment, LoadedConfig& loaded) {
  TrainConfig::Parallel& parallel = loaded.config.parallel;
  parallel.rank = world.rank();
  parallel.ranks = world.size();
  parallel.transport = world.in_one_process() ? "threads" : "mpi";
  parallel.local_ranks =
      world.in_one_process() ? world.size() : local_rank(environment).value_or(LocalRank{}).size;
}

std::vector<std::string> launcher_variables(const std::vector<std::string>& environment) {
  std::vector<std::string> kept;
  for (const std::string& variable : environment)
    if (!variable.starts_with("STRATA_")) kept.push_back(variable);
  return kept;
}

namespace {

/// The stop requests of another Signals, without its answers, which rank 0 sets.
class SharedSignals final : public Signals {
 public:
  explicit SharedSignals(const Signals& of) : of_(of) {}
  int signal_number() const noexcept override { return of_.signal_number(); }

 private:
  const Signals& of_;
};

}  // namespace

Result<std::unique_ptr<RankThreads>> RankThreads::start(int ranks, const Signals& signals, Follow follow) {
  std::unique_ptr<RankThreads> started(new RankThreads(std::move(follow)));
  STRATA_TRY_ASSIGN(started->worlds_, create_thread_worlds(ranks));
  started->outcomes_.resize(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 1; rank < started->worlds_.size(); ++rank)
    started->threads_.emplace_back([&signals, all = started.get(), rank] {
      SharedSignals shared(signals);
      all->outcomes_[rank] = all->follow_(*all->worlds_[rank], shared);
      all->worlds_[rank].reset();  // so that the others do not wait for this rank
    });
  return started;
}

Status RankThreads::join() {
  worlds_.front().reset();
  threads_.clear();
  for (std::size_t rank = 1; rank < outcomes_.size(); ++rank)
    if (const Status& status = outcomes_[rank]; !status.is_ok() && status.code() != Code::lost_peer)
      return Status::error(status.code(), str("rank ", rank, ": ", status.message()));
  return {};
}

RankThreads::~RankThreads() {
  worlds_.front().reset();
  threads_.clear();
}

}  // namespace strata
