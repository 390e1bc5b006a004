#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/session/lanes.h>
#include <strata/session/pass_schedule.h>
#include <strata/session/state_context.h>
#include <strata/session/state_piece.h>
#include <strata/session/step_machine.h>

namespace strata {

namespace detail {
class FrozenDigests;
class StateAccess;
}  // namespace detail

/// Where the values of frozen parameters come from.
enum class FrozenFrom : std::uint8_t {
  checkpoint,  ///< the next one must hold them, too
  elsewhere,   ///< from where they can be read again
};

/// The states of one run, spread over the tiers: parameters, optimizer states and the step's gradient. A
/// driver that derives from it, such as Engine, computes gradients and has the StepMachine update the states.
/// Used by one thread.
class Session {
 public:
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Steps done; the next one is steps() + 1. Set it when resuming, which also declares that all states are
  /// those of that step.
  std::int64_t steps() const noexcept { return machine_.steps(); }
  void set_steps(std::int64_t steps) noexcept { machine_.set_steps(steps); }
  /// The same of one of several trainees, of which these are the first one's.
  std::int64_t steps(std::int32_t trainee) const noexcept { return machine_.steps(trainee); }
  void set_steps(std::int64_t steps, std::int32_t trainee) noexcept { machine_.set_steps(steps, trainee); }
  /// Steps in which each parameter was updated, by registration order; empty if that is steps() for all.
  std::span<const std::int64_t> param_steps() const noexcept { return param_steps_; }
  /// Set it when resuming. One count for each parameter, if there are counts.
  void set_param_steps(std::vector<std::int64_t> steps);
  /// The loss scale of a run that computes in f16; 1 otherwise. Set it when resuming.
  const LossScale& loss_scale(std::int32_t trainee = 0) const noexcept {
    return machine_.loss_scale(trainee);
  }
  void set_loss_scale(const LossScale& scale, std::int32_t trainee = 0) noexcept {
    machine_.loss_scale(trainee) = scale;
  }

  /// Sets parameters to the values of `params`, which may be called with pieces of 1 to 65,536 elements, and
  /// moments to zero. With SessionOptions::saves_frozen off, all ranks call this and fill() together.
  Status reset(const FillState& params);
  /// Calls `visit` for every state of `payload` (frozen parameters have no moments) in bounded memory: tensor
  /// by tensor in layout order, each in pieces from its first element to its last; with several ranks, the
  /// elements that this rank holds. `param` is the f32 master
  /// whatever the compute dtype is (for a run that only infers, the parameter itself; for one of bytes, each
  /// of them as a number). Errors, here and in
  /// fill(): `unsupported` for moments of a run that does not train; `invalid` for parameters in a trainer's
  /// memory while their addresses are not known.
  Status visit(Payload payload, const VisitState& visit);
  /// The same for a part of each chunk that no other rank visits; with one rank, for all of it.
  Status visit_part(Payload payload, const VisitState& visit, VisitScope scope = VisitScope::all);
  /// The same for the tensors of these names alone, in layout order whatever the order of the names is.
  /// Errors also: `invalid`, listing names that the run has no state of.
  Status visit_tensors(Payload payload, std::span<const std::string> names, const VisitState& visit);
  /// Changes single parameters in place, in bounded memory and on any tier: calls `edit` with pieces of the
  /// tensors of these names as visit_tensors() does, and stores the values that it leaves. All bits that the
  /// run has of a master are stored. An error before anything has changed leaves the states as they were;
  /// after a later one every call returns it until all states are set again. Errors: those of
  /// visit_tensors(); `unsupported` with several ranks, unless all are frozen and ranks do not share the
  /// model, when each rank changes what it holds alike; and for a frozen parameter that checkpoints leave
  /// out. A moving average stays as it is.
  Status edit_params(std::span<const std::string> names, const FillState& edit);
  /// The same of SessionOptions::edited. Allocates nothing from the second call on.
  Status edit_params(const FillState& edit);
  /// Fills every state of `payload`, in the same order. A moving average begins anew with the parameters that
  /// are filled, so it is filled after them.
  Status fill(Payload payload, const FillState& fill, FrozenFrom frozen = FrozenFrom::checkpoint);
  /// The frozen tensors that a checkpoint of the session leaves out, by name, with the digests of the values
  /// that they were filled with; empty if it leaves out nothing.
  std::map<std::string, std::string, std::less<>> left_out() const;
  /// Digest of parameters and, if the run trains, moments, in name order; of all ranks, all of which call it.
  Result<std::string> state_digest();

  /// The norm of each parameter's gradient in the last step, by registration order: of the mean over its
  /// micro-batches, before clipping; 0 for frozen ones and those of other trainees. It is what the norm of
  /// the step was added up from, until the next step begins. Errors: `invalid` for another number of
  /// parameters; `unsupported` if ranks share tensors, each of which then has a part of their norms.
  Status gradient_norms(std::span<double> norms) const;

  const StatePlan& state_plan() const noexcept { return context_->plan(); }
  /// Ranks that are threads share a backend; of what it counts, each reports the mean.
  MovedBytes moved() const;
  /// Counts of what this rank has sent to others and received from them on streams; nothing if there is one
  /// rank.
  GroupCounters group_counters() const;
  /// The ranks of the run; null if there is one.
  World* world() const noexcept { return context_->world(); }
  LaneBusySeconds lane_busy_seconds() const;
  /// Bytes used and reserved in the session's budgets, and their maximum so far; of all sessions that share
  /// them.
  TierBytes used_bytes() const { return context_->budgets().used(); }
  TierBytes peak_bytes() const { return context_->budgets().peak(); }
  std::string nvme_note() const;
  std::vector<NvmePath> nvme_paths() const;  ///< empty if the tier is not used
  /// Bytes sent to the NVMe tier since the session was created, repeated writes included.
  std::uint64_t nvme_endurance_bytes() const;
  /// Buffers, streams, events and files created so far; contract C6 is checked by comparing it.
  std::uint64_t resources_created() const;

 protected:
  /// `steps`: see StepMachine; no position of any pass reads more than `max_params` parameter chunks.
  Session(std::unique_ptr<StateContext> context, std::vector<PassSchedule> steps, std::size_t max_params);
  ~Session();
  /// Compares what all ranks must have in common, to be called by all of them when the session is complete;
  /// does nothing if there is one. Errors: `invalid` on all ranks, naming what differs first.
  Status check_ranks_agree();
  /// Completes updates that are still pending, before states are read.
  virtual Status flush() { return machine_.flush(); }
  /// The same before states are set anew: updates that fail are given up.
  virtual void flush_or_discard() noexcept { machine_.flush_or_discard(); }
  void count_step(std::int32_t param) { ++param_steps_[static_cast<std::size_t>(param)]; }
  StateContext& context() noexcept { return *context_; }
  StepMachine& machine() noexcept { return machine_; }
  /// The passes of each trainee in a step.
  std::span<const PassSchedule> step_schedules() const noexcept { return steps_; }

 private:
  int ranks_on_backend() const noexcept;
  Status fill_params(const FillState& fill, FrozenFrom frozen);
  Result<std::vector<bool>> find_edited(std::span<const std::string> names) const;
  Status edit_tensors(const std::vector<bool>& tensors, const FillState& edit);
  /// Whether a tensor is among `names`, by index in StatePlan::tensors.
  Result<std::vector<bool>> find_tensors(std::span<const std::string> names, Payload payload) const;

  std::unique_ptr<StateContext> context_;
  const std::vector<PassSchedule> steps_;
  StepMachine machine_;
  std::vector<std::int64_t> param_steps_;
  std::vector<bool> edited_;  // SessionOptions::edited, once they are changed
  std::unique_ptr<detail::StateAccess> access_;
  std::unique_ptr<detail::FrozenDigests> frozen_;  // null if checkpoints hold all parameters
};

}  // namespace strata
