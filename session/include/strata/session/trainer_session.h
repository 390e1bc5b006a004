#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <strata/session/session.h>

namespace strata {

/// How a step updates one parameter.
struct ParamUpdate {
  std::int32_t param = 0;          ///< index into the registered parameters
  void* values = nullptr;          ///< the parameter; read and written. Null if the session holds it
  const void* gradient = nullptr;  ///< as many elements of `gradient_dtype` (f32, bf16 or f16). Null: that
                                   ///< which has been accumulated
  DType gradient_dtype = DType::f32;
  /// The settings of its parameter group. Optimizer and momentum are the session's; `step` is not read: the
  /// session counts it, for each parameter.
  cpuopt::OptimizerParams settings{};
};

/// Where to copy a parameter.
struct ParamCopy {
  std::int32_t param = 0;
  void* into = nullptr;
};

/// Where a parameter's new values are.
struct ParamSource {
  std::int32_t param = 0;
  const void* from = nullptr;
};

/// The states of a trainer that is linked with strata, spread over RAM and NVMe. It computes gradients in its
/// own memory. What the session holds is said by the plan (TrainerHolds):
/// - the optimizer states: a step reads and writes the trainer's parameters and reads its gradients. bf16 and
///   f16 parameters are trained by f32 masters whose other bits are among the states;
/// - the parameters, too: the trainer reads a copy of each before it computes with it, and hands over
///   gradients as soon as they are complete. A step then returns at once: a chunk is updated when one of its
///   parameters is read next, while the states of those after it are fetched.
/// Used by one thread.
class TrainerSession final : public Session {
 public:
  /// `plan`, which is that of plan_trainer_states(), and what `environment` refers to outlive the session.
  /// `values`: the parameters, whose values the masters start with, as for bind(); all moments are zero.
  static Result<std::unique_ptr<TrainerSession>> create(const StatePlan& plan,
                                                        const SessionEnvironment& environment,
                                                        std::span<void* const> values);
  ~TrainerSession();

  /// Copies parameters as they are after the last step, in their own dtype. Errors: `invalid`; those of the
  /// store, after which the call may be repeated.
  Status read(std::span<const ParamCopy> copies);
  /// Parameters become what the trainer has made of them, in their own dtype: an element that differs from
  /// its rounded master becomes the master, and the others keep all bits of theirs. If the trainer holds the
  /// parameters, they are where bind() says, and only masters that have all bits (of f16) need this. Errors:
  /// `invalid`, before anything has changed; those of Session::edit_params().
  Status write(std::span<const ParamSource> sources);
  /// Begins to fetch what read() of the parameter will need, if there is room.
  Status prefetch(std::int32_t param);
  /// Adds a gradient to the step's, in f32 and in the order of the calls; the first one replaces it. The
  /// gradient may be freed when it returns. Only if the session holds the parameters. Errors: `invalid`;
  /// those of the store, after which the step is discarded.
  Status accumulate(std::int32_t param, const void* gradient, DType dtype);
  /// The sum of the squares of a parameter's accumulated gradient; 0 if there is none.
  double square_sum(std::int32_t param) const;
  /// A parameter's accumulated gradient, in pinned memory until the next call. Errors: `invalid` if there is
  /// none; those of the store.
  Result<std::span<const float>> gradient(std::int32_t param);
  /// The norm of all accumulated gradients, added in an order that no placement changes.
  double norm() const;
  /// Forgets the accumulated gradient of a parameter, or all of them.
  Status discard(std::int32_t param);
  void discard() noexcept;

  /// Updates the parameters in `updates`, each at most once, in any order; the others do not change, nor do
  /// their states and step counts. Accumulated gradients are used up, also those of other parameters. Errors:
  /// `invalid`, naming the parameter, before anything has changed; those of the store and of memory, after
  /// which the states belong to no step, and every later step returns the error.
  Status step(std::span<const ParamUpdate> updates);
  /// Tells where the trainer's parameters are for visits, fills, digests and checkpoints, until the next
  /// call; nothing: they are not accessible. A step uses the addresses that it is given. Errors: `invalid`,
  /// naming the parameter, or if the session holds the parameters.
  Status bind(std::span<void* const> values);

 private:
  struct Step;
  explicit TrainerSession(std::unique_ptr<StateContext> context);
  bool holds_params() const noexcept { return !state_plan().of_trainer(); }
  Status check_param(std::int32_t param) const;
  bool is_trained(std::int32_t param) const;
  Status set_initial(std::span<void* const> values);
  Status check(const ParamUpdate& update) const;
  Status set_updates(std::span<const ParamUpdate> updates);
  Status update_chunks();
  Status update(ChunkId chunk);
  void fetch_for_updates(ChunkId first) noexcept;
  void interrupt(const Status& why) noexcept;
  bool may_wait(ChunkId chunk) const;
  Status flush() override;
  void flush_or_discard() noexcept override;
  const std::unique_ptr<Step> step_;
};

}  // namespace strata
