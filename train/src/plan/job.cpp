#include <strata/train/job.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/cpuopt/isa.h>
#include <strata/cpuopt/prefetch.h>
#include <strata/engine/plan_search.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/fp8.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/folder.h>
#include <strata/profile/compute_device.h>
#include <strata/profile/host_memory.h>
#include <strata/profile/machine_memory.h>
#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/topology.h>
#include <strata/runtime/units.h>
#include <strata/train/activation_choices.h>
#include <strata/train/training_data.h>

#include "config/param_groups.h"
#include "plan/gemm_choice.h"
#include "plan/plan_choice.h"

namespace strata {
namespace {

constexpr std::size_t kQueueDepth = 256;  // entries per stream; 1024 would use megabytes without a benefit

SessionOptions engine_options(const TrainConfig& c) {
  SessionOptions o;
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
  for (const std::string& group : c.optim.param_groups)
    o.groups.push_back(must(parse_param_group(group)));  // checked by fill_train_config()
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

// Resolves `auto` budgets from the memory of this machine, or from the profile of another one.
Status decide_memory(LoadedConfig& loaded, const MachineProfile* machine, const ComputeDevice& device) {
  TrainConfig& c = loaded.config;
  const auto decide = [&](std::optional<std::uint64_t>& bytes, Tier tier, std::uint64_t here,
                          const std::string& why) {
    if (bytes) return;
    bytes = machine == nullptr ? here : machine->memory[static_cast<std::size_t>(tier)];
    loaded.tree.resolve(str("memory.", to_string(tier)), *bytes,
                        machine == nullptr ? why : str("the memory of ", machine->name));
  };
  const std::uint64_t share = default_ram_budget(read_host_facts());
  if (device.kind == DeviceKind::cuda)
    decide(c.memory.device_bytes, Tier::device, default_gpu_budget(device.free_bytes),
           str("90 % of the free memory of ", device.name));
  else
    decide(c.memory.device_bytes, Tier::device, share, "40 % of the free memory");
  decide(c.memory.pinned_bytes, Tier::pinned, device.kind == DeviceKind::cuda ? 2 * share : share,
         device.kind == DeviceKind::cuda ? "80 % of the free memory" : "40 % of the free memory");
  return {};
}

// Resolves the `auto` keys that depend on the machine and not on the model. Returns the machine's memory.
Result<TierBytes> decide_machine(LoadedConfig& loaded, const MachineProfile* machine = nullptr) {
  TrainConfig& c = loaded.config;
  resolve_backend(loaded, machine);
  // A plan for another machine's GPU must not require one here.
  ComputeDevice device;
  if (machine == nullptr) {
    STRATA_TRY_ASSIGN(device, compute_device(c.memory.backend));
  }
  STRATA_TRY(decide_memory(loaded, machine, device));
  if (c.train.fp8 && device.kind == DeviceKind::cuda &&
      device.compute_capability < kernels::kMinFp8ComputeCapability)
    return Status::error(
        Code::unsupported,
        str("train.fp8 = true: ", device.name, " has compute capability ", device.compute_capability / 10,
            ".", device.compute_capability % 10, "; FP8 GEMMs need 8.9 or later"));
  if (c.train.attention_backend == "wgmma" && device.kind == DeviceKind::cuda && !kernels::cuda_has_wgmma())
    return Status::error(Code::unsupported,
                         str("train.attention_backend = wgmma: ", device.name, " has compute capability ",
                             device.compute_capability / 10, ".", device.compute_capability % 10,
                             "; wgmma needs 9.0 and a build with 90a in CMAKE_CUDA_ARCHITECTURES"));
  if (c.train.attention_backend == "cudnn" && device.kind == DeviceKind::cuda)
    STRATA_TRY(kernels::cudnn_version().status().annotate("train.attention_backend = cudnn"));
  if (machine == nullptr) STRATA_TRY(resolve_bf16_gemm(loaded));
  if (c.train.dtype == "auto" && c.train.fp8) {
    c.train.dtype = "bf16";
    loaded.tree.resolve("train.dtype", c.train.dtype, "the dtype that train.fp8 quantizes");
  }
  if (c.train.dtype == "auto" && machine != nullptr) {
    c.train.dtype = machine->flops_16bit.back() > machine->flops_f32.back() ? "bf16" : "f32";
    loaded.tree.resolve("train.dtype", c.train.dtype, str("the fastest GEMM dtype of ", machine->name));
  }
  if (c.train.dtype == "auto" && device.kind == DeviceKind::cuda) {
    c.train.dtype = "bf16";
    loaded.tree.resolve("train.dtype", c.train.dtype, "the fast GEMM dtype of GPUs");
  }
  if (c.train.dtype == "auto") {
    const bool native = kernels::bf16_gemm() != kernels::Bf16Gemm::widened;
    const ConfigEntry& gemm = loaded.tree.entry("cpu.bf16_gemm");
    c.train.dtype = native ? "bf16" : "f32";
    loaded.tree.resolve("train.dtype", c.train.dtype,
                        native
                            ? str("this CPU has bf16 GEMMs: ", kernels::bf16_gemm_kind())
                            : str("bf16 would be widened to f32: ", gemm.automatic ? gemm.why : gemm.origin));
  }
  STRATA_TRY_ASSIGN(const cpuopt::CpuIsa isa, cpuopt::select_isa(c.cpu.isa == "sse4" ? "sse42" : c.cpu.isa));
  if (c.cpu.isa == "auto")
    loaded.tree.resolve("cpu.isa",
                        std::string(isa == cpuopt::CpuIsa::sse42 ? "sse4" : cpuopt::to_string(isa)),
                        "the best that this CPU supports");
  STRATA_TRY(cpuopt::use_isa(isa));
  static_cast<void>(cpuopt::active_prefetch());  // measured now instead of in the first step
  return machine_memory(machine, device, read_host_facts(),
                        {*c.memory.device_bytes, *c.memory.pinned_bytes, c.memory.nvme_bytes});
}

// f32 masters of frozen parameters are worth their memory only if they have bits that the compute dtype loses
// and that come from a checkpoint of the user: extra bits of randomly initialized values do not matter.
Status decide_frozen_masters(LoadedConfig& loaded) {
  TrainConfig& c = loaded.config;
  if (c.train.frozen_masters) return {};
  if (c.train.freeze.empty()) {
    loaded.tree.resolve("train.frozen_masters", false, "no parameter is frozen");
    return {};
  }
  bool keeps = false;
  std::string why = c.train.dtype == "f32" ? "a parameter in f32 is its own master"
                                           : "initial values are random and stored in train.dtype";
  if (c.train.dtype != "f32" && !c.model.from.empty()) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<HfFolder> folder, HfFolder::open(posix_io(), c.model.from));
    keeps = !folder->is_all(compute_dtype(c));
    why = str(c.model.from, keeps ? " has values that are not exact in " : " has only values of ",
              c.train.dtype);
  }
  c.train.frozen_masters = keeps;
  loaded.tree.resolve("train.frozen_masters", keeps, why);
  return {};
}

void resolve_auto_keys(ConfigTree& tree) {
  if (!tree.is_auto("offload.auto_keys")) return;
  std::vector<std::string> open;
  for (const std::string_view key : kPlannedKeys)
    if (tree.entry(key).automatic) open.emplace_back(key);
  tree.resolve("offload.auto_keys", std::move(open), "the keys that were auto when the run started");
}

void resolve_gradients(ConfigTree& tree, const RunPlan& plan) {
  std::size_t on_device = 0, all = 0;
  for (const auto& homes : plan.placement.homes)
    if (const std::optional<Tier> home = homes[static_cast<std::size_t>(Payload::accum)]) {
      ++all;
      on_device += *home == Tier::device ? 1 : 0;
    }
  // A mixture of both has no name of its own.
  tree.resolve("offload.gradients",
               std::string(on_device == all ? "device"
                           : on_device == 0 ? "pinned"
                                            : "auto"),
               str("the gradients of ", on_device, " of ", all, " chunks are on the device"));
}

void resolve_prefetch(LoadedConfig& loaded, const RunPlan& plan) {
  if (loaded.config.offload.prefetch) return;
  loaded.tree.resolve("offload.prefetch", std::int64_t{*plan.options.prefetch},
                      "2 to 6, as many as fit in an eighth of the device budget with their gradients");
}

std::string_view name_of(GradientPolicy where) {
  return where == GradientPolicy::device ? "device" : "pinned";
}

// Writes the options that the search changed into the configuration, and returns a list of them.
std::string resolve_changes(LoadedConfig& loaded, const SessionOptions& asked, const FoundPlan& found,
                            const std::string& why) {
  TrainConfig& c = loaded.config;
  std::vector<std::string> kept;
  const auto keep = [&](const char* key, ConfigValue value, const auto& shown) {
    loaded.tree.resolve(key, std::move(value), why);
    kept.push_back(str(key, "=", shown));
  };
  const SessionOptions& now = found.options;
  if (now.policy != asked.policy) {
    c.offload.policy = "device";
    keep("offload.policy", c.offload.policy, c.offload.policy);
  }
  if (now.chunk_elems != asked.chunk_elems) {
    c.offload.chunk_elems = now.chunk_elems;
    keep("offload.chunk", now.chunk_elems, now.chunk_elems);
  }
  if (now.gradients != asked.gradients) {
    c.offload.gradients = name_of(now.gradients);
    keep("offload.gradients", c.offload.gradients, c.offload.gradients);
  }
  if (now.prefetch != asked.prefetch) {
    c.offload.prefetch = static_cast<std::int32_t>(*now.prefetch);
    keep("offload.prefetch", std::int64_t{*now.prefetch}, *now.prefetch);
  }
  if (now.step_mode != asked.step_mode) {
    c.offload.step_mode = to_string(now.step_mode);
    keep("offload.step_mode", c.offload.step_mode, c.offload.step_mode + " with an undo log");
  }
  return fmt::format("{}", fmt::join(kept, ", "));
}

// There is no forecast for an NVMe tier whose rates were not measured.
bool is_known(const MachineProfile& profile, const TrainConfig& c) {
  return c.memory.nvme_bytes == 0 || (profile.read_bytes_per_s > 0 && profile.write_bytes_per_s > 0);
}

}  // namespace

Result<PlannedJob> plan_job(LoadedConfig& loaded, const PlanBasis& basis) {
  STRATA_TRY_ASSIGN(const TierBytes most,
                    decide_machine(loaded, basis.other_machine ? basis.profile : nullptr));
  TrainConfig& c = loaded.config;
  STRATA_TRY(validate(decoder_config(c)));
  STRATA_TRY(decide_frozen_masters(loaded));
  resolve_auto_keys(loaded.tree);
  PlannedJob job;
  if (basis.other_machine) job.other_machine = basis.profile->name;
  if (!basis.other_machine) job.bf16_gemm = bf16_gemm_text(loaded);
  SessionOptions asked = engine_options(c);
  asked.capacity = most;
  const bool by_time = basis.profile != nullptr && is_known(*basis.profile, c);
  CandidatePrograms candidates;
  STRATA_TRY_ASSIGN(FoundPlan found, choose_plan(loaded, candidates, asked, by_time ? basis.profile : nullptr,
                                                 basis.explain_refusal));
  std::string by_forecast;
  if (by_time) {
    by_forecast =
        found.candidates > 1
            ? str("fastest of ", found.candidates, " candidates by the forecast for ", basis.profile->name)
            : str("the only candidate that fits; forecast for ", basis.profile->name);
    const std::string changes = resolve_changes(loaded, asked, found, by_forecast);
    job.chosen_by = by_forecast + (changes.empty() ? "" : ": " + changes);
    job.forecast = found.forecast;
  } else if (basis.profile != nullptr) {
    job.chosen_by =
        str("no forecast: the profile of ", basis.profile->name, " has no NVMe rates, but memory.nvme is ",
            format_bytes(c.memory.nvme_bytes), " (strata bench --nvme-dir measures it)");
  }
  job.plan = std::move(found.plan);
  if (by_time && c.optim.clip > 0 && job.plan->undo.covers_any()) {
    STRATA_TRY_ASSIGN(const Forecast clipped, forecast(*job.plan, *basis.profile, {.clipped = 1}));
    job.clipped_step_s = clipped.step_s;
  }
  const ActivationChoice& chosen = candidates.activations[found.programs];
  job.recompute = chosen.recompute;
  resolve_activations(loaded.tree, c, chosen, by_forecast);
  if (!c.offload.undo_bytes)
    loaded.tree.resolve("offload.undo_log", std::uint64_t{job.plan->undo.bytes},
                        !job.plan->undo.covers_any()
                            ? str("no update is speculative in mode ", c.offload.step_mode)
                            : std::string("what the pinned budget leaves, as far as it can be used"));
  resolve_prefetch(loaded, *job.plan);
  if (c.offload.gradients == "auto") resolve_gradients(loaded.tree, *job.plan);
  if (loaded.tree.is_auto("offload.policy"))
    loaded.tree.resolve("offload.policy", std::string("min_traffic"), "the placement with the least traffic");
  if (loaded.tree.is_auto("offload.chunk"))
    loaded.tree.resolve("offload.chunk", job.plan->layout.chunk_elems(), job.plan->layout.explanation());
  return job;
}

Result<PlannedJob> plan_with_batch_split(
    const ConfigRequest& request, LoadedConfig& loaded, PlanBasis basis,
    const std::function<Result<LoadedConfig>(const ConfigRequest&)>& load) {
  const bool explain_refusal = basis.explain_refusal;
  int micro_batch = loaded.config.train.micro_batch, grad_accum = loaded.config.train.grad_accum;
  const std::string packing = loaded.config.data.packing,
                    asked = str("train.micro_batch=", micro_batch, " train.grad_accum=", grad_accum);
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
    loaded = std::move(again);
    loaded.config.data.packing = packing;
  }
}

void resolve_backend(LoadedConfig& loaded, const MachineProfile* other_machine) {
  TrainConfig& c = loaded.config;
  if (c.memory.backend != "auto") return;
  c.memory.backend = other_machine != nullptr && !other_machine->device_is_host ? "cuda" : "host";
  loaded.tree.resolve("memory.backend", c.memory.backend,
                      other_machine != nullptr ? str("the compute device of ", other_machine->name)
                      : cuda_available()       ? std::string("a GPU is used only with memory.backend=cuda")
                                               : cuda_status());
}

Result<std::unique_ptr<const RunPlan>> plan_programs(LoadedConfig& loaded, const ProgramSet& programs) {
  STRATA_TRY_ASSIGN(const TierBytes most, decide_machine(loaded));
  SessionOptions asked = engine_options(loaded.config);
  asked.capacity = most;
  STRATA_TRY_ASSIGN(std::unique_ptr<const RunPlan> plan, Engine::plan(programs, asked));
  resolve_prefetch(loaded, *plan);
  return plan;
}

Result<std::unique_ptr<const RunPlan>> plan_evaluation(LoadedConfig& loaded) {
  STRATA_TRY(decide_machine(loaded).status());  // decides the dtype that the program is recorded in
  ProgramSet programs;
  STRATA_TRY_ASSIGN(Program evaluation, record_evaluation(loaded.config));
  programs[ProgramRole::eval] = specialize_for_backend(std::move(evaluation), loaded.config);
  return plan_programs(loaded, programs);
}

std::uint64_t bytes_in_ram(const TrainConfig& config, const RunPlan& plan) noexcept {
  const auto peak = [&](Tier tier) { return plan.planned_peak[static_cast<std::size_t>(tier)]; };
  return peak(Tier::pinned) + (config.memory.backend == "cuda" ? 0 : peak(Tier::device));
}

Result<std::unique_ptr<Job>> Job::start(const TrainConfig& config, const RunPlan& plan, Io& io,
                                        Trace* trace) {
  auto job = std::make_unique<Job>();
  STRATA_TRY_ASSIGN(job->pool_, ThreadPool::create(config.cpu.share));
  STRATA_TRY_ASSIGN(const ComputeDevice device, compute_device(config.memory.backend));
  STRATA_TRY_ASSIGN(job->backend_, create_backend(device.kind, {.queue_depth = kQueueDepth, .trace = trace},
                                                  *job->pool_, job->clock_));
  STRATA_TRY(job->restart(config, plan, io, trace));
  return job;
}

namespace {

// Bytes that are allocated on a GPU at the start.
std::uint64_t bytes_on_gpu(const RunPlan& plan) {
  return placement_bytes(plan.layout, plan.trace, plan.placement)[static_cast<std::size_t>(Tier::device)];
}

Status check_ram(const TrainConfig& config, const RunPlan& plan, std::uint64_t reclaimable_bytes) {
  const HostFacts facts = read_host_facts();
  Status room =
      check_host_memory(bytes_in_ram(config, plan), config.cpu.share.threads(), facts, reclaimable_bytes);
  const std::uint64_t ram = available_for_slabs(facts, reclaimable_bytes);
  if (room.is_ok() || bytes_in_ram(config, plan) <= ram) return room;
  const auto budgets = fit_budgets(plan, ram, config.memory.backend != "cuda");
  return Status::error(
      room.code(),
      str(room.message(), ".\n  ",
          budgets ? str("it fits now with: memory.device=", (*budgets)[0], " memory.pinned=", (*budgets)[1])
                  : std::string("no budgets of device and pinned RAM fit now with this memory.nvme")));
}

// Checks each directory's part, divided by the directories' rates. If the rates are not known yet, checks the
// sum.
Status check_disks(const TrainConfig& config, const RunPlan& plan, Io& io,
                   const std::vector<NvmePath>& before) {
  const std::uint64_t needed = plan.planned_peak[static_cast<std::size_t>(Tier::nvme)];
  if (needed == 0) return {};
  const std::vector<std::string>& dirs = config.memory.nvme_dirs;
  std::vector<double> rates = config.memory.nvme_rates;
  if (rates.empty() && before.size() == dirs.size())
    for (const NvmePath& path : before) rates.push_back(path.rate);
  if (dirs.size() == 1) rates = {1};
  const double all_rates = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::uint64_t free_of_all = 0;
  for (std::size_t i = 0; i < dirs.size(); ++i) {
    STRATA_TRY(io.make_dirs(dirs[i]).annotate(str("memory.nvme_dir = ", dirs[i])));
    STRATA_TRY_ASSIGN(std::uint64_t free, io.free_bytes(dirs[i]));
    for (const NvmePath& path : before)
      if (path.dir == dirs[i]) free += path.bytes;
    free_of_all += free;
    if (rates.empty()) continue;
    const auto here = static_cast<std::uint64_t>(static_cast<double>(needed) * rates[i] / all_rates);
    if (here > free)
      return Status::error(Code::no_space, str("memory.nvme_dir = ", dirs[i], ": the plan needs ", here,
                                               " bytes (", format_bytes(here), ") there, but only ", free,
                                               " (", format_bytes(free), ") are free"));
  }
  if (needed <= free_of_all) return {};
  return Status::error(Code::no_space, str("the plan needs ", needed, " bytes (", format_bytes(needed),
                                           ") in ", fmt::format("{}", fmt::join(dirs, ",")), ", but only ",
                                           free_of_all, " (", format_bytes(free_of_all), ") are free"));
}

}  // namespace

Status Job::check_room(const TrainConfig& config, const RunPlan& plan, Io& io) const {
  const RunPlan* const before = engine_ == nullptr ? nullptr : &engine_->plan();
  STRATA_TRY(check_ram(config, plan, before == nullptr ? 0 : bytes_in_ram(config, *before)));
  if (before != nullptr) STRATA_TRY(check_disks(config, plan, io, engine_->nvme_paths()));
  if (config.memory.backend != "cuda") return {};
  STRATA_TRY_ASSIGN(ComputeDevice gpu, compute_device(config.memory.backend));
  if (before != nullptr) gpu.free_bytes += bytes_on_gpu(*before);
  return check_gpu_memory(bytes_on_gpu(plan), gpu);
}

Status Job::restart(const TrainConfig& config, const RunPlan& plan, Io& io, Trace* trace) {
  engine_.reset();  // frees its host and GPU memory
  trim_heap();
  STRATA_TRY(check_room(config, plan, io));
  const bool uses_nvme = plan.planned_peak[static_cast<std::size_t>(Tier::nvme)] > 0;
  if (uses_nvme)
    for (const std::string& dir : config.memory.nvme_dirs)
      if (const Status made = io.make_dirs(dir); !made.is_ok())
        return Status::error(Code::io_error, str("memory.nvme_dir = ", dir, ": ", made.message()));
  auto engine = Engine::create(plan, {*backend_, *pool_, clock_, io, trace});
  if (!engine.has_value() && uses_nvme)
    return engine.status().annotate(fmt::format("memory.nvme_dir = {}, io.engine = {}",
                                                fmt::join(config.memory.nvme_dirs, ","), config.io.engine));
  if (!engine.has_value()) return engine.status();
  engine_ = *std::move(engine);
  return {};
}

}  // namespace strata
