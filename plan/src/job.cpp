#include <strata/plan/job.h>

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/train_config.h>
#include <strata/profile/compute_device.h>
#include <strata/profile/memory_budgets.h>
#include <strata/runtime/memory/host_memory.h>
#include <strata/runtime/plural.h>
#include <strata/parallel/agree.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/topology.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

constexpr std::size_t kQueueDepth = 256;  // entries per stream; 1024 would use megabytes without a benefit

// Bytes that are allocated on a GPU at the start.
std::uint64_t bytes_on_gpu(const RunPlan& plan) {
  return placement_bytes(plan.layout, plan.trace, plan.placement)[static_cast<std::size_t>(Tier::device)];
}

Status check_ram(const TrainConfig& config, const RunPlan& plan, std::uint64_t reclaimable_bytes) {
  const HostFacts facts = read_host_facts();
  const auto ranks = static_cast<std::uint64_t>(config.parallel.local_ranks);
  Status room = check_host_memory(ranks * bytes_in_ram(config, plan), config.cpu.share.threads(), facts,
                                  ranks * reclaimable_bytes);
  const std::uint64_t ram = available_for_slabs(facts, ranks * reclaimable_bytes) / ranks;
  if (room.is_ok() || bytes_in_ram(config, plan) <= ram) return room;
  if (ranks > 1) room = room.annotate(str(plural(ranks, "rank"), " on this machine"));
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
  const std::uint64_t needed = plan.planned_peak[static_cast<std::size_t>(Tier::nvme)] *
                               static_cast<std::uint64_t>(config.parallel.local_ranks);
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

std::uint64_t bytes_in_ram(const TrainConfig& config, const RunPlan& plan) noexcept {
  const auto peak = [&](Tier tier) { return plan.planned_peak[static_cast<std::size_t>(tier)]; };
  return peak(Tier::pinned) + (config.memory.backend == "cuda" ? 0 : peak(Tier::device));
}

Result<std::unique_ptr<Job>> Job::start(const TrainConfig& config, const RunPlan& plan, Io& io, Trace* trace,
                                        World* world) {
  auto job = std::make_unique<Job>();
  job->world_ = world;
  // The tracks of a backend are those of one rank.
  Trace* const of_backend = world != nullptr && world->ranks_here() > 1 ? nullptr : trace;
  const auto create = [&] { return create_device(config, of_backend); };
  STRATA_TRY_ASSIGN(const std::shared_ptr<void> device, world == nullptr ? create() : world->share(create));
  job->device_ = std::static_pointer_cast<Device>(device);
  STRATA_TRY(job->restart(config, plan, io, trace));
  return job;
}

Result<std::shared_ptr<void>> Job::create_device(const TrainConfig& config, Trace* trace) {
  auto device = std::make_shared<Device>();
  STRATA_TRY_ASSIGN(device->pool, ThreadPool::create(config.cpu.share));
  const int index = gpu_of_local_rank(config.parallel.local_rank);
  STRATA_TRY_ASSIGN(const ComputeDevice gpu, compute_device(config.memory.backend, index));
  STRATA_TRY_ASSIGN(device->backend,
                    create_backend(gpu.kind, {.gpu = index, .queue_depth = kQueueDepth, .trace = trace},
                                   *device->pool, device->clock));
  return std::shared_ptr<void>(std::move(device));
}

Status Job::check_room(const TrainConfig& config, const RunPlan& plan, Io& io) const {
  const RunPlan* const before = engine_ == nullptr ? nullptr : &engine_->plan();
  STRATA_TRY(check_ram(config, plan, before == nullptr ? 0 : bytes_in_ram(config, *before)));
  if (before != nullptr) STRATA_TRY(check_disks(config, plan, io, engine_->nvme_paths()));
  if (config.memory.backend != "cuda") return {};
  STRATA_TRY_ASSIGN(ComputeDevice gpu,
                    compute_device(config.memory.backend, gpu_of_local_rank(config.parallel.local_rank)));
  if (before != nullptr) gpu.free_bytes += bytes_on_gpu(*before);
  return check_gpu_memory(bytes_on_gpu(plan), gpu);
}

Status Job::restart(const TrainConfig& config, const RunPlan& plan, Io& io, Trace* trace) {
  engine_.reset();  // frees its host and GPU memory
  trim_heap();
  // All ranks look before any of them allocates.
  STRATA_TRY(agree(world_, check_room(config, plan, io)));
  STRATA_TRY(agree(world_, create_engine(config, plan, io, trace)));
  return {};
}

Status Job::create_engine(const TrainConfig& config, const RunPlan& plan, Io& io, Trace* trace) {
  const bool uses_nvme = plan.planned_peak[static_cast<std::size_t>(Tier::nvme)] > 0;
  if (uses_nvme)
    for (const std::string& dir : config.memory.nvme_dirs)
      if (const Status made = io.make_dirs(dir); !made.is_ok())
        return Status::error(Code::io_error, str("memory.nvme_dir = ", dir, ": ", made.message()));
  auto engine = Engine::create(plan, {.backend = *device_->backend,
                                      .pool = *device_->pool,
                                      .clock = device_->clock,
                                      .io = io,
                                      .trace = trace,
                                      .world = world_});
  if (!engine.has_value() && uses_nvme)
    return engine.status().annotate(fmt::format("memory.nvme_dir = {}, io.engine = {}",
                                                fmt::join(config.memory.nvme_dirs, ","), config.io.engine));
  if (!engine.has_value()) return engine.status();
  engine_ = *std::move(engine);
  return {};
}

}  // namespace strata
