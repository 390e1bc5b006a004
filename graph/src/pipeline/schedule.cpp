#include <strata/graph/pipeline_schedule.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr StageTask forward(std::int32_t micro_batch, std::int32_t stage = 0) {
  return {StageWork::forward, micro_batch, stage};
}
constexpr StageTask backward(std::int32_t micro_batch, std::int32_t stage = 0) {
  return {StageWork::backward, micro_batch, stage};
}

Result<PipelineSchedule> empty_schedule(std::int32_t ranks, std::int32_t micro_batches,
                                        std::int32_t virtual_stages = 1) {
  if (ranks < 1 || micro_batches < 1 || virtual_stages < 1)
    return Status::error(Code::invalid, str("a pipeline of ", ranks, " ranks with ", virtual_stages,
                                            " stages each and ", micro_batches, " micro-batches"));
  return PipelineSchedule{micro_batches, virtual_stages,
                          std::vector<std::vector<StageTask>>(static_cast<std::size_t>(ranks))};
}

}  // namespace

Result<PipelineSchedule> gpipe(std::int32_t ranks, std::int32_t micro_batches) {
  STRATA_TRY_ASSIGN(PipelineSchedule schedule, empty_schedule(ranks, micro_batches));
  for (std::vector<StageTask>& tasks : schedule.tasks) {
    for (std::int32_t k = 0; k < micro_batches; ++k) tasks.push_back(forward(k));
    for (std::int32_t k = 0; k < micro_batches; ++k) tasks.push_back(backward(k));
  }
  return schedule;
}

Result<PipelineSchedule> interleaved_one_f_one_b(std::int32_t ranks, std::int32_t micro_batches,
                                                 std::int32_t virtual_stages) {
  STRATA_TRY_ASSIGN(PipelineSchedule schedule, empty_schedule(ranks, micro_batches, virtual_stages));
  if (virtual_stages > 1 && micro_batches % ranks != 0)
    return Status::error(Code::invalid,
                         str("an interleaved pipeline of ", ranks, " ranks with ", micro_batches,
                             " micro-batches, which are no multiple of the ranks"));
  // As many micro-batches as ranks pass a stage before the rank turns to its next one.
  const std::int32_t round = ranks * virtual_stages, all = micro_batches * virtual_stages;
  const auto micro_batch = [&](std::int32_t k) {
    return virtual_stages == 1 ? k : k / round * ranks + k % ranks;
  };
  const auto stage = [&](std::int32_t k) { return virtual_stages == 1 ? 0 : k / ranks % virtual_stages; };
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    std::vector<StageTask>& tasks = schedule.tasks[static_cast<std::size_t>(rank)];
    const std::int32_t ahead =
        virtual_stages == 1 ? ranks - 1 - rank : 2 * (ranks - 1 - rank) + (virtual_stages - 1) * ranks;
    std::int32_t next = 0;
    const auto add_forward = [&] {
      tasks.push_back(forward(micro_batch(next), stage(next)));
      ++next;
    };
    while (next < std::min(ahead, all)) add_forward();
    for (std::int32_t k = 0; k < all; ++k) {
      if (next < all) add_forward();
      tasks.push_back(backward(micro_batch(k), virtual_stages - 1 - stage(k)));
    }
  }
  return schedule;
}

Result<PipelineSchedule> one_f_one_b(std::int32_t ranks, std::int32_t micro_batches) {
  return interleaved_one_f_one_b(ranks, micro_batches, 1);
}

Result<PipelineSchedule> breadth_first(std::int32_t ranks, std::int32_t micro_batches,
                                       std::int32_t virtual_stages) {
  STRATA_TRY_ASSIGN(PipelineSchedule schedule, empty_schedule(ranks, micro_batches, virtual_stages));
  for (std::vector<StageTask>& tasks : schedule.tasks) {
    for (std::int32_t stage = 0; stage < virtual_stages; ++stage)
      for (std::int32_t k = 0; k < micro_batches; ++k) tasks.push_back(forward(k, stage));
    for (std::int32_t stage = virtual_stages; stage-- > 0;)
      for (std::int32_t k = 0; k < micro_batches; ++k) tasks.push_back(backward(k, stage));
  }
  return schedule;
}

// Rank r computes gradients of weights r micro-batches later than those of inputs.
Result<PipelineSchedule> zero_bubble_h1(std::int32_t ranks, std::int32_t micro_batches) {
  STRATA_TRY_ASSIGN(PipelineSchedule schedule, one_f_one_b(ranks, micro_batches));
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    std::vector<StageTask> tasks;
    std::int32_t next = 0;
    const auto add_weights = [&](std::int32_t end) {
      for (; next < end; ++next) tasks.push_back({StageWork::weight_gradient, next});
    };
    for (const StageTask& task : schedule.tasks[static_cast<std::size_t>(rank)]) {
      if (task.work == StageWork::forward) {
        tasks.push_back(task);
        continue;
      }
      tasks.push_back({StageWork::input_gradient, task.micro_batch});
      add_weights(task.micro_batch - rank + 1);
    }
    add_weights(micro_batches);
    schedule.tasks[static_cast<std::size_t>(rank)] = std::move(tasks);
  }
  return schedule;
}

Result<PipelineSchedule> forward_pipeline(std::int32_t ranks, std::int32_t micro_batches,
                                          std::int32_t virtual_stages) {
  STRATA_TRY_ASSIGN(PipelineSchedule schedule, empty_schedule(ranks, micro_batches, virtual_stages));
  for (std::vector<StageTask>& tasks : schedule.tasks)
    for (std::int32_t first = 0; first < micro_batches; first += ranks)
      for (std::int32_t stage = 0; stage < virtual_stages; ++stage)
        for (std::int32_t k = first; k < std::min(first + ranks, micro_batches); ++k)
          tasks.push_back(forward(k, stage));
  return schedule;
}

std::vector<std::string> pipeline_schedule_names() {
  return {"gpipe", "1f1b", "interleaved", "zb-h1", "breadth-first"};
}

Result<PipelineSchedule> make_pipeline_schedule(std::string_view name, std::int32_t ranks,
                                                std::int32_t micro_batches, std::int32_t virtual_stages) {
  if (name == "interleaved") return interleaved_one_f_one_b(ranks, micro_batches, virtual_stages);
  if (name == "breadth-first") return breadth_first(ranks, micro_batches, virtual_stages);
  if (virtual_stages > 1)
    return Status::error(Code::invalid, str("schedule ", name, " has one stage a rank, not ", virtual_stages,
                                            "; interleaved and breadth-first have several"));
  if (name == "gpipe") return gpipe(ranks, micro_batches);
  if (name == "1f1b") return one_f_one_b(ranks, micro_batches);
  if (name == "zb-h1") return zero_bubble_h1(ranks, micro_batches);
  return Status::error(Code::invalid, str("there is no schedule ", name, "; there are ",
                                          fmt::format("{}", fmt::join(pipeline_schedule_names(), ", "))));
}

}  // namespace strata
