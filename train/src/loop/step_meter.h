#pragma once

#include <cstdint>

#include <strata/train/train_outcome.h>

#include "loop/run_loop.h"

namespace strata::detail {

/// Counts what the steps of a run take, in its outcome. Nothing is allocated.
class StepMeter {
 public:
  StepMeter(RunLoop& loop, TrainOutcome& outcome) : loop_(loop), outcome_(outcome) {}

  /// Before the first step of a process, and before that of another plan.
  void begin_run() { moved_before_ = loop_.engine->moved(); }
  void begin_plan();
  /// Around a step: begin_step(), count_resources(true), end_step(), count_resources(false).
  void begin_step() noexcept { ++steps_in_plan_; }
  /// Counts the heap allocations and resources created between a begin and an end.
  void count_resources(bool begins);
  /// Completes the line of a step of `tokens` tokens, before which the lanes were busy for `lanes_before`.
  void end_step(double tokens, const LaneBusySeconds& lanes_before, MetricsLine& line);
  /// Time that a step took before it began.
  void add_seconds(double seconds) noexcept { step_seconds_ += seconds; }
  double step_seconds() const noexcept { return step_seconds_; }
  /// Adds the counters of the engine. Call it before the engine is destroyed.
  void add_engine();
  /// Takes what validations wrote after add_engine().
  void add_last_writes() {
    outcome_.nvme_bytes_written = nvme_bytes_before_ + loop_.engine->nvme_endurance_bytes();
  }

 private:
  RunLoop& loop_;
  TrainOutcome& outcome_;
  MovedBytes moved_before_;
  std::int64_t steps_in_plan_ = 0;
  double step_seconds_ = 0, tokens_ = 0;
  std::uint64_t nvme_bytes_before_ = 0;  // written by earlier plans
  std::uint64_t allocations_before_ = 0, resources_before_ = 0;
};

}  // namespace strata::detail
