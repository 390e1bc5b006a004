#include <strata/config/config_request.h>
#include <strata/config/load_config.h>
#include <strata/cpuopt/optimizer.h>
#include <strata/engine/plan_search.h>
#include <strata/model/decoder.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/plan/split/model_pipeline.h>
#include <strata/plan/split/split_model.h>
#include <strata/plan/activation_choices.h>
#include <strata/plan/expert_rows.h>
#include <strata/config/objective.h>
#include <strata/plan/job.h>
#include <strata/plan/subspaces.h>
#include <strata/config/train_config.h>
#include <strata/config/decide.h>
#include <strata/config/model_choice.h>
#include <strata/config/optimizer_choice.h>
#include <strata/plan/record_programs.h>

#include "decide_keys.h"
#include <strata/plan/gemm_choice.h>
#include "plan_choice.h"
#include "programs/training_program.h"
#include "schedule_choice.h"
#include "stage_layers.h"

namespace strata {
namespace {

PlacementPolicy placement_policy(const std::string& name) {
  return name == "device"   ? PlacementPolicy::device
         : name == "pinned" ? PlacementPolicy::pinned
         : name == "nvme"   ? PlacementPolicy::nvme
                            : PlacementPolicy::automatic;
}

GradientPolicy gradient_policy(const std::string& name) {
  return name == "device"   ? GradientPolicy::device
         : name == "pinned" ? GradientPolicy::pinned
                            : GradientPolicy::automatic;
}

cpuopt::OptimizerParams optimizer_params(const TrainConfig& config) {
  const TrainConfig::Optim& c = config.optim;
  const cpuopt::OptimizerFacts& reads = chosen_optimizer(config);
  cpuopt::OptimizerParams o;
  o.optimizer = reads.optimizer;
  o.momentum = reads.momentum ? c.momentum : 0;
  o.nesterov = reads.momentum && c.nesterov;
  o.beta1 = c.beta1;
  o.beta2 = c.beta2;
  o.eps = c.eps;
  o.weight_decay = c.weight_decay;
  o.ema_decay = c.ema_decay;
  return o;
}

NvmeOptions nvme_options(const TrainConfig& c) {
  NvmeOptions o;
  o.dirs = c.memory.nvme_dirs;
  o.path_rates = c.memory.nvme_rates;
  o.engine = c.io.engine == "uring"     ? IoEngine::uring
             : c.io.engine == "threads" ? IoEngine::threads
                                        : IoEngine::automatic;
  o.queue_depth = c.io.queue_depth;
  o.block_bytes = c.io.block_bytes;
  o.direct = c.io.direct;
  return o;
}

Result<SessionOptions> engine_options(const TrainConfig& c) {
  SessionOptions o;
  o.budgets = {*c.memory.device_bytes, *c.memory.pinned_bytes, c.memory.nvme_bytes};
  o.policy = placement_policy(c.offload.policy);
  o.gradients = gradient_policy(c.offload.gradients);
  o.chunk_elems = c.offload.chunk_elems.value_or(0);
  o.step_mode = *step_mode_named(c.offload.step_mode);  // the schema knows no other names
  o.undo_bytes = c.offload.undo_bytes;
  if (c.offload.prefetch) o.prefetch = static_cast<std::uint32_t>(*c.offload.prefetch);
  o.grad_accum = c.train.grad_accum;
  o.ranks = data_parallel(c);
  o.model = model_parallel(c);
  o.frozen_masters = c.train.frozen_masters.value_or(true);
  o.saves_frozen = saves_frozen(c);
  o.clip = c.optim.clip;
  o.loss_scale = c.optim.loss_scale;
  o.optimizer = optimizer_params(c);
  STRATA_TRY_ASSIGN(o.groups, param_groups(c, decoder_config(c)));
  o.states = c.offload.states == "int8"   ? StateFormat::int8
             : c.offload.states == "bf16" ? StateFormat::bf16
                                          : StateFormat::fp32;
  o.rounding_seed = c.train.seed;
  o.non_finite = c.optim.non_finite == "skip" ? NonFinite::skip : NonFinite::stop;
  o.nvme = nvme_options(c);
  o.step_sums = expert_sums(c);
  o.edited = balanced_biases(c);
  return o;
}

// There is no forecast for an NVMe tier whose rates were not measured.
bool has_rates(const MachineProfile& profile, const TrainConfig& c) {
  return c.memory.nvme_bytes == 0 || (profile.read_bytes_per_s > 0 && profile.write_bytes_per_s > 0);
}

std::string no_rates_text(const MachineProfile& profile, const TrainConfig& c) {
  return str("no forecast: the profile of ", profile.name, " has no NVMe rates, but memory.nvme is ",
             format_bytes(c.memory.nvme_bytes), " (strata bench --nvme-dir measures it)");
}

// Why the forecast chose the plan.
std::string rank_text(const FoundPlan& found, const MachineProfile& profile) {
  return found.candidates > 1
             ? str("fastest of ", found.candidates, " candidates by the forecast for ", profile.name)
             : str("the only candidate that fits; forecast for ", profile.name);
}

}  // namespace

namespace {

// Decides parallel.zero if it is auto. Stage 2 gathers parameters once a step, stage 3 for each use, which
// needs less memory.
Result<FoundPlan> choose_stage(LoadedConfig& loaded, CandidatePrograms& candidates, SessionOptions& asked,
                               const MachineProfile* profile, bool explain_refusal) {
  TrainConfig::Parallel& parallel = loaded.config.parallel;
  const auto decide_stage = [&](int stage, std::string why) {
    decide(loaded, "parallel.zero", std::int64_t{stage}, std::move(why));
    asked.ranks = data_parallel(loaded.config);
  };
  if (!parallel.zero && asked.ranks.ranks == 1) decide_stage(0, "there is one copy of the model");
  if (parallel.zero) return choose_plan(loaded, candidates, asked, profile, explain_refusal);
  asked.ranks.zero = 2;
  CandidatePrograms fewer_gathers;
  auto found = choose_plan(loaded, fewer_gathers, asked, profile, false);
  if (found.has_value()) {
    decide_stage(2, "parameters are gathered once a step");
    candidates = std::move(fewer_gathers);
    return found;
  }
  if (found.status().code() != Code::does_not_fit) return found;
  decide_stage(3, "with gathered parameters kept for a whole step, the run does not fit");
  return choose_plan(loaded, candidates, asked, profile, explain_refusal);
}

}  // namespace

Result<PlannedJob> plan_job(LoadedConfig& loaded, const PlanBasis& basis) {
  STRATA_TRY_ASSIGN(const TierBytes most, decide_machine(loaded, basis.profile, basis.other_machine));
  const TrainConfig& c = loaded.config;
  STRATA_TRY(validate(decoder_config(c)));
  STRATA_TRY(decide_frozen_masters(loaded));
  decide_old_log_probs(loaded);
  record_auto_keys(loaded.tree);
  const bool by_time = basis.by_forecast && basis.profile != nullptr && has_rates(*basis.profile, c);
  STRATA_TRY(detail::decide_schedule(loaded, by_time ? basis.profile : nullptr, basis.other_machine));
  STRATA_TRY(detail::decide_stage_layers(loaded, basis.profile));
  PlannedJob job;
  if (basis.other_machine) job.other_machine = basis.profile->name;
  if (!basis.other_machine) job.bf16_gemm = bf16_gemm_text(loaded);
  STRATA_TRY_ASSIGN(SessionOptions asked, engine_options(c));
  asked.capacity = most;
  if (basis.profile != nullptr) {
    const auto [bytes_per_s, latency_s] = basis.profile->network(asked.ranks.threads);
    asked.network_half_rate_bytes = bytes_per_s * latency_s;
  }
  CandidatePrograms candidates;
  STRATA_TRY_ASSIGN(FoundPlan found, choose_stage(loaded, candidates, asked,
                                                  by_time ? basis.profile : nullptr, basis.explain_refusal));
  std::string by_forecast;
  if (by_time) {
    by_forecast = rank_text(found, *basis.profile);
    const std::string changes = resolve_changes(loaded, asked, found, by_forecast);
    job.chosen_by = by_forecast + (changes.empty() ? "" : ": " + changes);
    job.forecast = found.forecast;
  } else if (basis.by_forecast && basis.profile != nullptr) {
    job.chosen_by = no_rates_text(*basis.profile, c);
  }
  job.plan = std::move(found.plan);
  if (by_time && c.optim.clip > 0 && job.plan->undo.covers_any()) {
    STRATA_TRY_ASSIGN(const Forecast clipped, forecast(*job.plan, *basis.profile, {.clipped = 1}));
    job.clipped_step_s = clipped.step_s;
  }
  const ActivationChoice& chosen = candidates.activations[found.programs];
  job.recompute = chosen.recompute;
  resolve_activations(loaded.tree, c, chosen, by_forecast);
  resolve_plan(loaded, *job.plan);
  return job;
}

Result<PlannedJob> plan_with_batch_split(
    const ConfigRequest& request, LoadedConfig& loaded, PlanBasis basis,
    const std::function<Result<LoadedConfig>(const ConfigRequest&)>& load) {
  const bool explain_refusal = basis.explain_refusal;
  int micro_batch = loaded.config.train.micro_batch, grad_accum = loaded.config.train.grad_accum;
  const std::string asked = str("train.micro_batch=", micro_batch, " train.grad_accum=", grad_accum);
  for (bool was_split = false;; was_split = true) {
    const bool splits = loaded.config.train.allow_micro_batch_split && micro_batch % 2 == 0;
    basis.explain_refusal = explain_refusal && !splits;
    auto planned = plan_job(loaded, basis);
    if (planned.has_value() && was_split) planned->split = asked;
    if (planned.has_value() || !splits || planned.status().code() != Code::does_not_fit) return planned;
    micro_batch /= 2;
    grad_accum *= 2;
    STRATA_TRY_ASSIGN(LoadedConfig again,
                      load(with_overrides(request, {str("train.micro_batch=", micro_batch),
                                                    str("train.grad_accum=", grad_accum)})));
    carry_over_bf16_gemm(loaded, again);
    if (again.config.train.attention_backend == "auto" && loaded.config.train.attention_backend != "auto")
      decide(again, "train.attention_backend", loaded.config.train.attention_backend,
             std::string(loaded.tree.entry("train.attention_backend").why));
    loaded = std::move(again);
  }
}

Result<std::unique_ptr<const RunPlan>> plan_programs(LoadedConfig& loaded, const ProgramSet& programs,
                                                     bool shared) {
  STRATA_TRY_ASSIGN(const TierBytes most, decide_machine(loaded));
  STRATA_TRY_ASSIGN(SessionOptions asked, engine_options(loaded.config));
  asked.capacity = most;
  asked.ranks = {};  // one copy of the model evaluates and generates
  if (!shared) asked.model = {};
  STRATA_TRY_ASSIGN(std::unique_ptr<const RunPlan> plan, Engine::plan(programs, asked));
  resolve_prefetch(loaded, *plan);
  return plan;
}

Result<std::unique_ptr<const RunPlan>> plan_evaluation(LoadedConfig& loaded, bool shared) {
  STRATA_TRY(decide_machine(loaded).status());  // decides the dtype that the program is recorded in
  ProgramSet programs;
  STRATA_TRY_ASSIGN(Program evaluation, record_evaluation(loaded.config));
  STRATA_TRY_ASSIGN(evaluation, with_unread_parameters(std::move(evaluation), loaded.config,
                                                       decoder_config(loaded.config)));
  if (shared) {
    STRATA_TRY(split_among_ranks({&evaluation, 1}, loaded.config, decoder_config(loaded.config).tied_head));
    if (loaded.config.parallel.pp > 1) {
      STRATA_TRY_ASSIGN(const ModelPipeline pipeline, ModelPipeline::create(evaluation, loaded.config));
      STRATA_TRY_ASSIGN(evaluation,
                        pipeline.forward(detail::with_expert_blocks(std::move(evaluation), loaded.config)));
    }
  }
  programs[ProgramRole::eval] = specialize_for_backend(std::move(evaluation), loaded.config);
  if (objective_of(loaded.config).has_reference && !shared) {
    STRATA_TRY_ASSIGN(Program reference, record_reference(loaded.config));
    programs.add({kReferenceProgram, ProgramRole::forward, std::move(reference)});
  }
  return plan_programs(loaded, programs, shared);
}

}  // namespace strata
