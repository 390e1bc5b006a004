#include "verbs/offload_overhead.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/threads/topology.h>
#include <strata/plan/job.h>
#include <strata/config/load_config.h>
#include <strata/batches/run_length.h>
#include <strata/train/subspaces/schedule.h>

// Contract C7: the share of a step's time that offloading costs, measured on the user's own model. Both runs
// exist at the same time and alternate every few steps, so that other load on the machine affects both. They
// train on the same batches and must produce the same losses.
namespace strata::cli {
namespace {

constexpr std::int64_t kWarmUp = 2;  // steps of each run that are not measured: caches and pools fill
constexpr std::int64_t kStepsPerRound = 3;

/// One of the two runs that are compared.
class MeasuredRun {
 public:
  static Result<std::unique_ptr<MeasuredRun>> plan(const Args& args, const TrainingData& training_data) {
    STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(with_overrides(args, {"parallel.ranks=1"})));
    decide_by_data(loaded, training_data);
    STRATA_TRY_ASSIGN(PlannedJob planned, plan_job(loaded));
    return std::unique_ptr<MeasuredRun>(
        new MeasuredRun(std::move(loaded), std::move(planned), training_data));
  }

  Status start() {
    STRATA_TRY_ASSIGN(job_, Job::start(loaded_.config, *planned_.plan, posix_io()));
    STRATA_TRY(job_->engine().initialize(loaded_.config.train.seed));
    return run(kWarmUp, false);
  }
  Status run(std::int64_t steps, bool counts = true) {
    for (std::int64_t step = 0; step < steps; ++step) {
      StepReport report;
      STRATA_TRY(subspaces_.before_step(job_->engine(), *batches_).status());
      STRATA_TRY(job_->engine().train_step(*batches_, loaded_.config.optim.lr, report));
      losses.push_back(std::bit_cast<std::uint32_t>(report.loss));
      if (!counts) continue;
      seconds.all.push_back(report.seconds);
      times += report.times;
    }
    return Status::ok();
  }
  /// Planned bytes of host memory.
  std::uint64_t planned_bytes() const { return bytes_in_ram(loaded_.config, *planned_.plan); }
  int threads() const { return loaded_.config.cpu.share.threads(); }

  StepSeconds seconds;
  StallTimes times;
  std::vector<std::uint32_t> losses;  ///< bits of the losses of all steps

 private:
  MeasuredRun(LoadedConfig loaded, PlannedJob planned, const TrainingData& training_data)
      : loaded_(std::move(loaded)),
        planned_(std::move(planned)),
        batches_(training_data.train_batches(loaded_.config.train.micro_batch)),
        subspaces_(loaded_.config) {
    seconds.recompute = to_string(planned_.recompute);
  }
  LoadedConfig loaded_;
  PlannedJob planned_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<MicroBatches> batches_;
  SubspaceSchedule subspaces_;
};

Status check_losses(const MeasuredRun& offloaded, const MeasuredRun& on_device) {
  for (std::size_t i = 0; i < offloaded.losses.size(); ++i)
    if (offloaded.losses[i] != on_device.losses[i])
      return Status::error(
          Code::internal,
          fmt::format("step {}: loss {:08x} with offloading, {:08x} without; please report this", i + 1,
                      offloaded.losses[i], on_device.losses[i]));
  return Status::ok();
}

}  // namespace

Result<OffloadOverhead> measure_offload_overhead(const Args& args, const TrainingData& training_data) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<MeasuredRun> offloaded, MeasuredRun::plan(args, training_data));
  STRATA_TRY_ASSIGN(const std::unique_ptr<MeasuredRun> on_device,
                    MeasuredRun::plan(with_overrides(args, device_only_overrides()), training_data));
  STRATA_TRY(offloaded->start());
  OffloadOverhead result;
  result.not_measured_reason =
      reason_not_fitting(on_device->planned_bytes(), on_device->threads(), read_host_facts());
  if (result.not_measured_reason.empty()) {
    const Status started = on_device->start();  // while the other run holds its part of the device
    if (started.code() == Code::does_not_fit || started.code() == Code::out_of_memory)
      result.not_measured_reason = started.message();
    else
      STRATA_TRY(started.annotate("with everything on the device"));
  }
  const bool both = result.not_measured_reason.empty();
  for (std::int64_t left = args.steps; left > 0; left -= kStepsPerRound) {
    STRATA_TRY(offloaded->run(std::min(left, kStepsPerRound)));
    if (both)
      STRATA_TRY(on_device->run(std::min(left, kStepsPerRound)).annotate("with everything on the device"));
  }
  if (both) STRATA_TRY(check_losses(*offloaded, *on_device));
  result.offloaded = std::move(offloaded->seconds);
  result.on_device = std::move(on_device->seconds);
  result.times = offloaded->times;
  return result;
}

}  // namespace strata::cli
