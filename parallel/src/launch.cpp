#include <strata/parallel/launch.h>

#include <charconv>
#include <optional>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using Launcher = Launch::Launcher;

constexpr std::string_view kMpirun =
    "start them with the mpirun of Open MPI, whose library strata loads, or with srun --mpi=pmix";
constexpr std::string_view kPmix = "start them with srun --mpi=pmix, or with mpirun";
constexpr std::string_view kTorchrun = "start torchrun on each node, or mpirun once";

/// A launcher that has set `size`, and `with` for each process: some sizes are also set where nothing was
/// launched, such as Slurm's in a batch script. An empty `with`: the size alone says it.
struct Known {
  Launcher launcher;
  std::string_view size, with, remedy;
};
constexpr Known kKnown[] = {
    {Launcher::torchrun, "WORLD_SIZE", "TORCHELASTIC_RUN_ID", kTorchrun},  // also where srun started torchrun
    {Launcher::mpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", kMpirun},
    {Launcher::mpi, "PMI_SIZE", "PMI_RANK", kMpirun},
    {Launcher::mpi, "SLURM_STEP_NUM_TASKS", "PMIX_RANK", kPmix},
    {Launcher::other, "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", kMpirun},
    {Launcher::other, "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", kMpirun},
    {Launcher::other, "FLUX_JOB_SIZE", "FLUX_TASK_RANK", kMpirun},
    {Launcher::torchrun, "WORLD_SIZE", "LOCAL_RANK", kTorchrun},
    {Launcher::other, "HOROVOD_SIZE", "HOROVOD_RANK", kMpirun},
    {Launcher::other, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", kPmix},
    {Launcher::other, "WORLD_SIZE", "", kTorchrun},  // Kubeflow sets it to the number of nodes
    {Launcher::other, "PET_NNODES", "", kTorchrun},
    {Launcher::other, "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", kMpirun},
};

/// The number that a size says, of "MIN:MAX" the larger one; nullopt if it is none.
std::optional<int> number_in(std::string_view size) {
  size.remove_prefix(size.rfind(':') + 1);  // npos + 1 is 0
  int number = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
  if (error != std::errc() || end != size.data() + size.size() || number < 1) return std::nullopt;
  return number;
}

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
    if (!size || (!known.with.empty() && !value_of(environment, known.with))) continue;
    const auto processes = number_in(*size);
    if (!processes && known.launcher == Launcher::other) continue;  // it may be anybody's
    if (!processes)
      return Status::error(Code::invalid,
                           str(known.size, " is \"", *size, "\", which is not a number of processes"));
    return Launch{known.launcher, *processes, std::string(known.size), known.remedy};
  }
  return Launch{};
}

Status check_joined(const Launch& launch, int ranks_per_process, int joined) {
  const int started = launch.processes * ranks_per_process;
  if (started == joined) return {};
  return Status::error(
      Code::invalid, str(launch.variable, " = ", launch.processes, ": a launcher started ",
                         plural(launch.processes, "process"), ", but strata found ", plural(joined, "rank"),
                         " of ", started, ", and each would train alone; ", launch.remedy,
                         ". If each is to be a run of its own, give it parallel.ranks=1 (or the environment "
                         "STRATA_PARALLEL_RANKS=1) and another --out"));
}

}  // namespace strata
