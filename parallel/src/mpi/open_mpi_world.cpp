#include <strata/parallel/mpi_world.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <thread>

#include <strata/runtime/str.h>

#include "mpi/mpi_library.h"
#include "mpi/mpi_thread.h"
#include "mpi/mpi_world.h"
#include "mpi/watch/resident_memory.h"

namespace strata {
namespace {

constexpr const char* kFile = "libstrata_mpi.so";

// An installed tree may have been moved as a whole, so the place relative to the program comes first.
std::array<std::string, 3> module_paths() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return {(program.parent_path().parent_path() / STRATA_MPI_LIBDIR / "strata" / kFile).string(),
          str(STRATA_MPI_INSTALL_DIR, "/strata/", kFile), STRATA_MPI_BUILD_FILE};
}

Result<std::vector<std::shared_ptr<detail::MpiThread>>> start_threads(int ranks_here,
                                                                      const WatchOptions& watch) {
  const detail::ResidentBytes before = detail::resident_bytes();
  STRATA_TRY_ASSIGN(const detail::MpiApi* const api, detail::load_mpi(module_paths()));
  std::vector<std::shared_ptr<detail::MpiThread>> threads;
  for (int here = 0; here < ranks_here; ++here) {
    STRATA_TRY_ASSIGN(std::shared_ptr<detail::MpiThread> thread,
                      detail::MpiThread::start(*api, {.ranks_here = ranks_here, .here = here}));
    thread->set_watch(watch);
    threads.push_back(std::move(thread));
  }
  const detail::ResidentBytes after = detail::resident_bytes();
  threads.front()->count_memory(after.own - std::min(before.own, after.own));
  return threads;
}

// Each rank waits for all others to introduce themselves.
Result<std::vector<std::unique_ptr<World>>> introduce_worlds(
    const std::vector<std::shared_ptr<detail::MpiThread>>& threads) {
  STRATA_TRY_ASSIGN(auto locals, create_thread_worlds(static_cast<int>(threads.size())));
  locals.front()->set_watch({.heartbeat_s = 0});  // MPI's watch is enough
  std::vector<std::unique_ptr<World>> worlds(threads.size());
  std::vector<Status> outcomes(threads.size());
  {
    std::vector<std::jthread> opening;
    for (std::size_t i = 0; i < threads.size(); ++i)
      opening.emplace_back([&, i] {
        auto world = detail::create_mpi_world(threads[i], std::move(locals[i]));
        outcomes[i] = world.status();
        if (world.has_value()) worlds[i] = *std::move(world);
      });
  }
  for (const Status& outcome : outcomes) STRATA_TRY(outcome);
  return worlds;
}

}  // namespace

bool built_with_mpi() noexcept { return true; }

Result<std::unique_ptr<World>> open_mpi_world(const WatchOptions& watch) {
  STRATA_TRY_ASSIGN(std::vector<std::unique_ptr<World>> worlds, open_mpi_worlds(1, watch));
  return std::move(worlds.front());
}

Result<std::vector<std::unique_ptr<World>>> open_mpi_worlds(int ranks_here, const WatchOptions& watch) {
  if (ranks_here < 1 || ranks_here > detail::kMaxRanksHere)
    return Status::error(Code::invalid, str("a process has 1 to ", detail::kMaxRanksHere,
                                            " ranks over MPI, not ", ranks_here));
  STRATA_TRY_ASSIGN(const std::vector<std::shared_ptr<detail::MpiThread>> threads,
                    start_threads(ranks_here, watch));
  if (ranks_here == 1) {
    STRATA_TRY_ASSIGN(std::unique_ptr<World> world, detail::create_mpi_world(threads.front(), nullptr));
    std::vector<std::unique_ptr<World>> one;
    one.push_back(std::move(world));
    return one;
  }
  return introduce_worlds(threads);
}

}  // namespace strata
