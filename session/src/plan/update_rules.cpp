#include "plan/update_rules.h"

#include <algorithm>
#include <cmath>

#include <strata/runtime/config/match_names.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr const char* kKey = "optim.param_groups";

void check_settings(const ParamGroup& group, std::string& problems) {
  const auto check = [&](const char* what, double value) {
    if (!(std::isfinite(value) && value >= 0))
      problems += str(problems.empty() ? "" : "\n", kKey, ": '", group.pattern, "' has ", what, " = ", value,
                      "; it must be at least 0");
  };
  check("lr_scale", group.lr_scale);
  if (group.weight_decay) check("weight_decay", *group.weight_decay);
}

// Returns the group that updates each parameter, or -1, by registration order.
Result<std::vector<std::int32_t>> groups_of(const TensorTable& tensors,
                                            const std::vector<ParamGroup>& groups) {
  std::vector<std::string> patterns, names;
  for (const ParamGroup& group : groups) patterns.push_back(group.pattern);
  for (const std::int32_t tensor : tensors.tensor_of_param)
    names.push_back(tensors.specs[static_cast<std::size_t>(tensor)].name);
  STRATA_TRY_ASSIGN(std::vector<std::int32_t> group_of, match_names(names, patterns, kKey));
  std::string problems;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    check_settings(groups[g], problems);
    bool any = false;
    for (std::size_t p = 0; p < names.size(); ++p)
      any = any || (tensors.specs[static_cast<std::size_t>(tensors.tensor_of_param[p])].group.trainable &&
                    group_of[p] == static_cast<std::int32_t>(g));
    if (!any)
      problems += str(problems.empty() ? "" : "\n", kKey, ": '", patterns[g],
                      "' matches no trained parameter that no earlier group matches");
  }
  if (problems.empty()) return group_of;
  return Status::error(Code::invalid, problems);
}

UpdateRule rule_of(const SessionOptions& options, const ParamGroup* group, bool decays) {
  UpdateRule rule{1, decays ? options.optimizer.weight_decay : 0};
  if (group == nullptr) return rule;
  rule.lr_scale = group->lr_scale;
  if (group->weight_decay) rule.weight_decay = *group->weight_decay;
  return rule;
}

}  // namespace

Status make_update_rules(StatePlan& plan) {
  const std::vector<ParamGroup>& groups = plan.options.groups;
  STRATA_TRY_ASSIGN(const std::vector<std::int32_t> group_of, groups_of(plan.tensors, groups));
  for (std::size_t tensor = 0; tensor < plan.tensors.specs.size(); ++tensor) {
    const std::int32_t of = group_of[static_cast<std::size_t>(plan.tensors.param_of_tensor[tensor])];
    const ParamGroup* const group = of < 0 ? nullptr : &groups[static_cast<std::size_t>(of)];
    const UpdateRule rule = rule_of(plan.options, group, plan.tensors.decays[tensor]);
    auto at = std::find(plan.rules.begin(), plan.rules.end(), rule);
    if (at == plan.rules.end()) at = plan.rules.insert(at, rule);
    plan.rule_of_tensor.push_back(static_cast<std::int32_t>(at - plan.rules.begin()));
  }
  return {};
}

}  // namespace strata::detail
