#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/cpuopt/optimizer.h>
#include <strata/engine/lanes.h>
#include <strata/engine/loss_scale.h>
#include <strata/engine/lowering.h>
#include <strata/engine/step_mode.h>
#include <strata/offload/nvme_store.h>
#include <strata/offload/placement_planner.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

class Simulation;
struct MachineProfile;

/// The programs of a run. All have the same parameters. `train` ends in "loss" and includes its backward; it
/// may cover all micro-batches of a step, each with its own inputs and "loss" (interleave_micro_batches).
/// `eval` ends in "loss", `infer` in "logits". Inputs are "tokens" [T] i32 and, except for infer, "targets"
/// [T] i32; optionally also "doc_start" [T] i32 and "divisor" [1] f32, by which the loss is divided and which
/// the engine fills. `prefill` and `decode` come together and share equal states; their inputs are "tokens",
/// "positions", "slots" [R] and "logit_indices" [N], all i32, and their output is "logits" [N, vocab] (see
/// Engine::extend). Each program may be empty, but not all of them: a run without `train` is for inference
/// only.
struct ProgramSet {
  Program train, eval, infer;
  Program prefill, decode;
  /// Results of plan_memory() for each program, for callers that make many plans of them; if null, every plan
  /// computes them.
  struct Memory {
    MemoryPlan train, eval, infer;
  };
  std::shared_ptr<const Memory> memory;
  /// Fills `memory` for the programs as they are now.
  void plan_memory();
};

/// What happens to a step whose gradient is not finite (in f16: at every loss scale).
enum class NonFinite : std::uint8_t {
  stop,  ///< train_step() returns the error `diverged`
  skip,  ///< it counts as a step, and no state changes
};

/// Parameters that are updated with settings of their own.
struct ParamGroup {
  std::string pattern;  ///< see match_parameters(); the first group that matches a parameter applies
  double lr_scale = 1;  ///< multiplies the step's learning rate
  /// For all tensors of the group, even those that the model exempts from decay; if not set, decay is as
  /// without the group.
  std::optional<double> weight_decay{};
};
/// The settings in which the updates of tensors differ.
struct UpdateRule {
  double lr_scale = 1, weight_decay = 0;
  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};
inline constexpr std::size_t kMaxUpdateRules = 32;

struct EngineOptions {
  TierBytes budgets{kUnlimited, kUnlimited, kUnlimited};
  /// What the machine has; a refusal suggests no more than this.
  TierBytes capacity{kUnlimited, kUnlimited, kUnlimited};
  PlacementPolicy policy = PlacementPolicy::automatic;
  GradientPolicy gradients = GradientPolicy::automatic;
  std::int64_t chunk_elems = 0;  ///< 0: searched
  /// Parameter chunks to prefetch, at most 64; 0: fetched on demand; if not set, chosen by the device's
  /// budget. A plan holds the number chosen.
  std::optional<std::uint32_t> prefetch{};
  StepMode step_mode = StepMode::automatic;
  /// Bytes of the undo log of speculative updates, as far as the pinned budget has room; kUnlimited: as many
  /// as can be used. If not set, this is kUnlimited in the modes speculative and hybrid, and 0 in auto.
  std::optional<std::uint64_t> undo_bytes{};
  std::int32_t grad_accum = 1;
  double clip = 1.0;                    ///< maximum global gradient norm; 0: no clipping
  cpuopt::OptimizerParams optimizer{};  ///< lr, step and grad_factor are set at each step
  std::vector<ParamGroup> groups{};
  StateFormat states = StateFormat::fp32;
  /// Whether frozen parameters keep their f32 masters (Payload::master), which no step reads. If so, they are
  /// saved exactly as they were loaded; else they are rounded to the compute dtype when they are loaded.
  bool frozen_masters = true;
  std::uint64_t rounding_seed = 0;  ///< for state formats with stochastic rounding
  NonFinite non_finite = NonFinite::stop;
  double loss_scale = 65536;  ///< the initial one for runs that compute in f16; a power of two
  NvmeOptions nvme{};         ///< its classes are set by the plan
  /// Elements of states copied at once to or from the device when all states are visited or filled; 0: 1/4096
  /// of the model's elements, from 2^16 to 2^20.
  std::int64_t state_run = 0;
  /// Above 0, an instruction takes its flops / this on a paced host backend and computes nothing, so that a
  /// schedule can be timed by itself.
  double paced_flops_per_s = 0;
};

/// The chunks whose update does not wait for the norm, and where their previous states are kept until the
/// norm is known. States that live in RAM are copied to the log, one payload after the other; of states on
/// nvme the previous generation is kept, in the extents counted by SizeClass::snapshots.
struct UndoLog {
  std::size_t bytes = 0;
  std::vector<std::optional<std::size_t>> offset_of_chunk;  ///< in the log; not set: waits for the norm

  bool covers_any() const {
    return std::any_of(offset_of_chunk.begin(), offset_of_chunk.end(),
                       [](const auto& at) { return at.has_value(); });
  }
  bool covers(ChunkId chunk) const { return chunk < offset_of_chunk.size() && offset_of_chunk[chunk]; }
};

/// Everything that a run will hold, proven by running the real scheduler over the null backend.
struct RunPlan {
  TensorTable tensors;
  std::vector<UpdateRule> rules;  ///< the distinct rules, at most kMaxUpdateRules
  std::vector<std::int32_t> rule_of_tensor;
  std::vector<Init> init_of_tensor;
  std::vector<Shape> shape_of_tensor;
  ChunkLayout layout;
  LoweredProgram train, eval, infer;
  LoweredProgram prefill, decode;
  AccessTrace trace;
  Placement placement;
  UndoLog undo;
  EngineOptions options;
  TierBytes planned_peak{};          ///< peak of used + reserved bytes, by tier
  std::vector<std::string> notes;    ///< what was chosen and why, one sentence each
  std::vector<Payload> held_states;  ///< those of kCheckpointPayloads that the optimizer has

  bool trains() const noexcept { return !train.code.empty(); }
  /// Number of runs of `train` per step: one per micro-batch, or a single one for all
  /// (interleave_micro_batches).
  std::int32_t passes() const noexcept { return options.grad_accum / train.micro_batches; }
  /// Number of parameters that are trained, or that are frozen.
  std::int64_t n_params(bool trainable) const noexcept {
    std::int64_t n = 0;
    for (const LayoutTensor& tensor : tensors.specs)
      if (tensor.group.trainable == trainable) n += tensor.n_elems;
    return n;
  }
  /// Whether gradients are stored in f16, so that small ones would underflow without a loss scale.
  bool scales_loss() const noexcept {
    return trains() && layout.groups().front().compute == DType::f16;  // one dtype for all parameters
  }
  std::array<const LoweredProgram*, 5> programs() const noexcept {
    return {&train, &eval, &infer, &prefill, &decode};
  }
  /// Bytes of the states that prefill and decode share, which are on the device throughout.
  std::size_t state_bytes() const noexcept { return decode.state_bytes; }
  /// The payloads held between steps; for a run that only infers, parameters alone.
  std::span<const Payload> states() const noexcept {
    return std::span(held_states).first(trains() ? held_states.size() : 1);
  }
  /// Whether tensor `index` of the layout has a state of `payload`; frozen ones have no moments.
  bool holds(std::int32_t tensor, Payload payload) const {
    return payload == Payload::param || tensors.specs[static_cast<std::size_t>(tensor)].group.trainable;
  }
};

/// One micro-batch to be filled, with T values each; doc_start is empty if the program has no such input.
struct BatchView {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;    ///< targets below 0 are not counted
  std::span<std::int32_t> doc_start;  ///< for each token, where in its row its document begins
};

/// Provides micro-batches. `index` counts them from the beginning of the run, so that a source can be a pure
/// function of it.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual Status fill(std::int64_t index, const BatchView& batch) = 0;
  /// Returns how many targets of micro-batches [index, index + n) are counted. A step's loss is the mean over
  /// all of them, so a micro-batch weighs as much as it has counted targets.
  virtual std::int64_t n_counted(std::int64_t index, std::int64_t n) = 0;
};

/// One token of a sequence to be continued.
struct SequenceToken {
  std::int32_t token = 0;
  std::int32_t position = 0;  ///< absolute position in the sequence
  std::int32_t slot = 0;      ///< the sequence's slot in the cache
};

struct StepReport {
  float loss = 0;        ///< mean over the step's counted targets
  double grad_norm = 0;  ///< norm of the mean gradient, before clipping
  double clip_factor = 1;
  double loss_scale = 1;              ///< with which the step was computed
  std::int32_t overflow_retries = 0;  ///< how often f16 gradients overflowed before
  bool skipped = false;     ///< the gradient was not finite, and nothing was updated, not even the loss scale
  std::string skip_reason;  ///< names the tensor
  std::int32_t speculated = 0;   ///< chunks updated before the norm was known
  std::int32_t rolled_back = 0;  ///< of these, those undone: the norm was clipped or not finite
  double seconds = 0;
  /// How `seconds` was spent, as far as the backend reports it. Includes the update of the previous step if
  /// it ran during this one.
  StallTimes times{};
};

/// Elements [offset, offset + n) of the tensor `name`, where n is the number of values that come with it.
struct StatePiece {
  std::string_view name;
  std::int64_t offset = 0;
  std::int64_t n_elems = 0;  ///< of the whole tensor
};

/// Trains one model with its states spread over the tiers. Used by one thread. The placement never changes a
/// bit of the results (contract C1).
class Engine {
 public:
  /// Lays out and places the run, and proves by a dry run that it fits. Errors: `does_not_fit` with the
  /// smallest budgets that fit; `invalid`.
  static Result<std::unique_ptr<const RunPlan>> plan(const ProgramSet& programs,
                                                     const EngineOptions& options);
  /// The plan found by plan_first_fit(), and the index of its choice.
  struct Choice {
    std::size_t index = 0;
    std::unique_ptr<const RunPlan> plan;
  };
  /// Plans the first of `choices` that fits; all are of one model, such as without and with recomputation.
  /// `explains`: a refusal includes the table of budgets, which takes many plans to compute.
  static Result<Choice> plan_first_fit(std::span<const ProgramSet> choices, const EngineOptions& options,
                                       bool explains = true);
  /// Plans with homes set by `choose`; windows get their minimum size.
  static Result<std::unique_ptr<const RunPlan>> plan_with(
      const ProgramSet& programs, const EngineOptions& options,
      const std::function<void(const ChunkLayout&, Placement&)>& choose);

  struct Environment {
    Backend& backend;
    ThreadPool& pool;
    Clock& clock;
    Io& io;
    /// Receives the tracks of the store and one of the engine's own phases; outlives the engine.
    Trace* trace = nullptr;
    /// For a simulated run: the simulation that provides backend and clock, and the profile that its cost
    /// model uses.
    struct Simulated {
      Simulation& simulation;
      const MachineProfile& profile;
      double clipped = 0;  ///< fraction of steps that are clipped, evenly spread
    };
    const Simulated* simulated = nullptr;
  };
  /// Allocates the memory of the run. `plan` and the environment outlive the engine. Parameters are undefined
  /// until initialize() or load_checkpoint(). Errors: `does_not_fit`, `out_of_memory`, `no_space`,
  /// `io_error`.
  static Result<std::unique_ptr<Engine>> create(const RunPlan& plan, const Environment& environment);
  ~Engine();

  /// Sets parameters to their initial values, a function of (seed, program order, element), and moments to
  /// zero.
  Status initialize(std::uint64_t seed);

  /// Does one optimizer step over grad_accum micro-batches. An error before the update leaves the states as
  /// they were. An error that interrupts the update is returned by this and by visit() until all states are
  /// set anew. In all step modes except `serial` the update runs during the next step, or when a call needs
  /// the states; an error in it is returned by that call, the update stays pending, and the next call tries
  /// again. Errors: `diverged` naming the tensor if the gradient is not finite (in f16: at every loss scale);
  /// `io_error`, `corrupt`.
  Status train_step(BatchSource& source, double lr, StepReport& report);
  /// Returns the mean loss over the counted targets of `n` micro-batches of `source` from index 0.
  Result<double> evaluate(BatchSource& source, std::int64_t n);
  /// Returns the logits of row `row` for one sequence of infer's length. Valid until the next call.
  Result<std::span<const float>> infer(std::span<const std::int32_t> tokens, std::int64_t row);

  /// Runs tokens through `decode`, or through `prefill` if they are too many for it, and adds their keys and
  /// values to the cache. Returns the rows of logits of the tokens with indices `wanted`, one after the
  /// other; valid until the next call. The tokens of a sequence must follow each other without a gap.
  /// Position 0 starts its slot anew, and a position before the end continues from there. Errors: `invalid`
  /// for more tokens or logits than prefill allows, for a position beyond the cache or after a gap, and for a
  /// slot, token or index out of range; then nothing ran. After any other error the sequences must be started
  /// anew.
  Result<std::span<const float>> extend(std::span<const SequenceToken> tokens,
                                        std::span<const std::int32_t> wanted);

  /// Steps done; the next one is steps() + 1. Set it when resuming, which also declares that all states are
  /// those of that step.
  std::int64_t steps() const noexcept;
  void set_steps(std::int64_t steps) noexcept;
  /// Of a run that computes in f16; 1 otherwise. Set it when resuming.
  const LossScale& loss_scale() const noexcept;
  void set_loss_scale(const LossScale& scale) noexcept;

  /// Calls `visit` for every state of `payload` (frozen parameters have no moments) in bounded memory: tensor
  /// by tensor in layout order, each in pieces from its first element to its last. `param` is the f32 master
  /// whatever the compute dtype is (for a run that only infers, the parameter itself). Errors, here and in
  /// fill(): `unsupported` for moments of a run without `train`.
  using Visit = std::function<Status(const StatePiece& piece, std::span<const float> values)>;
  Status visit(Payload payload, const Visit& visit);
  /// Fills every state of `payload`, in the same order.
  using Fill = std::function<Status(const StatePiece& piece, std::span<float> values)>;
  Status fill(Payload payload, const Fill& fill);
  /// Digest of parameters and, if the run trains, moments, in name order.
  Result<std::string> state_digest();

  MovedBytes moved() const;
  LaneBusySeconds lane_busy_seconds() const;
  TierBytes used_bytes() const;
  TierBytes peak_bytes() const;
  std::string nvme_note() const;
  std::vector<NvmePath> nvme_paths() const;  ///< empty if the tier is not used
  /// Bytes sent to the NVMe tier since the engine was created, repeated writes included.
  std::uint64_t nvme_endurance_bytes() const;
  const RunPlan& plan() const noexcept;
  /// Buffers, streams, events and files created so far; contract C6 is checked by comparing it.
  std::uint64_t resources_created() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
