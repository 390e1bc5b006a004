#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/signals.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/train/observer.h>

namespace strata {

struct LoadedConfig;

/// Rank 0 sends this to the other ranks before a run: its configuration with every `auto` resolved, and where
/// the run is.
struct RankStart {
  std::string path;                      ///< the run folder
  std::string config;                    ///< the configuration as TOML; empty: there is nothing to do
  std::vector<std::string> checkpoints;  ///< to resume from, newest first
};

/// Tells it once. If rank 0 ends before, the others learn why.
class StartAnnouncement {
 public:
  /// `world` may be null: then there is nobody to tell.
  explicit StartAnnouncement(World* world) : world_(world) {}
  Status make(const RankStart& start);
  /// To be called at the end, with how rank 0 ended; does nothing the second time.
  void finish(const Status& status);

 private:
  World* const world_;
  bool made_ = false;
};

/// Waits for the announcement of rank 0. Errors: those with which rank 0 ended.
Result<RankStart> receive_start(World& world);

/// Checks that all ranks see the folder at `path`, which rank 0 has: the others read a file that it writes
/// there and removes again. Every rank calls it. Errors: `invalid`, with host and path of the first rank that
/// does not; then it would have trained, and could not have saved.
Status check_all_see(World& world, const std::string& path, Io& io);

/// Writes which of how many ranks this is, and how many are on this machine, into the configuration.
void describe_ranks(const World& world, std::span<const std::string> environment, LoadedConfig& loaded);
/// `observer`, which outlives the world, is told of ranks that the others wait for; null: another rank tells
/// it.
void watch_ranks(World& world, double patience_s, Observer* observer);
/// The variables by which a launcher tells a process its place on the machine. Other settings are rank 0's.
std::vector<std::string> launcher_variables(const std::vector<std::string>& environment);

/// All ranks of this process but the first, as its threads.
class RankThreads {
 public:
  /// The function that such a rank runs.
  using Follow = std::function<Status(World& world, Signals& signals)>;
  /// Starts the threads. `signals`, whose stop requests reach all ranks, outlives the process's last thread.
  static std::unique_ptr<RankThreads> start(std::vector<std::unique_ptr<World>> worlds,
                                            const Signals& signals, Follow follow);
  /// The first rank leaves, and the threads end.
  ~RankThreads();
  World& first() noexcept { return *shared_->worlds.front(); }
  /// The first rank, which ended with `mine`, leaves; returns how the first of the others that failed by
  /// itself ended. After an error, threads that do not end, since they are hung, are left alone.
  Status join(const Status& mine);

 private:
  /// The objects that the threads share: they live as long as the last thread.
  struct Shared {
    explicit Shared(Follow does) : follow(std::move(does)) {}
    const Follow follow;
    std::vector<std::unique_ptr<World>> worlds = {};
    int first_rank = 0;
    Mutex mutex = {};
    Condition changed = {};
    std::vector<Status> outcomes STRATA_GUARDED_BY(mutex) = {};
    std::size_t running STRATA_GUARDED_BY(mutex) = 0;
  };
  static void run(const std::shared_ptr<Shared>& shared, std::size_t i, const Signals& signals);
  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace strata
