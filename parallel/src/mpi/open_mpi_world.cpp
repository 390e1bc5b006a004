#include <strata/parallel/mpi_world.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

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

}  // namespace

bool built_with_mpi() noexcept { return true; }

Result<std::unique_ptr<World>> open_mpi_world(const WatchOptions& watch) {
  const detail::ResidentBytes before = detail::resident_bytes();
  STRATA_TRY_ASSIGN(const detail::MpiApi* const api, detail::load_mpi(module_paths()));
  STRATA_TRY_ASSIGN(std::shared_ptr<detail::MpiThread> thread, detail::MpiThread::start(*api));
  thread->set_watch(watch);
  const detail::ResidentBytes after = detail::resident_bytes();
  thread->count_memory(after.own - std::min(before.own, after.own));
  return detail::create_mpi_world(std::move(thread));
}

}  // namespace strata
