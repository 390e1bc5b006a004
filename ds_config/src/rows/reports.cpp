#include <cstdint>
#include <string>

#include "conversions.h"

// Keys for the reports and checkpoints of a run.
namespace strata::detail {
namespace {

Outcome log_level(const TableRow&, const Json& value, const Document&) {
  for (const std::string_view same : {"debug", "info", "error"})
    if (is_text(value, same)) return taken("log.level", same);
  if (is_text(value, "warning") || is_text(value, "warn")) return taken("log.level", "warn");
  if (is_text(value, "critical")) return taken("log.level", "error", "strata has no level above error");
  return refused("it must be debug, info, warning, error or critical");
}

constexpr std::string_view kMetrics = "metrics.jsonl in the run folder has a line for every step";
constexpr std::string_view kTimes = "every step reports its times, waits by cause and bytes by lane";
constexpr std::string_view kCheckpoint = "strata writes its own checkpoints, in pieces and verified";
constexpr std::string_view kTuning = "strata plan --sweep and --optimize forecast other budgets";
constexpr TableRow kReportsRows[] = {
    {{"steps_per_print", DsVerdict::taken, "log.every", "steps between progress lines"},
     to_integer,
     {},
     1,
     1e15},
    {{"log_level", DsVerdict::taken, "log.level", "minimum severity of messages"}, log_level},
    {{"wall_clock_breakdown", DsVerdict::meaningless, "log.trace", kTimes}},
    {{"memory_breakdown", DsVerdict::meaningless, "", "every step reports bytes by tier"}},
    {{"dump_state", DsVerdict::meaningless, "", "config.resolved.toml in the run folder has every setting"}},
    {{"timers.throughput.enabled", DsVerdict::meaningless, "", kTimes}},
    {{"timers.throughput.synchronized", DsVerdict::meaningless, "", kTimes}},
    {{"flops_profiler.enabled", DsVerdict::meaningless, "log.trace", kTimes}},
    {{"flops_profiler.recompute_fwd_factor", DsVerdict::meaningless, "", kTimes}},
    {{"flops_profiler.profile_step", DsVerdict::meaningless, "log.trace", kTimes}},
    {{"flops_profiler.module_depth", DsVerdict::meaningless, "", kTimes}},
    {{"flops_profiler.top_modules", DsVerdict::meaningless, "", kTimes}},
    {{"flops_profiler.detailed", DsVerdict::meaningless, "", kTimes}},
    {{"flops_profiler.output_file", DsVerdict::meaningless, "", kTimes}},
    {{"comms_logger.enabled", DsVerdict::meaningless, "", kTimes}},
    {{"comms_logger.prof_all", DsVerdict::meaningless, "", kTimes}},
    {{"comms_logger.prof_ops", DsVerdict::meaningless, "", kTimes}},
    {{"comms_logger.verbose", DsVerdict::meaningless, "", kTimes}},
    {{"comms_logger.debug", DsVerdict::meaningless, "", kTimes}},
    {{"tensorboard.enabled", DsVerdict::meaningless, "", kMetrics}},
    {{"tensorboard.output_path", DsVerdict::meaningless, "", kMetrics}},
    {{"tensorboard.job_name", DsVerdict::meaningless, "", kMetrics}},
    {{"wandb.enabled", DsVerdict::meaningless, "", kMetrics}},
    {{"wandb.group", DsVerdict::meaningless, "", kMetrics}},
    {{"wandb.team", DsVerdict::meaningless, "", kMetrics}},
    {{"wandb.project", DsVerdict::meaningless, "", kMetrics}},
    {{"csv_monitor.enabled", DsVerdict::meaningless, "", kMetrics}},
    {{"csv_monitor.output_path", DsVerdict::meaningless, "", kMetrics}},
    {{"csv_monitor.job_name", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.enabled", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.samples_log_interval", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.project", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.workspace", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.api_key", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.experiment_name", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.experiment_key", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.online", DsVerdict::meaningless, "", kMetrics}},
    {{"comet.mode", DsVerdict::meaningless, "", kMetrics}},
    {{"checkpoint.tag_validation", DsVerdict::meaningless, "", "checkpoints are named by their step"}},
    {{"checkpoint.load_universal", DsVerdict::refused, "model.from",
      "strata reads its own checkpoints, and folders of Hugging Face"},
     nullptr,
     "false"},
    {{"checkpoint.use_node_local_storage", DsVerdict::refused, "checkpoint.dir",
      "all ranks must see the run folder"},
     nullptr,
     "false"},
    {{"checkpoint.parallel_write.pipeline_stage", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.checkpoint_serialization", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.writer.type", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.writer.io_buffer_size", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.writer.io_buffer_double", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.writer.show_statistics", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.writer.data_parallel", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.writer.decoupled", DsVerdict::meaningless, "", kCheckpoint}},
    {{"checkpoint.writer.io_multiplier", DsVerdict::meaningless, "", kCheckpoint}},
    {{"nebula.*", DsVerdict::meaningless, "checkpoint.dir", kCheckpoint}},
    {{"datastates_ckpt", DsVerdict::meaningless, "checkpoint.interval", kCheckpoint}},
    {{"datastates_ckpt.*", DsVerdict::meaningless, "checkpoint.interval", kCheckpoint}},
    {{"autotuning.enabled", DsVerdict::meaningless, "", kTuning}},
    {{"autotuning.*", DsVerdict::meaningless, "", kTuning}},
};

}  // namespace

std::span<const TableRow> report_rows() noexcept { return kReportsRows; }

}  // namespace strata::detail
