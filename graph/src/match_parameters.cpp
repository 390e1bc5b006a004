#include <strata/graph/passes.h>

#include <algorithm>
#include <strata/runtime/config/match_names.h>
#include <strata/runtime/str.h>

namespace strata {

Result<std::vector<std::int32_t>> match_parameters(const Program& program,
                                                   std::span<const std::string> patterns,
                                                   std::string_view key) {
  std::vector<std::string> names;
  for (const ParamInfo& param : program.params) names.push_back(param.name);
  return match_names(names, patterns, key);
}

Result<Program> freeze_parameters(Program program, std::span<const std::string> patterns) {
  constexpr std::string_view kKey = "train.freeze";
  STRATA_TRY_ASSIGN(const std::vector<std::int32_t> match, match_parameters(program, patterns, kKey));
  bool any_left = false;
  for (std::size_t p = 0; p < program.params.size(); ++p) {
    if (match[p] >= 0) program.params[p].trainable = false;
    any_left = any_left || program.params[p].trainable;
  }
  if (!any_left)
    return Status::error(Code::invalid, str(kKey, ": all ", program.params.size(),
                                            " parameters are frozen, and nothing is left to train"));
  return program;
}

Program prefix_parameters(Program program, std::string_view prefix,
                          std::span<const std::string_view> shared) {
  const auto rename = [&](std::string& name) {
    if (!name.empty() && std::find(shared.begin(), shared.end(), name) == shared.end())
      name.insert(0, prefix);
  };
  for (ParamInfo& param : program.params) {
    rename(param.init.norms.of);
    rename(param.init.principal.of);
    rename(param.init.picked.of);
    rename(param.init.copy_of);
    rename(param.name);
    program.values[static_cast<std::size_t>(param.value)].name = param.name;
  }
  return program;
}

Program copy_trainable(Program program, std::string_view prefix, std::span<const std::string_view> fresh) {
  for (ParamInfo& param : program.params) {
    if (!param.trainable) continue;
    if (std::find(fresh.begin(), fresh.end(), param.name) == fresh.end())
      param.init = {.copy_of = param.name};
    param.name.insert(0, prefix);
    program.values[static_cast<std::size_t>(param.value)].name = param.name;
  }
  return program;
}

Program freeze_trainable(Program program) {
  for (ParamInfo& param : program.params) {
    param.derived = param.derived || param.trainable;  // no folder has them
    param.trainable = false;
  }
  return program;
}

}  // namespace strata
