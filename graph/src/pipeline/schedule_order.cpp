#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <strata/graph/pipeline_schedule.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/str.h>

// The order in which a schedule's tasks can run: which task waits for which.

namespace strata {
namespace {

constexpr const char* kNames[] = {"forward", "backward", "input gradient", "weight gradient"};

std::string name_of(const StageTask& task) {
  return str(kNames[static_cast<std::size_t>(task.work)], " of micro-batch ", task.micro_batch,
             " in virtual stage ", task.virtual_stage);
}

/// The results of a stage that others wait for, and its end.
enum class Passed : std::uint8_t { output, gradient, end };
using Key = std::tuple<Passed, std::int32_t, std::int32_t>;  // stage, micro-batch

Passed made_by(StageWork work) {
  switch (work) {
    case StageWork::forward:
      return Passed::output;
    case StageWork::backward:
    case StageWork::input_gradient:
      return Passed::gradient;
    case StageWork::weight_gradient:
      break;
  }
  return Passed::end;
}

/// Runs the tasks of all ranks, each as soon as those that it needs have ended.
class Run {
 public:
  /// `ticks`: of each stage, or of all.
  Run(const PipelineSchedule& schedule, std::span<const StageTicks> ticks)
      : schedule_(schedule), ticks_(ticks), next_(schedule.tasks.size()), free_(schedule.tasks.size()) {
    timing_.start.resize(schedule.tasks.size());
    timing_.idle.resize(schedule.tasks.size());
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::int32_t rank = 0; rank < schedule.ranks(); ++rank)
        while (step(rank)) goes_on = true;
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) timing_.end = std::max(timing_.end, free_[rank]);
    for (std::size_t rank = 0; rank < next_.size(); ++rank) timing_.idle[rank] += timing_.end - free_[rank];
  }
  const PipelineTiming& timing() const noexcept { return timing_; }
  /// The task that a rank waits before; null if it has done all.
  const StageTask* waiting(std::int32_t rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return next_[r] < schedule_.tasks[r].size() ? &schedule_.tasks[r][next_[r]] : nullptr;
  }

 private:
  std::int64_t ticks_of(std::int32_t stage, StageWork work) const {
    const StageTicks& ticks = ticks_[ticks_.size() == 1 ? 0 : static_cast<std::size_t>(stage)];
    switch (work) {
      case StageWork::forward:
        return ticks.forward;
      case StageWork::backward:
        return ticks.input_gradient + ticks.weight_gradient;
      case StageWork::input_gradient:
        return ticks.input_gradient;
      case StageWork::weight_gradient:
        break;
    }
    return ticks.weight_gradient;
  }
  std::optional<std::int64_t> end_of(Passed event, std::int32_t stage, std::int32_t micro_batch) const {
    const auto found = ended_.find({event, stage, micro_batch});
    return found == ended_.end() ? std::nullopt : std::optional(found->second);
  }
  /// When everything is there that it needs.
  std::optional<std::int64_t> ready(std::int32_t rank, const StageTask& task) const {
    const std::int32_t stage = schedule_.stage(rank, task);
    if (task.work == StageWork::forward)
      return stage == 0 ? 0 : end_of(Passed::output, stage - 1, task.micro_batch);
    if (task.work == StageWork::weight_gradient) return end_of(Passed::gradient, stage, task.micro_batch);
    const auto own = end_of(Passed::output, stage, task.micro_batch);
    if (stage == schedule_.stages() - 1 || !own) return own;
    const auto next = end_of(Passed::gradient, stage + 1, task.micro_batch);
    return next ? std::optional(std::max(*own, *next)) : next;
  }
  bool step(std::int32_t rank) {
    const StageTask* const task = waiting(rank);
    if (task == nullptr) return false;
    const auto when = ready(rank, *task);
    if (!when) return false;
    const auto r = static_cast<std::size_t>(rank);
    const std::int64_t start = std::max(*when, free_[r]);
    timing_.idle[r] += start - free_[r];
    timing_.start[r].push_back(start);
    free_[r] = start + ticks_of(schedule_.stage(rank, *task), task->work);
    ended_[{made_by(task->work), schedule_.stage(rank, *task), task->micro_batch}] = free_[r];
    ++next_[r];
    return true;
  }

  const PipelineSchedule& schedule_;
  const std::span<const StageTicks> ticks_;
  std::vector<std::size_t> next_;   // task of each rank
  std::vector<std::int64_t> free_;  // when each rank has done its last task
  std::map<Key, std::int64_t> ended_;
  PipelineTiming timing_;
};

bool has_gradients(const PipelineSchedule& schedule) {
  return std::any_of(schedule.tasks.begin(), schedule.tasks.end(), [](const std::vector<StageTask>& tasks) {
    return std::any_of(tasks.begin(), tasks.end(),
                       [](const StageTask& task) { return task.work != StageWork::forward; });
  });
}

void check_rank(const PipelineSchedule& schedule, std::int32_t rank, ErrorList& errors) {
  const auto bad = [&](const auto&... text) {
    errors.add(Status::error(Code::invalid, str("rank ", rank, ": ", text...)));
  };
  // How often each kind of work is done, by virtual stage and micro-batch; and whose gradients were added
  // last.
  std::map<std::pair<std::int32_t, std::int32_t>, std::array<int, 4>> done;
  std::map<std::int32_t, std::int32_t> last;
  for (const StageTask& task : schedule.tasks[static_cast<std::size_t>(rank)]) {
    if (task.micro_batch < 0 || task.micro_batch >= schedule.micro_batches || task.virtual_stage < 0 ||
        task.virtual_stage >= schedule.virtual_stages) {
      bad(name_of(task), "; there are ", schedule.micro_batches, " and ", schedule.virtual_stages);
      continue;
    }
    ++done[{task.virtual_stage, task.micro_batch}][static_cast<std::size_t>(task.work)];
    if (task.work != StageWork::backward && task.work != StageWork::weight_gradient) continue;
    const auto [before, is_first] = last.try_emplace(task.virtual_stage, task.micro_batch);
    if (!is_first && before->second > task.micro_batch)
      bad("the ", name_of(task), " comes after that of micro-batch ", before->second);
    before->second = task.micro_batch;
  }
  const int gradients = has_gradients(schedule) ? 1 : 0;
  for (std::int32_t stage = 0; stage < schedule.virtual_stages; ++stage)
    for (std::int32_t k = 0; k < schedule.micro_batches; ++k) {
      const auto& [forwards, backwards, inputs, weights] = done[{stage, k}];
      if (forwards == 1 && backwards + inputs == gradients && inputs == weights) continue;
      bad("micro-batch ", k, " in virtual stage ", stage, " has ", forwards, " forwards, ", backwards,
          " backwards, ", inputs, " input gradients and ", weights,
          " weight gradients; it needs one forward, and one backward or one of each gradient");
    }
}

}  // namespace

Status check(const PipelineSchedule& schedule) {
  ErrorList errors;
  if (schedule.ranks() == 0) errors.add(Status::error(Code::invalid, "the schedule has no ranks"));
  for (std::int32_t rank = 0; rank < schedule.ranks(); ++rank) check_rank(schedule, rank, errors);
  STRATA_TRY(errors.status());
  const StageTicks equal;
  const Run run(schedule, {&equal, 1});
  for (std::int32_t rank = 0; rank < schedule.ranks(); ++rank)
    if (const StageTask* const task = run.waiting(rank))
      errors.add(
          Status::error(Code::invalid, str("rank ", rank, " waits forever before the ", name_of(*task))));
  return errors.status();
}

PipelineTiming time_pipeline(const PipelineSchedule& schedule, const StageTicks& ticks) {
  return Run(schedule, {&ticks, 1}).timing();
}

PipelineTiming time_pipeline(const PipelineSchedule& schedule, std::span<const StageTicks> of_stage) {
  STRATA_ASSERT(of_stage.size() == static_cast<std::size_t>(schedule.stages()), of_stage.size(),
                " ticks for ", schedule.stages(), " stages");
  return Run(schedule, of_stage).timing();
}

std::int32_t max_live_micro_batches(const PipelineSchedule& schedule, std::int32_t rank) {
  std::int32_t live = 0, most = 0;
  for (const StageTask& task : schedule.tasks[static_cast<std::size_t>(rank)]) {
    if (task.work == StageWork::forward) most = std::max(most, ++live);
    if (task.work == StageWork::backward || task.work == StageWork::weight_gradient) --live;
  }
  return most;
}

}  // namespace strata
