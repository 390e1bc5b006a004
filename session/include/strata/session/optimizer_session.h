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
  void* values = nullptr;          ///< the parameter; read and written
  const void* gradient = nullptr;  ///< as many elements of `gradient_dtype` (f32, bf16 or f16)
  DType gradient_dtype = DType::f32;
  /// The settings of its parameter group. Optimizer and momentum are the session's; `step` is not read: the
  /// session counts it, for each parameter.
  cpuopt::OptimizerParams settings{};
};

/// The optimizer states of a trainer that is linked with strata, spread over RAM and NVMe. Parameters and
/// gradients stay in the trainer's memory, where a step reads and writes them; bf16 and f16 parameters are
/// trained by f32 masters whose other bits are among the states. Used by one thread.
class OptimizerSession final : public Session {
 public:
  /// `plan`, which is that of plan_trainer_states(), and what `environment` refers to outlive the session.
  /// `values`: the parameters, from which masters are made, as for bind(); all moments are zero.
  static Result<std::unique_ptr<OptimizerSession>> create(const StatePlan& plan,
                                                          const SessionEnvironment& environment,
                                                          std::span<void* const> values);
  ~OptimizerSession();

  /// Updates the parameters in `updates`, each at most once, in any order; the others do not change, nor do
  /// their states and step counts. Returns when all are written. Errors: `invalid`, naming the parameter,
  /// before anything has changed; those of the store and of memory, after which the states belong to no step,
  /// and every later step returns the error.
  Status step(std::span<const ParamUpdate> updates);
  /// Tells where the parameters are for visits, fills, digests and checkpoints, until the next call; nothing:
  /// they are not accessible. A step uses the addresses that it is given. Errors: `invalid`, naming the
  /// parameter.
  Status bind(std::span<void* const> values);

 private:
  struct Step;
  explicit OptimizerSession(std::unique_ptr<StateContext> context);
  Status clear();
  Status check(std::span<const ParamUpdate> updates);
  Status update_chunks();
  const std::unique_ptr<Step> step_;
};

}  // namespace strata
