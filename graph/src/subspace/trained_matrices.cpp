#include <algorithm>

#include <strata/graph/subspace_passes.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata {
namespace {

// The parameters that are matrices of groups, by index; an error names all that the program lacks.
Result<std::vector<bool>> matrices_of(const Program& program, std::span<const LoraGroup> groups) {
  std::vector<bool> found(program.params.size(), false);
  std::string missing;
  for (const LoraGroup& group : groups)
    if (const ParamInfo* const param = detail::find_param(program, group.weight); param != nullptr)
      found[static_cast<std::size_t>(param - program.params.data())] = true;
    else
      missing += str("\n  ", group.weight, " is no parameter");
  if (missing.empty()) return found;
  return Status::error(Code::invalid, str("what is trained cannot be set:", missing));
}

}  // namespace

Result<Program> freeze_matrices(Program program, std::span<const LoraGroup> groups) {
  STRATA_TRY_ASSIGN(const std::vector<bool> is_matrix, matrices_of(program, groups));
  for (std::size_t p = 0; p < program.params.size(); ++p)
    if (is_matrix[p]) program.params[p].trainable = false;
  if (std::none_of(program.params.begin(), program.params.end(),
                   [](const ParamInfo& param) { return param.trainable; }))
    return Status::error(Code::invalid, str("all ", program.params.size(),
                                            " parameters are frozen, and nothing is left to train"));
  return program;
}

Result<Program> train_only_matrices(Program program, std::span<const LoraGroup> groups) {
  STRATA_TRY_ASSIGN(const std::vector<bool> is_matrix, matrices_of(program, groups));
  for (std::size_t p = 0; p < program.params.size(); ++p) program.params[p].trainable = is_matrix[p];
  return program;
}

}  // namespace strata
