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
        runner_(*machine_),
        commit_(*machine_),
        states_(*machine_),
        train_(schedule_of(plan().train, plan().layout, plan().placement, plan().options.grad_accum, true)),
        eval_(schedule_of(plan().eval, plan().layout, plan().placement, 1, false)),
        infer_(schedule_of(plan().infer, plan().layout, plan().placement, 1, false)),
        prefill_(schedule_of(plan().prefill, plan().layout, plan().placement, 1, false)),
        decode_(schedule_of(plan().decode, plan().layout, plan().placement, 1, false)),
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
  std::int64_t steps = 0;
  LossScale loss_scale;
  Status broken;  ///< ok, or why the states are not those of any step

 private:
  Status gradient(BatchSource& source, StepReport& report);
  Status commit(double lr, StepReport& report);
  void use(const PassSchedule& schedule);
  Status upload(const LoweredProgram& program);
  Status take_batch(const LoweredProgram& program, BatchSource& source, std::int64_t index, float divisor);
  Result<float> divisor_of(BatchSource& source, std::int64_t index, std::int64_t n);
  Status take_loss(const LoweredProgram& program, std::int32_t slot);
  Status read_back(std::byte* to, const std::byte* from, std::size_t bytes);

  std::unique_ptr<Machine> machine_;
  PassRunner runner_;
  Commit commit_;
  StateAccess states_;
  const PassSchedule train_, eval_, infer_, prefill_, decode_;
  CachedSequences sequences_;
  const PassSchedule* current_ = nullptr;
  std::size_t slot_ = 0;             // of the two input slots, the next
  std::array<Event, 2> uploaded_{};  // the slot may be written again
  Event arena_free_;                 // inputs and results of the last pass are no longer needed
};

}  // namespace strata
