#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// The work of a rank of a pipeline on a micro-batch in one of its stages.
enum class StageWork : std::uint8_t {
  forward,
  backward,         ///< all gradients
  input_gradient,   ///< the gradient that the stage before it waits for
  weight_gradient,  ///< the rest of backward, which nobody waits for (Qi et al. 2023, arXiv 2401.10241)
};
struct StageTask {
  StageWork work = StageWork::forward;
  std::int32_t micro_batch = 0;
  std::int32_t virtual_stage = 0;  ///< among the stages of the rank
  friend bool operator==(const StageTask&, const StageTask&) = default;
};

/// Which rank does what in which order: a table. Stage v * ranks + r of the model is virtual stage v of rank
/// r.
struct PipelineSchedule {
  std::int32_t micro_batches = 0, virtual_stages = 1;
  std::vector<std::vector<StageTask>> tasks;  ///< for each rank, in order

  std::int32_t ranks() const noexcept { return static_cast<std::int32_t>(tasks.size()); }
  std::int32_t stages() const noexcept { return ranks() * virtual_stages; }
  std::int32_t stage(std::int32_t rank, const StageTask& task) const noexcept {
    return task.virtual_stage * ranks() + rank;
  }
  friend bool operator==(const PipelineSchedule&, const PipelineSchedule&) = default;
};

/// All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965). Errors of all: `invalid`,
/// with the numbers.
Result<PipelineSchedule> gpipe(std::int32_t ranks, std::int32_t micro_batches);
/// Forward and backward by turns once the pipeline is full, so that rank r keeps the activations of ranks - r
/// micro-batches at most (PipeDream-Flush, Narayanan et al. 2021, arXiv 2006.09503).
Result<PipelineSchedule> one_f_one_b(std::int32_t ranks, std::int32_t micro_batches);
/// The same with several stages a rank, for a bubble that is as many times shorter (Narayanan et al. 2021,
/// arXiv 2104.04473). The ranks divide the micro-batches.
Result<PipelineSchedule> interleaved_one_f_one_b(std::int32_t ranks, std::int32_t micro_batches,
                                                 std::int32_t virtual_stages);
/// All micro-batches in one stage of a rank before its next one, so that a rank reads the parameters of each
/// of its stages once forward and once backward, however many micro-batches there are: for stages that are
/// streamed from RAM (breadth-first pipelines, Lamy-Poirier 2022, arXiv 2211.05953; dealing of stages to few
/// devices). It keeps the activations of all micro-batches.
Result<PipelineSchedule> breadth_first(std::int32_t ranks, std::int32_t micro_batches,
                                       std::int32_t virtual_stages);
/// 1F1B whose weight gradients fill what would be bubbles, with the activations of `ranks` micro-batches on
/// every rank (ZB-H1; Qi et al. 2023, arXiv 2401.10241).
Result<PipelineSchedule> zero_bubble_h1(std::int32_t ranks, std::int32_t micro_batches);
/// Forwards alone, as for evaluation: of as many micro-batches as ranks in each stage of a rank, and so on.
Result<PipelineSchedule> forward_pipeline(std::int32_t ranks, std::int32_t micro_batches,
                                          std::int32_t virtual_stages);
/// The schedule of a name: "gpipe", "1f1b", "interleaved", "zb-h1", "breadth-first".
Result<PipelineSchedule> make_pipeline_schedule(std::string_view name, std::int32_t ranks,
                                                std::int32_t micro_batches, std::int32_t virtual_stages);
std::vector<std::string> pipeline_schedule_names();

/// A line for each rank: "F0 F1 B0 B1" or with input and weight gradients "F0 I0 W0"; "F0/1" is in virtual
/// stage 1. What follows # is a comment. Errors: `invalid`, naming line and word; those of check().
Result<PipelineSchedule> parse_pipeline_schedule(std::string_view text);
std::string to_text(const PipelineSchedule& schedule);

/// A schedule has gradients of everything, or none. Errors: `invalid`, all problems at once: a task that is
/// missing, repeated or out of range; gradients of weights whose micro-batches do not ascend, as their sums'
/// order would depend on the schedule; ranks that wait for each other.
Status check(const PipelineSchedule& schedule);

/// How long each kind of work takes, in any unit.
struct StageTicks {
  std::int64_t forward = 1, input_gradient = 1, weight_gradient = 1;
};
struct PipelineTiming {
  std::vector<std::vector<std::int64_t>> start;  ///< the start of each task, for each rank
  std::int64_t end = 0;                          ///< the end of the last task
  std::vector<std::int64_t> idle;                ///< the time that each rank idles until then: its bubble
};
/// When each task starts, if every rank does the next one of its list as soon as it can and messages take no
/// time. `schedule` passes check().
PipelineTiming time_pipeline(const PipelineSchedule& schedule, const StageTicks& ticks = {});
/// The same of stages that take different times.
PipelineTiming time_pipeline(const PipelineSchedule& schedule, std::span<const StageTicks> of_stage);
/// The largest number of micro-batches of a virtual stage that the rank has begun and not finished.
std::int32_t max_live_micro_batches(const PipelineSchedule& schedule, std::int32_t rank);

}  // namespace strata
