#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <strata/cpuopt/optimizer.h>
#include <strata/session/loss_scale.h>
#include <strata/session/pass_schedule.h>
#include <strata/session/state_context.h>
#include <strata/session/step_report.h>

namespace strata {

/// The state half of training: makes parameters resident for each position of a pass, accumulates gradients,
/// computes their norm, and updates the chunks, in the step mode of the plan. It knows no Program: a driver
/// runs forward and backward between enter() and leave(). All modes give the same bits.
///
/// A step: activate() the schedule; begin(); for each pass and each of its positions enter(), the driver's
/// work, leave(); finish_gradient(); then commit(), or undo() if the gradient is not to be used;
/// record_step(). After an error in any of these comes fail(). Not thread-safe; allocates nothing after
/// construction, apart from the first activate() of a longer schedule.
///
/// A step is that of one trainee (SessionOptions::trainees), which begin() names, and so is what follows
/// until the next begin(). The update of one trainee may be pending while others compute their gradients.
class StepMachine {
 public:
  /// Pass `k` of a part of `schedule`. With `accumulates`, gradients are added to the step's gradient; the
  /// last pass of the last part also computes norm partials and updates chunks speculatively. A step may
  /// leave out the first passes of a part, but not its last one.
  struct Pass {
    const UseTrace& uses;
    const PassSchedule& schedule;
    bool accumulates = false;
    std::size_t part = 0;
    std::int32_t k = 0;
    std::int32_t left_out = 0;  ///< passes of the part before the first one that runs

    const PassSchedule::Part& of() const noexcept { return schedule.parts[part]; }
    const GatherSchedule& gathers() const noexcept { return of().gathers; }
    std::int32_t first_position() const noexcept { return of().first + k * of().length; }
    bool is_first() const noexcept { return part == 0 && k == left_out; }
    bool is_last() const noexcept { return part + 1 == schedule.parts.size() && k + 1 == of().passes; }
  };

  /// `steps`: the schedule of a step's passes of each trainee, in their order; one if nothing is trained. No
  /// position of any pass reads more than `max_params` parameter chunks. What is referred to outlives the
  /// machine.
  StepMachine(StateContext& context, std::span<const PassSchedule> steps, std::size_t max_params);
  ~StepMachine();

  // Passes.
  /// The passes over `schedule`, which outlives the machine, come next; prefetching begins at its first
  /// access.
  void activate(const PassSchedule& schedule);
  /// Pins what position `i` uses: parameters once their pending update is queued, and the gradients that it
  /// is the first to write.
  Status enter(const Pass& pass, std::int32_t i);
  /// Address of a chunk's parameters, or of its gradient, for the present position; null if it is not pinned.
  std::byte* param(const UseTrace::Position& position, ChunkId chunk) const noexcept;
  std::byte* gradient(ChunkId chunk) const noexcept;
  /// Releases the pins, accumulates the gradients that are complete, updates and prefetches. What the driver
  /// queued on the compute stream since enter() is ordered before all that.
  Status leave(const Pass& pass, std::int32_t i);

  // Steps.
  /// Begins the gradient of the next step of a trainee, possibly again after undo().
  Status begin(double lr, std::int32_t trainee = 0);
  /// Waits for all gradients of all ranks, sets the report's norm (of the mean gradient) and flags, and adds
  /// to `speculated`. `losses`: one for each micro-batch of the step, of which this rank has set its own, or
  /// none. `sums`: this rank's of SessionOptions::step_sums, one after the other, which become those of all
  /// ranks; or none.
  Status finish_gradient(StepReport& report, std::span<float> losses = {}, std::span<double> sums = {});
  /// Sets the losses of other ranks' micro-batches, of which there are at most as many as in a step.
  Status share_losses(std::span<float> losses);
  /// The norm of each parameter's gradient, in the step whose gradient was finished last: see
  /// Session::gradient_norms().
  void gradient_norms(std::span<double> norms) const;
  /// The error `diverged`, naming the first tensor whose gradient is not finite; called by all ranks that
  /// share a copy of the model, since it is the same on all.
  Status non_finite_error();
  /// Commits the step: the update of all chunks with the clipped gradient is pending from here on, and the
  /// step counts. In mode `serial` all updates run now; in the other modes enter() and leave() of the next
  /// step queue each when its chunk is needed, or flush() does. Sets `report.clip_factor` and adds to
  /// `report.rolled_back`.
  Status commit(double lr, StepReport& report);
  /// Counts a step that changes nothing.
  void skip() noexcept;
  /// Discards the step's gradients and rolls back its speculative updates. Adds to `report.rolled_back`.
  Status undo(StepReport& report);
  /// After the error `why`: leaves the states before the failed step, or a pending update of the step before
  /// it. After an error of a pass between steps, it leaves the states as they are. Nothing stays pinned, and
  /// no transfer pending whose error a later call would return. Returns `why`, or why the states are lost.
  Status fail(const Status& why);
  /// The step took `seconds`, from which mode `auto` learns.
  void record_step(double seconds) noexcept;

  // Between steps.
  /// Completes pending updates, so that all states of a trainee are of one step. After a failure they stay
  /// pending.
  Status flush();
  /// Called after frozen parameters have changed: ranks gather them again.
  void forget_gathered() noexcept;
  /// Called before all states are set: discards an update that cannot be completed, and records that the
  /// states belong to no step.
  void flush_or_discard() noexcept;

  std::int32_t n_trainees() const noexcept;
  std::int64_t steps(std::int32_t trainee = 0) const noexcept;
  /// Also declares that all states are those of that step.
  void set_steps(std::int64_t steps, std::int32_t trainee = 0) noexcept;
  LossScale& loss_scale(std::int32_t trainee = 0) noexcept;
  const LossScale& loss_scale(std::int32_t trainee = 0) const noexcept;
  /// ok, or why the states are not those of any step.
  const Status& broken() const noexcept { return broken_; }
  void set_broken(Status why) noexcept { broken_ = std::move(why); }

 private:
  struct Trainee;  // its commit, speculation and count of steps
  struct Parts;    // the trainees, and what ranks exchange
  Trainee& trainee(std::int32_t number) const noexcept;
  cpuopt::OptimizerParams optimizer_params(double lr, double clip_factor) const;
  Status make_current(const UseTrace::Position& position);
  Status gather_due(const Pass& pass, std::int32_t i);
  bool is_fetched_later(PayloadKey key) const noexcept;
  Status prefetch_params(const PassSchedule& schedule, std::int32_t position);
  void count_step() noexcept;
  Status undo_step();
  void release() noexcept;
  void abandon() noexcept;
  Status interrupted(const Status& why, const char* what) const;

  StateContext& context_;
  std::unique_ptr<Parts> parts_;
  Trainee* active_ = nullptr;  // whose step it is, or was last
  const PassSchedule* current_ = nullptr;
  std::vector<ChunkPin> params_;      // the parameters of the present position
  std::vector<ChunkPin> open_grads_;  // indexed by chunk
  std::size_t next_param_ = 0;        // index into PassSchedule::params: the next access
  std::size_t next_ready_ = 0;        // index into PassSchedule::ready, in a last pass
  bool in_step_ = false;              // from begin() until the step counts or has failed
  Status broken_;
};

}  // namespace strata
