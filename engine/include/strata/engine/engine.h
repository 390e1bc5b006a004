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
#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/io.h>
#include <strata/runtime/stall_meter.h>
#include <strata/runtime/thread_pool.h>
#include <strata/runtime/trace.h>

namespace strata {

class Simulation;
struct MachineProfile;

/// The programs of a run. All have the same parameters; `train` ends in "loss" and has its backward (it may
/// be of all micro-batches of a step, each with its own inputs and "loss": interleave_micro_batches), `eval`
/// ends in "loss", `infer` in "logits". Inputs are "tokens" and, but for infer, "targets" [T] i32; where a
/// program has them, also "doc_start" [T] i32 and "divisor" [1] f32 (what the loss is divided by: the engine
/// fills it). `prefill` and `decode` come together and have equal states, which they share; their inputs are
/// "tokens", "positions", "slots" [R] and "logit_indices" [N] i32, their output "logits" [N, vocab] (see
/// Engine::extend). Each may be empty, but not all: a run without `train` only infers.
struct ProgramSet {
  Program train, eval, infer;
  Program prefill, decode;
  /// plan_memory() of each, for whoever makes many plans of them; nothing: every plan works it out.
  struct Memory {
    MemoryPlan train, eval, infer;
  };
  std::shared_ptr<const Memory> memory;
  /// Of the programs as they are now.
  void plan_memory();
};

/// What a step does whose gradient is not finite (in f16: with no loss scale).
enum class NonFinite : std::uint8_t {
  stop,  ///< the error `diverged`
  skip,  ///< it counts as a step, and no state changes
};

/// Parameters that are updated otherwise than the rest.
struct ParamGroup {
  std::string pattern;  ///< see match_parameters(); the first group that names a parameter has it
  double lr_scale = 1;  ///< times the step's learning rate
  /// Of all its tensors, also of those that the model does not let decay; nothing: as without the group.
  std::optional<double> weight_decay{};
};
/// How a tensor is updated, beside what all have in common.
struct UpdateRule {
  double lr_scale = 1, weight_decay = 0;
  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};
inline constexpr std::size_t kMaxUpdateRules = 32;

struct EngineOptions {
  TierBytes budgets{kUnlimited, kUnlimited, kUnlimited};
  TierBytes capacity{kUnlimited, kUnlimited,
                     kUnlimited};  ///< what the machine has: a refusal proposes no more
  PlacementPolicy policy = PlacementPolicy::automatic;
  GradientPolicy gradients = GradientPolicy::automatic;
  std::int64_t chunk_elems = 0;  ///< 0: search
  /// Parameter chunks fetched ahead, at most 64; 0: on demand; nothing: by the room on the device. A plan
  /// says how many.
  std::optional<std::uint32_t> prefetch{};
  StepMode step_mode = StepMode::automatic;
  /// Bytes of the undo log of speculative updates, if the pinned budget leaves so many; kUnlimited: as many
  /// as can be used; nothing: the same in the modes speculative and hybrid, in auto none.
  std::optional<std::uint64_t> undo_bytes{};
  std::int32_t grad_accum = 1;
  double clip = 1.0;                    ///< global gradient norm; 0: none
  cpuopt::OptimizerParams optimizer{};  ///< lr, step and grad_factor are set each step
  std::vector<ParamGroup> groups{};
  StateFormat states = StateFormat::fp32;
  /// Whether parameters that are not trained keep the rest of their f32 masters, which no step reads: then
  /// they are saved as they were given. Else they are rounded to what the model computes with when they are
  /// given.
  bool frozen_masters = true;
  std::uint64_t rounding_seed = 0;  ///< of the formats that round at random
  NonFinite non_finite = NonFinite::stop;
  double loss_scale = 65536;  ///< the first one of a run that computes in f16: a power of two
  NvmeOptions nvme{};         ///< classes are set by the plan
  /// Elements of states that are copied at once to or from the device when all are filled or shown; 0: a
  /// four-thousandth of the model's, from 2^16 to 2^20.
  std::int64_t state_run = 0;
  /// Above 0: an instruction takes its flops / this on a paced host backend and computes nothing, so that a
  /// schedule can be timed by itself.
  double paced_flops_per_s = 0;
};

/// The chunks whose update does not wait for the norm, and where their states of before are kept meanwhile:
/// of those that live in RAM here, one payload after the other; of those on nvme as the generation before, in
/// SizeClass::kept.
struct UndoLog {
  std::size_t bytes = 0;
  std::vector<std::optional<std::size_t>> offset_of_chunk;  ///< nothing: waits for the norm

  bool covers_any() const {
    return std::any_of(offset_of_chunk.begin(), offset_of_chunk.end(),
                       [](const auto& at) { return at.has_value(); });
  }
  bool covers(ChunkId chunk) const { return chunk < offset_of_chunk.size() && offset_of_chunk[chunk]; }
};

/// What a run will hold, proven by running the real scheduler over the null backend.
struct RunPlan {
  TensorTable tensors;
  std::vector<UpdateRule> rules;  ///< those there are, at most kMaxUpdateRules
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
  TierBytes planned_peak{};          ///< high-water mark of used + reserved, by tier
  std::vector<std::string> notes;    ///< what was chosen and why, a sentence each
  std::vector<Payload> held_states;  ///< of kCheckpointPayloads, those that the optimizer keeps

  bool trains() const noexcept { return !train.code.empty(); }
  /// Runs of `train` in a step: one a micro-batch, or one of all of them (interleave_micro_batches).
  std::int32_t passes() const noexcept { return options.grad_accum / train.micro_batches; }
  /// How many parameters are trained, or are not.
  std::int64_t n_params(bool trainable) const noexcept {
    std::int64_t n = 0;
    for (const LayoutTensor& tensor : tensors.specs)
      if (tensor.group.trainable == trainable) n += tensor.n_elems;
    return n;
  }
  /// Whether gradients are kept in f16, below whose least value small ones vanish.
  bool scales_loss() const noexcept {
    return trains() && layout.groups().front().compute == DType::f16;  // one dtype for all parameters
  }
  std::array<const LoweredProgram*, 5> programs() const noexcept {
    return {&train, &eval, &infer, &prefill, &decode};
  }
  /// Of the states that prefill and decode share: on the device throughout.
  std::size_t state_bytes() const noexcept { return decode.state_bytes; }
  /// What is held between steps: of a run that only infers, parameters alone.
  std::span<const Payload> states() const noexcept {
    return std::span(held_states).first(trains() ? held_states.size() : 1);
  }
  /// Whether tensor `index` of the layout has a state of `payload`: frozen ones have no moments.
  bool holds(std::int32_t tensor, Payload payload) const {
    return payload == Payload::param || tensors.specs[static_cast<std::size_t>(tensor)].group.trainable;
  }
};

/// One micro-batch to be filled, T values each; doc_start is empty where the program takes none.
struct BatchView {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;    ///< below 0: not counted
  std::span<std::int32_t> doc_start;  ///< place in its row of the first token of a token's document
};

/// Fills micro-batches. `index` counts them from the beginning of the run, so that a source is a pure
/// function of it.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual Status fill(std::int64_t index, const BatchView& batch) = 0;
  /// How many targets of micro-batches [index, index + n) count. A step's loss is the mean over all of them,
  /// so that a micro-batch weighs as much as it has targets.
  virtual std::int64_t n_counted(std::int64_t index, std::int64_t n) = 0;
};

/// A token of a sequence that is being continued.
struct SequenceToken {
  std::int32_t token = 0;
  std::int32_t position = 0;  ///< its absolute place in the sequence
  std::int32_t slot = 0;      ///< the sequence's place in the cache
};

struct StepReport {
  float loss = 0;        ///< mean over the step's counted targets
  double grad_norm = 0;  ///< of the mean gradient, before clipping
  double clip_factor = 1;
  double loss_scale = 1;              ///< that the step was done with
  std::int32_t overflow_retries = 0;  ///< times that f16 gradients overflowed before
  bool skipped = false;     ///< the gradient was not finite, and nothing was updated, the loss scale neither
  std::string skip_reason;  ///< names the tensor
  std::int32_t speculated = 0;   ///< chunks updated before the norm was known
  std::int32_t rolled_back = 0;  ///< of these, for nothing: clipped, or not finite after all
  double seconds = 0;
  /// Where they went, as far as the backend tells. The update of the step before is in them, where it was
  /// done under this one.
  StallTimes times{};
};

/// Elements [offset, offset + n) of the tensor `name`, where n is the length of the values they come with.
struct StatePiece {
  std::string_view name;
  std::int64_t offset = 0;
  std::int64_t n_elems = 0;  ///< of the whole tensor
};

/// Trains one model with its states spread over the tiers. One thread drives it. The placement never changes
/// a bit of what it computes (contract C1).
class Engine {
 public:
  /// Lays out, places and proves the run. Errors: `does_not_fit` with the smallest budget that fits;
  /// `invalid`.
  static Result<std::unique_ptr<const RunPlan>> plan(const ProgramSet& programs,
                                                     const EngineOptions& options);
  /// The same with the first of `choices` (of one model, such as without and with recomputation) that fits.
  struct Choice {
    std::size_t index = 0;
    std::unique_ptr<const RunPlan> plan;
  };
  /// `explains`: a refusal has its table, which takes many plans.
  static Result<Choice> plan_first_fit(std::span<const ProgramSet> choices, const EngineOptions& options,
                                       bool explains = true);
  /// The same with a placement of the caller's (homes given, windows at least the least).
  static Result<std::unique_ptr<const RunPlan>> plan_with(
      const ProgramSet& programs, const EngineOptions& options,
      const std::function<void(const ChunkLayout&, Placement&)>& choose);

  struct Environment {
    Backend& backend;
    ThreadPool& pool;
    Clock& clock;
    Io& io;
    Trace* trace =
        nullptr;  ///< gets the store's tracks and one of the engine's own phases; outlives the engine
    /// Of a run that is simulated: whose backend and clock these are, and what prices its work.
    struct Simulated {
      Simulation& simulation;
      const MachineProfile& profile;
      double clipped = 0;  ///< of the steps: evenly spread
    };
    const Simulated* simulated = nullptr;
  };
  /// Takes the memory. `plan` and the environment outlive the engine. Parameters are undefined until
  /// initialize() or load. Errors: `does_not_fit`, `out_of_memory`, `no_space`, `io_error`.
  static Result<std::unique_ptr<Engine>> create(const RunPlan& plan, const Environment& environment);
  ~Engine();

  /// Gives parameters their first values, a function of (seed, name order, element), and moments zero.
  Status initialize(std::uint64_t seed);

  /// One optimizer step over grad_accum micro-batches. An error before the update leaves the states as they
  /// were; one that cuts the update short is returned by this and by visit() until all states are given anew.
  /// In all step modes but `serial` the update is done under the next step, or when something looks at the
  /// states: what fails of it then is returned by that call, stays due, and is tried again by the next one.
  /// Errors: `diverged` naming the tensor when the gradient is not finite (in f16, with no loss scale);
  /// `io_error`, `corrupt`.
  Status train_step(BatchSource& source, double lr, StepReport& report);
  /// Mean loss over the counted targets of `n` micro-batches of `source` from index 0.
  Result<double> evaluate(BatchSource& source, std::int64_t n);
  /// Logits of the row `row` for one sequence of infer's length. Valid until the next call.
  Result<std::span<const float>> infer(std::span<const std::int32_t> tokens, std::int64_t row);

  /// Runs tokens through `decode`, or through `prefill` where they are more than that takes; their keys and
  /// values join the cache. Returns the rows of logits of the tokens with the indices `wanted`, one after the
  /// other; valid until the next call. A sequence's tokens follow each other without a gap; position 0 begins
  /// its slot anew, and a lower one than the last goes on from there. Errors: `invalid` for more tokens or
  /// logits than prefill takes, a position past the cache or past a gap, a slot, token or index that there is
  /// not; then nothing ran. After any other error begin the sequences anew.
  Result<std::span<const float>> extend(std::span<const SequenceToken> tokens,
                                        std::span<const std::int32_t> wanted);

  /// Steps done; the next one is steps() + 1. Set when resuming, which says that all states are those of that
  /// step.
  std::int64_t steps() const noexcept;
  void set_steps(std::int64_t steps) noexcept;
  /// Of a run that computes in f16; 1 otherwise. Goes on with it when resuming.
  const LossScale& loss_scale() const noexcept;
  void set_loss_scale(const LossScale& scale) noexcept;

  /// Shows every state of `payload` (frozen parameters have no moments) in bounded memory: tensor by tensor
  /// in layout order, each in pieces from its first element to its last. `param` is the f32 master whatever
  /// the model computes with (of a run that only infers, the parameter as it is). Errors, here and in fill():
  /// `unsupported` for moments of a run that has no `train`.
  using Visit = std::function<Status(const StatePiece& piece, std::span<const float> values)>;
  Status visit(Payload payload, const Visit& visit);
  /// Fills every state of `payload` in the same order.
  using Fill = std::function<Status(const StatePiece& piece, std::span<float> values)>;
  Status fill(Payload payload, const Fill& fill);
  /// Over parameters and, where the run trains, moments, in name order.
  Result<std::string> state_digest();

  MovedBytes moved() const;
  LaneBusySeconds lane_busy_seconds() const;
  TierBytes used_bytes() const;
  TierBytes peak_bytes() const;
  std::string nvme_note() const;
  std::vector<NvmePath> nvme_paths() const;  ///< none where the tier is not used
  /// All that was sent to the NVMe tier since the engine was made, repeated writes included.
  std::uint64_t nvme_endurance_bytes() const;
  const RunPlan& plan() const noexcept;
  /// Buffers, streams, events and files made so far; contract C6 compares.
  std::uint64_t resources_created() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
