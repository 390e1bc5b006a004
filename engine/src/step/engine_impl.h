#pragma once

#include <strata/engine/engine.h>

#include "execute/kv_cache_tracker.h"
#include "step/commit.h"
#include "execute/execution_context.h"
#include "execute/program_executor.h"
#include "checkpoint/state_access.h"

namespace strata {

/// Implementation of Engine: passes over micro-batches, and the steps that consist of them.
class Engine::Impl {
 public:
  explicit Impl(std::unique_ptr<ExecutionContext> context)
      : context_(std::move(context)),
        train_(schedule(plan().train, plan().passes(),
                        !plan().trains()                               ? CommitTiming::never
                        : plan().options.step_mode == StepMode::serial ? CommitTiming::at_end
                                                                       : CommitTiming::before_use)),
        eval_(schedule(plan().eval, 1, CommitTiming::never)),
        infer_(schedule(plan().infer, 1, CommitTiming::never)),
        prefill_(schedule(plan().prefill, 1, CommitTiming::never)),
        decode_(schedule(plan().decode, 1, CommitTiming::never)),
        speculation_(*context_, train_),
        commit_(*context_, speculation_, train_),
        executor_(*context_, commit_, speculation_),
        states_(*context_),
        kv_cache_(plan()) {
    if (plan().scales_loss()) loss_scale.value = plan().options.loss_scale;
  }

  const RunPlan& plan() const noexcept { return context_->plan; }
  ExecutionContext& context() noexcept { return *context_; }
  StateAccess& states() noexcept { return states_; }

  Status train_step(BatchSource& source, double lr, StepReport& report);
  Result<double> evaluate(BatchSource& source, std::int64_t n);
  Result<std::span<const float>> infer(std::span<const std::int32_t> tokens, std::int64_t row);
  Result<std::span<const float>> extend(std::span<const SequenceToken> tokens,
                                        std::span<const std::int32_t> wanted);
  /// Completes the last step's pending update, so that all states are of one step. After a failure it stays
  /// pending.
  Status flush_pending_update();
  /// Called before states are set anew: discards an update that cannot be completed, and records that in
  /// `broken`.
  void flush_or_discard() noexcept;
  std::int64_t steps = 0;
  LossScale loss_scale;
  Status broken;  ///< ok, or why the states are not those of any step

 private:
  ProgramSchedule schedule(const LoweredProgram& program, std::int32_t micro_batches,
                           CommitTiming when) const {
    return make_schedule(program, plan(), micro_batches, when);
  }
  Status compute_gradient(BatchSource& source, double lr, StepReport& report);
  cpuopt::OptimizerParams optimizer_params(double lr, double clip_factor) const;
  Status commit(double lr, StepReport& report);
  StallTimes stall_times();
  Status undo_step();
  Status fail_step(const Status& why);
  void activate(const ProgramSchedule& schedule);
  Status upload(const LoweredProgram& program);
  Status load_batch(const LoweredProgram& program, BatchSource& source, std::int64_t index, float divisor);
  Result<float> loss_divisor(BatchSource& source, std::int64_t index, std::int64_t n);
  Status read_back_losses(const LoweredProgram& program, std::int32_t slot);
  Status read_back(std::byte* to, const std::byte* from, std::size_t bytes);

  std::unique_ptr<ExecutionContext> context_;
  const ProgramSchedule train_, eval_, infer_, prefill_, decode_;
  Speculation speculation_;
  Commit commit_;
  ProgramExecutor executor_;
  StateAccess states_;
  KvCacheTracker kv_cache_;
  const ProgramSchedule* current_ = nullptr;
  std::size_t slot_ = 0;             // index of the next input slot
  std::array<Event, 2> uploaded_{};  // after which the slot may be written again
  Event arena_free_;                 // after which inputs and results of the last pass are no longer needed
};

}  // namespace strata
