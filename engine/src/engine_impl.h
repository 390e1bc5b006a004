#pragma once

#include <strata/engine/engine.h>

#include "cached_sequences.h"
#include "commit.h"
#include "machine.h"
#include "pass_runner.h"
#include "state_access.h"

namespace strata {

/// What an Engine does: passes over micro-batches, and the step that they make up.
class Engine::Impl {
 public:
  explicit Impl(std::unique_ptr<Machine> machine)
      : machine_(std::move(machine)),
        train_(schedule(plan().train, plan().passes(),
                        !plan().trains()                               ? CommitWhen::never
                        : plan().options.step_mode == StepMode::serial ? CommitWhen::at_the_end
                                                                       : CommitWhen::before_use)),
        eval_(schedule(plan().eval, 1, CommitWhen::never)),
        infer_(schedule(plan().infer, 1, CommitWhen::never)),
        prefill_(schedule(plan().prefill, 1, CommitWhen::never)),
        decode_(schedule(plan().decode, 1, CommitWhen::never)),
        speculation_(*machine_, train_),
        commit_(*machine_, speculation_, train_),
        runner_(*machine_, commit_, speculation_),
        states_(*machine_),
        sequences_(plan()) {
    if (plan().scales_loss()) loss_scale.value = plan().options.loss_scale;
  }

  const RunPlan& plan() const noexcept { return machine_->plan; }
  Machine& machine() noexcept { return *machine_; }
  StateAccess& states() noexcept { return states_; }

  Status train_step(BatchSource& source, double lr, StepReport& report);
  Result<double> evaluate(BatchSource& source, std::int64_t n);
  Result<std::span<const float>> infer(std::span<const std::int32_t> tokens, std::int64_t row);
  Result<std::span<const float>> extend(std::span<const SequenceToken> tokens,
                                        std::span<const std::int32_t> wanted);
  /// Does what the last step left to be done; then the states are whole. What fails stays due.
  Status settle();
  /// Before states are given anew: what cannot be done is forgotten, and `broken` says so.
  void settle_or_drop() noexcept;
  std::int64_t steps = 0;
  LossScale loss_scale;
  Status broken;  ///< ok, or why the states are not those of any step

 private:
  PassSchedule schedule(const LoweredProgram& program, std::int32_t micro_batches, CommitWhen when) const {
    return schedule_of(program, plan(), micro_batches, when);
  }
  Status gradient(BatchSource& source, double lr, StepReport& report);
  cpuopt::OptimizerParams params_of(double lr, double clip_factor) const;
  Status commit(double lr, StepReport& report);
  StallTimes stall_times();
  Status undo_step();
  Status give_up(const Status& why);
  void use(const PassSchedule& schedule);
  Status upload(const LoweredProgram& program);
  Status take_batch(const LoweredProgram& program, BatchSource& source, std::int64_t index, float divisor);
  Result<float> divisor_of(BatchSource& source, std::int64_t index, std::int64_t n);
  Status take_losses(const LoweredProgram& program, std::int32_t slot);
  Status read_back(std::byte* to, const std::byte* from, std::size_t bytes);

  std::unique_ptr<Machine> machine_;
  const PassSchedule train_, eval_, infer_, prefill_, decode_;
  Speculation speculation_;
  Commit commit_;
  PassRunner runner_;
  StateAccess states_;
  CachedSequences sequences_;
  const PassSchedule* current_ = nullptr;
  std::size_t slot_ = 0;             // of the two input slots, the next
  std::array<Event, 2> uploaded_{};  // the slot may be written again
  Event arena_free_;                 // inputs and results of the last pass are no longer needed
};

}  // namespace strata
