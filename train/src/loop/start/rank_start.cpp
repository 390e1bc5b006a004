#include "loop/start/rank_start.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>

#include <strata/config/load_config.h>
#include <strata/parallel/agree.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/core_share.h>
#include <strata/runtime/str.h>
#include <strata/train/run_folder.h>
#include <strata/config/run_layout.h>

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

Status check_all_see(World& world, const std::string& path, Io& io) {
  if (world.in_one_process()) return {};
  const bool first = world.rank() == 0;
  // A new name each time: what a host knows of an old one may be cached.
  STRATA_TRY_ASSIGN(const std::string name,
                    from_first_rank(&world, str(kRanksPrefix, ::getpid(), "-", SteadyClock().now_ns())));
  const std::string file = str(path, "/", name);
  Status all = agree(&world, first ? write_text_atomically(io, file, name) : Status::ok());
  if (all.is_ok()) {
    const Result<std::string> found = read_text(io, file, 4096);
    const bool sees = found.has_value() && *found == name;
    all = agree(&world, sees ? Status::ok()
                             : Status::error(Code::invalid,
                                             str(world.description(), " does not see ",
                                                 std::filesystem::absolute(path).lexically_normal().string(),
                                                 ", where the run is: name a folder that all ranks share")));
  }
  if (first) (void)io.remove_all(file);
  return all;
}

void describe_ranks(const World& world, std::span<const std::string> environment, LoadedConfig& loaded) {
  TrainConfig::Parallel& parallel = loaded.config.parallel;
  parallel.rank = world.rank();
  parallel.ranks = world.size();
  const bool threads = world.in_one_process();
  const LocalRank process = threads ? LocalRank{} : local_rank(environment).value_or(LocalRank{});
  parallel.local_rank = process.rank * world.ranks_here() + (threads ? 0 : world.rank() % world.ranks_here());
  parallel.local_ranks = process.size * world.ranks_here();
  parallel.transport = threads ? "threads" : "mpi";
}

void watch_ranks(World& world, double patience_s, Observer* observer) {
  if (observer == nullptr) return;
  world.set_watch(
      {.patience_s = patience_s, .warn = [observer](std::string_view text) { observer->on_warning(text); }});
}

std::vector<std::string> launcher_variables(const std::vector<std::string>& environment) {
  std::vector<std::string> kept;
  for (const std::string& variable : environment)
    if (!variable.starts_with("STRATA_")) kept.push_back(variable);
  return kept;
}

namespace {

// How long threads may take to end: when they have been told that a rank is lost, and when rank 0 has failed,
// which they learn when they next exchange data.
constexpr std::chrono::seconds kEnding{2}, kLearning{30};

/// The stop requests of another Signals, without its answers, which rank 0 sets.
class SharedSignals final : public Signals {
 public:
  explicit SharedSignals(const Signals& of) : of_(of) {}
  int signal_number() const noexcept override { return of_.signal_number(); }

 private:
  const Signals& of_;
};

}  // namespace

std::unique_ptr<RankThreads> RankThreads::start(std::vector<std::unique_ptr<World>> worlds,
                                                const Signals& signals, Follow follow) {
  auto started = std::make_unique<RankThreads>();
  started->shared_ = std::make_shared<Shared>(std::move(follow));
  Shared& shared = *started->shared_;
  shared.worlds = std::move(worlds);
  shared.first_rank = shared.worlds.front()->rank();
  {
    const MutexLock lock(shared.mutex);
    shared.outcomes.resize(shared.worlds.size());
    shared.running = shared.worlds.size() - 1;
  }
  for (std::size_t i = 1; i < shared.worlds.size(); ++i)
    started->threads_.emplace_back(
        [&signals, all = started->shared_, i] { RankThreads::run(all, i, signals); });
  return started;
}

void RankThreads::run(const std::shared_ptr<Shared>& shared, std::size_t i, const Signals& signals) {
  SharedSignals stop_requests(signals);
  Status outcome = shared->follow(*shared->worlds[i], stop_requests);
  shared->worlds[i].reset();  // so that the others do not wait for this rank
  const MutexLock lock(shared->mutex);
  shared->outcomes[i] = std::move(outcome);
  --shared->running;
  shared->changed.notify_all();
}

Status RankThreads::join(const Status& mine) {
  shared_->worlds.front().reset();
  const MutexLock lock(shared_->mutex);
  const auto last = std::chrono::steady_clock::now() + (mine.code() == Code::lost_peer ? kEnding : kLearning);
  while (shared_->running > 0 && (mine.is_ok() || std::chrono::steady_clock::now() < last))
    (void)shared_->changed.wait_for(shared_->mutex, kEnding);
  if (shared_->running > 0) {
    for (std::thread& thread : threads_) thread.detach();
    threads_.clear();
  }
  for (std::size_t i = 1; i < shared_->outcomes.size(); ++i)
    if (const Status& status = shared_->outcomes[i]; !status.is_ok() && status.code() != Code::lost_peer)
      return Status::error(status.code(),
                           str("rank ", shared_->first_rank + static_cast<int>(i), ": ", status.message()));
  return {};
}

RankThreads::~RankThreads() {
  shared_->worlds.front().reset();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace strata
