#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <strata/graph/pipeline_schedule.h>
#include <strata/graph/program.h>

#include "pipeline/stage_code.h"

namespace strata::detail {

/// A value of a micro-batch that one rank makes and another one reads.
struct StageMessage {
  ValueId value = kNoValue;
  std::int32_t micro_batch = 0;   ///< -1 for a gradient: its sum over all on the sender
  std::int32_t from = 0, to = 0;  ///< ranks
  std::int64_t sent = 0;          ///< when, in the timing of the schedule
  std::int32_t made_by = 0;       ///< task of the sender
  std::int32_t read_by = 0;       ///< task of the receiver; the number of its tasks: at the end
};
/// All messages of a step, in the order in which ranks queue them. Errors: `invalid` if something is read
/// before it is made.
Result<std::vector<StageMessage>> stage_messages(const Program& program, const PipelineSchedule& schedule,
                                                 const StageCode& code);
/// The ranks whose stages read each parameter.
std::vector<std::set<std::int32_t>> ranks_of_params(const Program& program, const StageCode& code,
                                                    std::int32_t ranks);

/// A message as one of its ranks queues it: before task `begin`, and after that task has ended, or of what is
/// received before it is read, it waits for the end.
struct QueuedMessage {
  StageMessage message;
  bool is_sent = false;
  std::int32_t begin = 0, end = 0;  ///< tasks; the number of tasks: behind the last one
};
std::vector<QueuedMessage> queued_messages(const std::vector<StageMessage>& all, std::int32_t rank,
                                           std::int32_t tasks);

}  // namespace strata::detail
