#include <strata/runtime/threads/core_share.h>

#include <charconv>
#include <string_view>

#include <strata/runtime/str.h>

namespace strata {
namespace {

struct Launcher {
  std::string_view rank, size;
};
constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                   {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                   {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}};
constexpr Launcher kSlurm = {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"};

std::optional<std::string_view> value_of(std::span<const std::string> environment, std::string_view name) {
  for (const std::string_view word : environment)
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  return std::nullopt;
}

Result<int> number(std::string_view name, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    return Status::error(Code::invalid, str(name, " is \"", text, "\", which is not an integer >= 0"));
  return value;
}

// nullopt if this launcher's variables are not set.
Result<std::optional<LocalRank>> read(std::span<const std::string> environment, const Launcher& launcher) {
  const auto rank_text = value_of(environment, launcher.rank);
  const auto size_text = value_of(environment, launcher.size);
  if (!rank_text) return std::optional<LocalRank>();
  LocalRank found;
  found.variable = launcher.rank;
  STRATA_TRY_ASSIGN(found.rank, number(launcher.rank, *rank_text));
  if (!size_text) {
    if (found.rank == 0) return std::optional<LocalRank>();  // Slurm sets the rank to 0 in every batch script
    return Status::error(Code::invalid,
                         str(launcher.rank, " is ", found.rank, ", but ", launcher.size, " is not set"));
  }
  STRATA_TRY_ASSIGN(found.size, number(launcher.size, *size_text));
  if (found.rank >= found.size)
    return Status::error(Code::invalid, str(launcher.rank, " is ", found.rank, ", but ", launcher.size,
                                            " is ", found.size, ": ranks count from 0"));
  return std::optional(found);
}

}  // namespace

// Nested launchers are common, for example an outer one that starts one torchrun per node: the outer one then
// has one process on this machine. Slurm's variables are inherited by whatever any launcher starts in its
// allocation, so they are considered last.
Result<LocalRank> local_rank(std::span<const std::string> environment) {
  LocalRank result;
  for (const Launcher& launcher : kLaunchers) {
    STRATA_TRY_ASSIGN(const std::optional<LocalRank> found, read(environment, launcher));
    if (!found) continue;
    if (result.size > 1 && found->size > 1 && (result.rank != found->rank || result.size != found->size))
      return Status::error(Code::invalid, str(result.variable, " says rank ", result.rank, " of ",
                                              result.size, " on this machine, ", found->variable, " says ",
                                              found->rank, " of ", found->size));
    if (result.variable.empty() || found->size > result.size) result = *found;
  }
  if (!result.variable.empty()) return result;
  STRATA_TRY_ASSIGN(const std::optional<LocalRank> slurm, read(environment, kSlurm));
  return slurm.value_or(result);
}

}  // namespace strata
