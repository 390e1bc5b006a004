#include "training/job.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/cpuopt/isa.h>
#include <strata/engine/plan_search.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/str.h>
#include <strata/runtime/topology.h>
#include <strata/runtime/units.h>

#include "param_groups.h"
#include "training/activation_choices.h"
#include "training/host_memory.h"
#include "training/write_budget.h"
#include "training/workload.h"

namespace strata::cli {
namespace {

constexpr std::size_t kQueueDepth =
    256;  // entries a stream holds; a thousand would cost megabytes for nothing

EngineOptions engine_options(const TrainConfig& c) {
  EngineOptions o;
  o.budgets = {*c.memory.device_bytes, *c.memory.pinned_bytes, c.memory.nvme_bytes};
  const std::string& policy = c.offload.policy;
  o.policy = policy == "device"   ? PlacementPolicy::device
             : policy == "pinned" ? PlacementPolicy::pinned
             : policy == "nvme"   ? PlacementPolicy::nvme
                                  : PlacementPolicy::automatic;
  o.gradients = c.offload.gradients == "device"   ? GradientPolicy::device
                : c.offload.gradients == "pinned" ? GradientPolicy::pinned
                                                  : GradientPolicy::automatic;
  o.chunk_elems = c.offload.chunk_elems.value_or(0);
  o.step_mode = *step_mode_named(c.offload.step_mode);  // the schema knows no other names
  o.undo_bytes = c.offload.undo_bytes;
  if (c.offload.prefetch) o.prefetch = static_cast<std::uint32_t>(*c.offload.prefetch);
  o.grad_accum = c.train.grad_accum;
  o.frozen_masters = c.train.frozen_masters.value_or(true);
  o.clip = c.optim.clip;
  o.loss_scale = c.optim.loss_scale;
  o.optimizer.optimizer = *cpuopt::optimizer_named(c.optim.name);  // the schema knows no other names
  o.optimizer.momentum = c.optim.name == "sgd" ? c.optim.momentum : 0;
  o.optimizer.nesterov = c.optim.name == "sgd" && c.optim.nesterov;
  for (const std::string& group : c.optim.groups)
    o.groups.push_back(must(parse_param_group(group)));  // checked
  o.states = c.offload.states == "int8"   ? StateFormat::int8
             : c.offload.states == "bf16" ? StateFormat::bf16
                                          : StateFormat::fp32;
  o.rounding_seed = c.train.seed;
  o.non_finite = c.optim.non_finite == "skip" ? NonFinite::skip : NonFinite::stop;
  o.optimizer.beta1 = c.optim.beta1;
  o.optimizer.beta2 = c.optim.beta2;
  o.optimizer.eps = c.optim.eps;
  o.optimizer.weight_decay = c.optim.weight_decay;
  o.nvme.dirs = c.memory.nvme_dirs;
  o.nvme.path_rates = c.memory.nvme_rates;
  o.nvme.engine = c.io.engine == "uring"     ? IoEngine::uring
                  : c.io.engine == "threads" ? IoEngine::threads
                                             : IoEngine::automatic;
  o.nvme.queue_depth = c.io.queue_depth;
  o.nvme.block_bytes = c.io.block_bytes;
  o.nvme.direct = c.io.direct;
  return o;
}

// The autos that need facts of the machine, not of the model.
Status decide_machine(LoadedConfig& loaded, const MachineProfile* machine = nullptr) {
  TrainConfig& c = loaded.config;
  if (c.memory.backend == "cuda")
    return Status::error(
        Code::unsupported,
        "memory.backend is cuda, and this version computes on the host backend alone; use host or auto");
  if (c.memory.backend == "auto")
    loaded.tree.resolve("memory.backend", std::string("host"), "what this version computes on");
  c.memory.backend = "host";
  const std::uint64_t share = read_host_facts().usable_ram_bytes() / 10 * 4 / 4096 * 4096;
  const auto decide = [&](std::optional<std::uint64_t>& bytes, const char* key, Tier tier) {
    if (bytes) return;
    bytes = machine == nullptr ? share : machine->memory[static_cast<std::size_t>(tier)];
    loaded.tree.resolve(key, *bytes,
                        machine == nullptr ? std::string("two fifths of the memory that is free")
                                           : str("what ", machine->name, " has"));
  };
  decide(c.memory.device_bytes, "memory.device", Tier::device);
  decide(c.memory.pinned_bytes, "memory.pinned", Tier::pinned);
  if (c.train.dtype == "auto" && machine != nullptr) {
    c.train.dtype = machine->flops_16bit.back() > machine->flops_f32.back() ? "bf16" : "f32";
    loaded.tree.resolve("train.dtype", c.train.dtype, str("what ", machine->name, " multiplies fastest"));
  }
  if (c.train.dtype == "auto") {
    const bool native = kernels::bf16_gemm() != kernels::Bf16Gemm::widened;
    c.train.dtype = native ? "bf16" : "f32";
    loaded.tree.resolve("train.dtype", c.train.dtype,
                        native ? str("this CPU multiplies bf16: ", kernels::bf16_gemm_kind())
                               : std::string("this CPU does not multiply bf16"));
  }
  STRATA_TRY_ASSIGN(const cpuopt::CpuIsa isa, cpuopt::select_isa(c.cpu.isa == "sse4" ? "sse42" : c.cpu.isa));
  if (c.cpu.isa == "auto")
    loaded.tree.resolve("cpu.isa",
                        std::string(isa == cpuopt::CpuIsa::sse42 ? "sse4" : cpuopt::to_string(isa)),
                        "the best this CPU has");
  return cpuopt::use_isa(isa);
}

// Masters of what is frozen are worth their memory where they have bits that the model does not compute with
// and that were given: those of values that are drawn matter to nobody.
Status decide_frozen_masters(LoadedConfig& loaded) {
  TrainConfig& c = loaded.config;
  if (c.train.frozen_masters) return {};
  if (c.train.freeze.empty()) {
    loaded.tree.resolve("train.frozen_masters", false, "nothing is frozen");
    return {};
  }
  bool keeps = false;
  std::string why = c.train.dtype == "f32" ? "a parameter in f32 is its own master"
                                           : "first values are drawn, and rounded as they are";
  if (c.train.dtype != "f32" && !c.model.from.empty()) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<HfFolder> folder, HfFolder::open(posix_io(), c.model.from));
    keeps = !folder->is_all(compute_dtype(c));
    why = str(c.model.from, keeps ? " has other values than those of " : " has values of ", c.train.dtype,
              keeps ? "" : " alone");
  }
  c.train.frozen_masters = keeps;
  loaded.tree.resolve("train.frozen_masters", keeps, why);
  return {};
}

void resolve_gradients(ConfigTree& tree, const RunPlan& plan) {
  std::size_t on_device = 0, all = 0;
  for (const auto& homes : plan.placement.homes)
    if (const std::optional<Tier> home = homes[static_cast<std::size_t>(Payload::accum)]) {
      ++all;
      on_device += *home == Tier::device ? 1 : 0;
    }
  tree.resolve("offload.gradients", std::string(2 * on_device > all ? "device" : "pinned"),
               str("those of ", on_device, " of ", all, " chunks are on the device"));
}

void resolve_prefetch(LoadedConfig& loaded, const RunPlan& plan) {
  if (loaded.config.offload.prefetch) return;
  loaded.tree.resolve(
      "offload.prefetch", std::int64_t{*plan.options.prefetch},
      "2 to 6, as many as take an eighth of the device with their gradients, or as the forecast says");
}

// What is auto and changes a step's time alone.
PlanChoices ways_to_run(const ConfigTree& tree, std::span<const ProgramSet> programs,
                        std::span<const ActivationChoice> activations) {
  PlanChoices ways;
  ways.programs = programs;
  ways.compared =
      static_cast<std::size_t>(std::find_if(activations.begin(), activations.end(),
                                            [](const ActivationChoice& a) { return a.share_away > 0; }) -
                               activations.begin());
  const auto is_open = [&](const char* key) { return tree.entry(key).automatic; };
  ways.changes = changes_of({.step_mode = is_open("offload.step_mode") && is_open("offload.undo"),
                             .chunk = is_open("offload.chunk"),
                             .gradients = is_open("offload.gradients"),
                             .prefetch = is_open("offload.prefetch"),
                             .device_first = tree.entry("offload.policy").origin == "default"});
  return ways;
}

void resolve_changes(LoadedConfig& loaded, const FoundPlan& found, const RunPlan& plan,
                     const MachineProfile& profile) {
  const std::string why = str("fastest of ", found.tried.size(), " ways by the forecast for ", profile.name);
  TrainConfig& c = loaded.config;
  for (const std::string& kept : found.kept) {
    if (kept == kUndoLog) {
      c.offload.step_mode = "auto";
      loaded.tree.resolve("offload.step_mode", c.offload.step_mode, why);
    }
    if (kept == kOtherChunk) loaded.tree.resolve("offload.chunk", plan.layout.chunk_elems(), why);
  }
}

}  // namespace

Result<PlannedJob> plan_job(LoadedConfig& loaded, const PlanBasis& basis) {
  STRATA_TRY(decide_machine(loaded, basis.elsewhere ? basis.profile : nullptr));
  TrainConfig& c = loaded.config;
  STRATA_TRY(validate(decoder_config(c)));
  STRATA_TRY(decide_frozen_masters(loaded));
  std::vector<ActivationChoice> activations;
  std::vector<ProgramSet> choices;
  for (const ActivationChoice& choice : activation_choices(c)) {
    STRATA_TRY_ASSIGN(ProgramSet programs, record_programs(c, choice));
    const Op goes = choice.to_nvme ? Op::store_begin : Op::offload_begin;
    if (choice.share_away > 0 && c.offload.activations == "auto" && !has_op(programs.train, goes))
      continue;  // nothing may go there, so it is a program that is tried already
    activations.push_back(choice);
    choices.push_back(std::move(programs));
  }
  PlannedJob job;
  std::size_t chosen = 0;
  if (basis.profile != nullptr) {
    PlanChoices ways = ways_to_run(loaded.tree, choices, activations);
    ways.explains = basis.explains;
    STRATA_TRY_ASSIGN(FoundPlan found, search_plan(ways, engine_options(c), *basis.profile));
    chosen = found.programs;
    job.plan = std::move(found.plan);
    job.forecast = found.forecast;
    resolve_changes(loaded, found, *job.plan, *basis.profile);
    job.chosen_by = str("fastest of ", found.tried.size(), " ways by the forecast for ", basis.profile->name,
                        found.kept.empty() ? "" : ": ", fmt::format("{}", fmt::join(found.kept, ", ")));
  } else {
    STRATA_TRY_ASSIGN(Engine::Choice first, Engine::plan_first(choices, engine_options(c)));
    chosen = first.index;
    job.plan = std::move(first.plan);
  }
  job.recompute = activations[chosen].recompute;
  resolve_activations(loaded.tree, c, activations[chosen]);
  if (!c.offload.undo_bytes)
    loaded.tree.resolve("offload.undo", std::uint64_t{job.plan->undo.bytes},
                        !job.plan->undo.covers_any()
                            ? str("nothing is updated on trust in mode ", c.offload.step_mode)
                            : std::string("what the pinned budget leaves and can be used"));
  resolve_prefetch(loaded, *job.plan);
  if (c.offload.gradients == "auto") resolve_gradients(loaded.tree, *job.plan);
  if (loaded.tree.is_auto("offload.chunk"))
    loaded.tree.resolve("offload.chunk", job.plan->layout.chunk_elems(), job.plan->layout.explanation());
  return job;
}

Result<std::unique_ptr<const RunPlan>> plan_programs(LoadedConfig& loaded, const ProgramSet& programs) {
  STRATA_TRY(decide_machine(loaded));
  STRATA_TRY_ASSIGN(std::unique_ptr<const RunPlan> plan,
                    Engine::plan(programs, engine_options(loaded.config)));
  resolve_prefetch(loaded, *plan);
  return plan;
}

Result<std::unique_ptr<const RunPlan>> plan_evaluation(LoadedConfig& loaded) {
  STRATA_TRY(decide_machine(loaded));  // chooses the dtype it is recorded in
  ProgramSet programs;
  STRATA_TRY_ASSIGN(programs.eval, record_evaluation(loaded.config));
  return plan_programs(loaded, programs);
}

Result<std::unique_ptr<Job>> Job::start(const TrainConfig& config, const RunPlan& plan, Io& io,
                                        Trace* trace) {
  // On the host backend both tiers are RAM.
  const std::uint64_t in_ram = plan.planned_peak[static_cast<std::size_t>(Tier::device)] +
                               plan.planned_peak[static_cast<std::size_t>(Tier::pinned)];
  STRATA_TRY(check_host_memory(in_ram, config.cpu.share.threads(), read_host_facts()));
  const bool uses_nvme = plan.planned_peak[static_cast<std::size_t>(Tier::nvme)] > 0;
  if (uses_nvme)
    for (const std::string& dir : config.memory.nvme_dirs)
      if (const Status made = io.make_dirs(dir); !made.is_ok())
        return Status::error(Code::io_error, str("memory.nvme_dir = ", dir, ": ", made.message()));
  auto job = std::make_unique<Job>();
  STRATA_TRY_ASSIGN(job->pool_, ThreadPool::create(config.cpu.share));
  HostBackendOptions options;
  options.queue_depth = kQueueDepth;
  options.trace = trace;
  STRATA_TRY_ASSIGN(job->backend_, create_host_backend(options, *job->pool_, job->clock_));
  auto engine = Engine::create(plan, {*job->backend_, *job->pool_, job->clock_, io, trace});
  if (!engine.has_value() && uses_nvme)
    return engine.status().annotate(fmt::format("memory.nvme_dir = {}, io.engine = {}",
                                                fmt::join(config.memory.nvme_dirs, ","), config.io.engine));
  if (!engine.has_value()) return engine.status();
  job->engine_ = *std::move(engine);
  return job;
}

namespace {

std::string budget_text(std::uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : format_bytes(bytes);
}

/// Parameters, masters and moments of all chunks, and the elements of these, unused ones included.
struct HeldStates {
  std::int64_t elems = 0;
  std::uint64_t bytes = 0;
};
HeldStates held_states(const RunPlan& plan) {
  HeldStates held;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    held.elems += plan.layout.chunk(chunk).n_elems;
    for (const Payload payload : kStepPayloads) held.bytes += plan.layout.payload_bytes(chunk, payload);
  }
  return held;
}

struct TierHomes {
  std::size_t payloads = 0;
  std::uint64_t bytes = 0;
};
TierHomes homes_in(const RunPlan& plan, Tier tier) {
  TierHomes homes;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    for (std::size_t p = 0; p < kPayloads; ++p)
      if (plan.placement.homes[chunk][p] == tier) {
        ++homes.payloads;
        homes.bytes += plan.layout.payload_bytes(chunk, static_cast<Payload>(p));
      }
  return homes;
}

}  // namespace

std::string paths_text(const std::vector<NvmePath>& paths) {
  if (paths.size() < 2) return "";
  std::uint64_t all = 0;
  for (const NvmePath& path : paths) all += path.bytes;
  std::string text;
  for (const NvmePath& path : paths)
    text += fmt::format(", {:.0f} % in {}", 100 * static_cast<double>(path.bytes) / static_cast<double>(all),
                        path.dir);
  return text;
}

std::string start_table(const TrainConfig& c, const PlannedJob& job, const std::string& nvme_note) {
  const RunPlan& plan = *job.plan;
  const DecoderConfig d = decoder_config(c);
  std::string text = fmt::format(
      "model    {}: {} layers, hidden {}, heads {}, vocabulary {}, sequence {}: {:.2f} M parameters\n",
      d.family, d.layers, d.hidden, d.heads, d.vocab, d.seq, static_cast<double>(count_parameters(d)) * 1e-6);
  if (const std::int64_t frozen = plan.n_params(false); frozen > 0)
    text += fmt::format("frozen   {:.2f} M parameters; {:.2f} M are trained\n",
                        static_cast<double>(frozen) * 1e-6, static_cast<double>(plan.n_params(true)) * 1e-6);
  text += fmt::format("step     {} tokens ({} micro-batches of {} sequences), {} in {}, recompute {}\n",
                      static_cast<std::int64_t>(c.train.micro_batch) * c.train.grad_accum * c.model.seq,
                      c.train.grad_accum, c.train.micro_batch, c.optim.name, c.offload.states,
                      to_string(job.recompute));
  text += fmt::format("machine  host backend, {}; nvme: {}\n", cpuopt::to_string(cpuopt::active_isa()),
                      nvme_note);
  text += str("cores    ", c.cpu.share.why, "\n");
  for (const std::string& note : plan.notes) text += "plan     " + note + "\n";
  if (!job.chosen_by.empty()) text += str("plan     ", job.chosen_by, "\n");
  if ((c.offload.activations == "pinned" || c.offload.activations == "nvme") && plan.train.offload.n == 0)
    text += "plan     activations: none is unread for so long that it could leave the device\n";
  text += write_budget_text(c, plan);
  text +=
      fmt::format("\n  {:<7} {:>12} {:>12} {:>9}   {}\n", "tier", "budget", "planned peak", "homes", "what");
  const std::size_t away = plan.train.offload.host_bytes;
  const std::array<std::string, kTiers> what = {
      fmt::format("activations {}", format_bytes(plan.trace.device_fixed_bytes)),
      fmt::format("inputs and norm leaves {}", format_bytes(plan.trace.pinned_fixed_bytes - away)) +
          (away > 0 ? ", activations " + format_bytes(away) : ""),
      std::string("spare slots for write-behind included") +
          (plan.trace.nvme_fixed_bytes > 0 ? "; activations " + format_bytes(plan.trace.nvme_fixed_bytes)
                                           : std::string())};
  for (std::size_t t = 0; t < kTiers; ++t) {
    const TierHomes homes = homes_in(plan, static_cast<Tier>(t));
    text +=
        fmt::format("  {:<7} {:>12} {:>12} {:>9}   {} payloads at home; {}\n",
                    to_string(static_cast<Tier>(t)), budget_text(plan.options.budgets[t]),
                    format_bytes(plan.planned_peak[t]), format_bytes(homes.bytes), homes.payloads, what[t]);
  }
  return text + "\n";
}

double tokens_per_step(const TrainConfig& c) noexcept {
  return static_cast<double>(c.train.micro_batch) * c.train.grad_accum * c.model.seq;
}

std::string plan_json(const TrainConfig& c, const RunPlan& plan, Recompute recompute,
                      const std::string& forecast) {
  const DecoderConfig d = decoder_config(c);
  const HeldStates held = held_states(plan);
  std::string text = fmt::format(
      "{{\n  \"parameters\": {},\n  \"trainable_parameters\": {},\n  \"frozen_parameters\": {},\n  "
      "\"chunks\": {},\n  \"chunk_elems\": {},\n  \"held_elems\": {},\n  "
      "\"state_bytes\": {},\n  \"recompute\": \"{}\",\n  "
      "\"prefetch\": {},\n"
      "  \"activation_bytes\": {},\n  \"activations_away\": {{\"values\": {}, \"moved_bytes\": {}, "
      "\"pinned_bytes\": {}, \"nvme_bytes\": {}}},\n  \"instructions\": {},\n  \"tiers\": {{\n",
      count_parameters(d), plan.n_params(true), plan.n_params(false), plan.layout.n_chunks(),
      plan.layout.chunk_elems(), held.elems, held.bytes, to_string(recompute), *plan.options.prefetch,
      plan.trace.device_fixed_bytes, plan.train.offload.n, plan.train.offload.bytes,
      plan.train.offload.host_bytes, plan.trace.nvme_fixed_bytes, plan.train.code.size());
  for (std::size_t t = 0; t < kTiers; ++t) {
    const TierHomes homes = homes_in(plan, static_cast<Tier>(t));
    text += fmt::format(
        "    \"{}\": {{\"budget_bytes\": {}, \"planned_bytes\": {}, \"home_bytes\": {}, \"home_payloads\": "
        "{}}}{}\n",
        to_string(static_cast<Tier>(t)),
        plan.options.budgets[t] == kUnlimited ? std::string("null") : str(plan.options.budgets[t]),
        plan.planned_peak[t], homes.bytes, homes.payloads, t + 1 < kTiers ? "," : "");
  }
  return text + "  }" + (forecast.empty() ? "" : ",\n  \"forecast\": " + forecast) + "\n}\n";
}

}  // namespace strata::cli
