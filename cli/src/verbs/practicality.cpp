#include "verbs/practicality.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include <strata/runtime/str.h>
#include <strata/runtime/topology.h>

#include "load_config.h"
#include "training/job.h"

// Contract C7: what of a step's time offload costs, on the user's own model. Both sides are held at once and
// take turns, a few steps each, so that what else the machine does meets both; they see the same batches, and
// have to give the same losses.
namespace strata::cli {
namespace {

constexpr std::int64_t kWarmUp = 2;  // steps of each side that are not counted: caches and pools fill
constexpr std::int64_t kTurn = 3;    // steps

/// One of the two runs.
class Side {
 public:
  static Result<std::unique_ptr<Side>> plan(const Args& args, const Workload& workload) {
    STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(args));
    loaded.config.data.packing = workload.packing();
    STRATA_TRY_ASSIGN(PlannedJob planned, plan_job(loaded));
    return std::unique_ptr<Side>(new Side(std::move(loaded), std::move(planned), workload));
  }

  Status start() {
    STRATA_TRY_ASSIGN(job_, Job::start(loaded_.config, *planned_.plan, posix_io()));
    STRATA_TRY(job_->engine().initialize(loaded_.config.train.seed));
    return run(kWarmUp, false);
  }
  Status run(std::int64_t steps, bool counts = true) {
    for (std::int64_t step = 0; step < steps; ++step) {
      StepReport report;
      STRATA_TRY(job_->engine().train_step(batches_, loaded_.config.optim.lr, report));
      losses.push_back(std::bit_cast<std::uint32_t>(report.loss));
      if (!counts) continue;
      seconds.all.push_back(report.seconds);
      times += report.times;
    }
    return Status::ok();
  }
  /// Bytes of host memory that it keeps.
  std::uint64_t planned_bytes() const { return bytes_in_ram(loaded_.config, *planned_.plan); }
  int threads() const { return loaded_.config.cpu.share.threads(); }

  StepSeconds seconds;
  StallTimes times;
  std::vector<std::uint32_t> losses;  ///< bits, of all steps

 private:
  Side(LoadedConfig loaded, PlannedJob planned, const Workload& workload)
      : loaded_(std::move(loaded)),
        planned_(std::move(planned)),
        batches_(workload.train(), loaded_.config.train.micro_batch) {
    seconds.recompute = to_string(planned_.recompute);
  }
  LoadedConfig loaded_;
  PlannedJob planned_;
  std::unique_ptr<Job> job_;
  DatasetBatches batches_;
};

Status check_losses(const Side& with, const Side& without) {
  for (std::size_t i = 0; i < with.losses.size(); ++i)
    if (with.losses[i] != without.losses[i])
      return Status::error(Code::internal,
                           fmt::format("step {}: loss {:08x} with offload, {:08x} without: please report it",
                                       i + 1, with.losses[i], without.losses[i]));
  return Status::ok();
}

}  // namespace

Result<Practicality> measure_practicality(const Args& args, const Workload& workload) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<Side> with, Side::plan(args, workload));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Side> without,
                    Side::plan(overridden(args, all_on_device()), workload));
  STRATA_TRY(with->start());
  Practicality result;
  result.why_not = why_it_does_not_fit(without->planned_bytes(), without->threads(), read_host_facts());
  if (result.why_not.empty()) {
    const Status started = without->start();  // beside the other, which holds its part of the device
    if (started.code() == Code::does_not_fit || started.code() == Code::out_of_memory)
      result.why_not = started.message();
    else
      STRATA_TRY(started.annotate("all on the device"));
  }
  const bool both = result.why_not.empty();
  for (std::int64_t left = args.steps; left > 0; left -= kTurn) {
    STRATA_TRY(with->run(std::min(left, kTurn)));
    if (both) STRATA_TRY(without->run(std::min(left, kTurn)).annotate("all on the device"));
  }
  if (both) STRATA_TRY(check_losses(*with, *without));
  result.with = std::move(with->seconds);
  result.without = std::move(without->seconds);
  result.times = with->times;
  return result;
}

}  // namespace strata::cli
