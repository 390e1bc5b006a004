#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <strata/cpuopt/optimizer.h>
#include <strata/offload/nvme_options.h>
#include <strata/offload/placement_request.h>
#include <strata/session/ranks/data_parallel.h>
#include <strata/session/ranks/model_parallel.h>
#include <strata/session/step_mode.h>

namespace strata {

/// The effect of a gradient that is not finite (in f16: at every loss scale) on its step.
enum class NonFinite : std::uint8_t {
  stop,  ///< the step returns the error `diverged`
  skip,  ///< it counts as a step, and no state changes
};

/// Parameters that are updated with settings of their own.
struct ParamGroup {
  std::string pattern;  ///< a shell pattern for names; the first group that matches a parameter applies
  double lr_scale = 1;  ///< multiplies the step's learning rate
  /// For all tensors of the group, even those that the model exempts from decay; if not set, decay is as
  /// without the group.
  std::optional<double> weight_decay{};
};

/// Parameters that are updated together, after a gradient of their own: with its norm, clip factor, loss
/// scale and count of steps.
struct TraineeOptions {
  std::string name;
  /// The micro-batches of a step, of all ranks together; 0: SessionOptions::grad_accum.
  std::int32_t micro_batches = 0;
  std::optional<double> clip{};  ///< not set: SessionOptions::clip
};

/// An output of the programs that train, which a step adds up over its micro-batches on all ranks.
struct StepSum {
  std::string output;
  std::int64_t n = 0;  ///< its elements
};

/// How the states of a run are laid out, placed and updated.
struct SessionOptions {
  TierBytes budgets{kUnlimited, kUnlimited, kUnlimited};
  /// The memory of the machine; a refusal suggests no more than this.
  TierBytes capacity{kUnlimited, kUnlimited, kUnlimited};
  PlacementPolicy policy = PlacementPolicy::automatic;
  GradientPolicy gradients = GradientPolicy::automatic;
  std::int64_t chunk_elems = 0;  ///< 0: searched
  /// The bytes that a rank sends in a collective that reaches half the network's rate, if there are several
  /// ranks; they make the search prefer larger chunks; 0: not known.
  double network_half_rate_bytes = 0;
  /// Parameter chunks to prefetch, at most 64; 0: fetched on demand; if not set, chosen by the device's
  /// budget. A plan holds the number chosen.
  std::optional<std::uint32_t> prefetch{};
  StepMode step_mode = StepMode::automatic;
  /// Bytes of the undo log of speculative updates, as far as the pinned budget has room; kUnlimited: as many
  /// as can be used. If not set, this is kUnlimited in the modes speculative and hybrid, and 0 in auto.
  std::optional<std::uint64_t> undo_bytes{};
  std::int32_t grad_accum = 1;  ///< micro-batches of a step, of all ranks together
  DataParallel ranks{};
  ModelParallel model{};
  double clip = 1.0;                    ///< maximum global gradient norm; 0: no clipping
  cpuopt::OptimizerParams optimizer{};  ///< lr, step and grad_factor are set at each step
  std::vector<ParamGroup> groups{};
  std::vector<TraineeOptions> trainees{};  ///< GroupKey::trainee is an index into them; empty: one
  StateFormat states = StateFormat::fp32;
  /// Whether frozen parameters keep their f32 masters (Payload::master), which no step reads. If so, they are
  /// saved exactly as they were loaded; else they are rounded to the compute dtype when they are loaded.
  bool frozen_masters = true;
  /// Whether checkpoints hold all frozen parameters. If not, they hold the digests of those that are not
  /// GroupKey::saved, and load_checkpoint() asks for their values.
  bool saves_frozen = true;
  std::vector<StepSum> step_sums{};   ///< see Engine::step_sum()
  std::vector<std::string> edited{};  ///< frozen parameters that Session::edit_params() changes after steps
  std::uint64_t rounding_seed = 0;    ///< for state formats with stochastic rounding
  NonFinite non_finite = NonFinite::stop;
  double loss_scale = 65536;  ///< the initial one for runs that compute in f16; a power of two
  NvmeOptions nvme{};         ///< its classes are set by the plan
  /// Elements of states copied at once to or from the device when all states are visited or filled; 0: 1/4096
  /// of the model's elements, from 2^16 to 2^20.
  std::int64_t state_run = 0;
  /// For Engine on a paced host backend: above 0, an instruction computes nothing and takes its flops divided
  /// by this, so that a schedule can be timed by itself.
  double paced_flops_per_s = 0;
};

/// Whether ranks exchange norms of tensors between the two passes of an update: LAMB, whose tensors they
/// share. Then they all update in the same order, and none speculatively.
inline bool exchanges_norms(const SessionOptions& options) noexcept {
  return options.optimizer.optimizer == cpuopt::Optimizer::lamb && options.ranks.shards() > 1;
}

}  // namespace strata
