#include "loop/step_meter.h"

#include <algorithm>

#include <strata/runtime/memory/alloc_counter.h>

#include "run/rank_memory.h"

namespace strata::detail {
namespace {

// Contract C6 checks these steps, counted from the start of the plan. In earlier ones pools and caches still
// fill.
constexpr std::int64_t kFirstSteadyStep = 3, kLastSteadyStep = 12;

}  // namespace

void StepMeter::begin_plan() {
  begin_run();
  steps_in_plan_ = 0;
  outcome_.warm_steps = 0;
  outcome_.warm_clipped = 0;
  outcome_.warm_seconds = 0;
  outcome_.warm_lanes = {};
}

void StepMeter::count_resources(bool begins) {
  if (steps_in_plan_ < kFirstSteadyStep || steps_in_plan_ > kLastSteadyStep) return;
  AllocCounter::set_armed(begins);
  if (begins) {
    allocations_before_ = AllocCounter::count();
    resources_before_ = loop_.engine->resources_created();
  } else {
    outcome_.heap_allocations += AllocCounter::count() - allocations_before_;
    outcome_.resources_created += loop_.engine->resources_created() - resources_before_;
  }
}

void StepMeter::end_step(double tokens, const LaneBusySeconds& lanes_before, MetricsLine& line) {
  tokens_ += tokens;
  line.tokens_per_s = tokens / line.report.seconds;
  line.used = loop_.engine->used_bytes();
  const MovedBytes moved = loop_.engine->moved();
  line.moved = moved - moved_before_;
  moved_before_ = moved;
  step_seconds_ += line.report.seconds + line.renew_bases_s;
  if (steps_in_plan_ > kFirstSteadyStep) {
    ++outcome_.warm_steps;
    outcome_.warm_clipped += line.report.clip_factor < 1 ? 1 : 0;
    outcome_.warm_seconds += line.report.seconds;
    outcome_.warm_lanes += loop_.engine->lane_busy_seconds() - lanes_before;
  }
  outcome_.train_loss = line.report.loss;
  outcome_.times += line.report.times;
  outcome_.tokens_per_s = tokens_ / step_seconds_;
}

void StepMeter::add_engine() {
  outcome_.moved += loop_.engine->moved();
  outcome_.lanes += loop_.engine->lane_busy_seconds();
  nvme_bytes_before_ = outcome_.nvme_bytes_written;
  outcome_.nvme_bytes_written += loop_.engine->nvme_endurance_bytes();
  outcome_.planned_in_ram =
      std::max(outcome_.planned_in_ram, bytes_in_ram(loop_.config(), loop_.engine->plan()));
}

}  // namespace strata::detail
