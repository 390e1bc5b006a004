#include <set>
#include <string_view>

#include <strata/offload/placement_planner.h>
#include <strata/runtime/str.h>
#include <strata/session/state_planning.h>

namespace strata {
namespace {

void add_tensors(std::span<const TrainerParam> params, TrainerHolds holds, StatePlan& plan) {
  for (const TrainerParam& param : params) {
    const auto index = static_cast<std::int32_t>(plan.tensors.specs.size());
    GroupKey group;
    group.compute = group.grad = group.accum = param.dtype;
    group.trainable = param.trainable;
    group.of_trainer = holds == TrainerHolds::states;
    if (holds == TrainerHolds::params) group.accum = DType::f32;  // how many gradients come is not known
    plan.tensors.specs.push_back({param.name, param.shape.n_elems(), group});
    plan.tensors.shapes.push_back(param.shape);
    plan.tensors.decays.push_back(true);
    plan.tensors.tensor_of_param.push_back(index);
    plan.tensors.param_of_tensor.push_back(index);
  }
}

}  // namespace

Status check_trainer_params(std::span<const TrainerParam> params, TrainerHolds holds) {
  if (params.empty()) return Status::error(Code::invalid, "there are no parameters");
  std::string problems;
  std::set<std::string_view> names;
  const auto problem = [&](const auto&... what) { problems += str(problems.empty() ? "" : "\n", what...); };
  for (std::size_t i = 0; i < params.size(); ++i) {
    const TrainerParam& param = params[i];
    if (param.name.empty()) problem("parameter ", i, " has no name");
    if (!names.insert(param.name).second) problem("two parameters have the name '", param.name, "'");
    if (param.shape.n_elems() < 1) problem("parameter '", param.name, "' has no elements");
    if (!param.trainable && holds == TrainerHolds::states)
      problem("parameter '", param.name, "' is not trained, so that it has no states to hold");
    if (!is_stored_dtype(param.dtype))
      problem("parameter '", param.name, "' is ", to_string(param.dtype), "; it must be f32, bf16 or f16");
  }
  return problems.empty() ? Status() : Status::error(Code::invalid, problems);
}

Result<std::unique_ptr<StatePlan>> plan_trainer_states(std::span<const TrainerParam> params,
                                                       SessionOptions options, TrainerHolds holds) {
  STRATA_TRY(check_trainer_params(params, holds));
  if (options.optimizer.ema_decay > 0)
    return Status::error(Code::unsupported,
                         str("ema_decay is ", options.optimizer.ema_decay,
                             "; a trainer's session keeps no moving average of its parameters"));
  auto plan = std::make_unique<StatePlan>();
  options.budgets[index_of(Tier::device)] = 0;
  options.grad_accum = 1;
  options.frozen_masters = false;
  options.ranks = {};
  options.groups.clear();
  options.step_mode = StepMode::serial;
  options.prefetch = 0;  // the trainer itself moves what passes through the device
  plan->options = std::move(options);
  add_tensors(params, holds, *plan);
  plan->trace.training = true;
  STRATA_TRY(check_options(plan->options));
  STRATA_TRY(lay_out_states(*plan, 0));
  // Every parameter has a step count of its own, and with it constants of its own.
  plan->rules.assign(params.size(), {});
  plan->rule_of_tensor = plan->tensors.tensor_of_param;
  add_fixed_bytes(*plan);
  STRATA_TRY_ASSIGN(plan->placement,
                    plan_placement(plan->layout, plan->trace, placement_request(plan->options)));
  plan->planned_peak = placement_bytes(plan->layout, plan->trace, plan->placement);
  return plan;
}

}  // namespace strata
