#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/engine/lowering.h>
#include <strata/engine/program_set.h>
#include <strata/session/session_options.h>

namespace strata::detail {

/// The programs of a run that can be planned together, and their parameters. Refers to the set.
struct CheckedPrograms {
  /// The programs that exist, in the order of their roles. The first one represents the model.
  std::vector<const NamedProgram*> programs;
  ParameterUnion parameters;
  std::int32_t snapshots = 0;  // ProgramSet::snapshots()

  bool train() const noexcept { return programs.front()->role == ProgramRole::train; }
  /// The programs that train.
  std::span<const NamedProgram* const> trained() const noexcept {
    std::size_t n = 0;
    while (n < programs.size() && programs[n]->role == ProgramRole::train) ++n;
    return std::span(programs).first(n);
  }
};

/// The micro-batches of a step of a program that trains, of all ranks together.
std::int32_t micro_batches_of(const NamedProgram& named, const SessionOptions& options) noexcept;

/// Errors: `invalid` or `unsupported`, naming the program, and the input, output or parameter that is wrong.
Result<CheckedPrograms> check_programs(const ProgramSet& set, const SessionOptions& options);

}  // namespace strata::detail
