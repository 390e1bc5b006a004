#include <strata/parallel/launch.h>

#include <charconv>
#include <optional>

#include <strata/runtime/str.h>

namespace strata {
namespace {

/// A launcher that has set `size`, and `rank` for each process: Slurm's and torchrun's sizes are also set
/// where nothing was launched.
struct Known {
  Launch::Launcher launcher;
  std::string_view size, rank;
};
constexpr Known kKnown[] = {
    {Launch::Launcher::mpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {Launch::Launcher::mpi, "PMI_SIZE", "PMI_RANK"},
    {Launch::Launcher::mpi, "SLURM_STEP_NUM_TASKS", "PMIX_RANK"},
    {Launch::Launcher::torchrun, "WORLD_SIZE", "RANK"},
};

std::optional<std::string_view> value_of(std::span<const std::string> environment, std::string_view name) {
  for (const std::string_view word : environment)
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  return std::nullopt;
}

}  // namespace

Result<Launch> read_launch(std::span<const std::string> environment) {
  for (const Known& known : kKnown) {
    const auto size = value_of(environment, known.size);
    if (!size || !value_of(environment, known.rank)) continue;
    Launch launch{known.launcher, 0, std::string(known.size)};
    const auto [end, error] = std::from_chars(size->data(), size->data() + size->size(), launch.processes);
    if (error != std::errc() || end != size->data() + size->size() || launch.processes < 1)
      return Status::error(Code::invalid,
                           str(known.size, " is \"", *size, "\", which is not a number of processes"));
    return launch;
  }
  return Launch{};
}

}  // namespace strata
