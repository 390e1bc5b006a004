#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/batch_source.h>
#include <strata/engine/initial_values.h>
#include <strata/engine/run_plan.h>
#include <strata/runtime/io/io.h>
#include <strata/session/session.h>

namespace strata {

class Simulation;
struct MachineProfile;

namespace detail {
class CostModel;
class FactorMerge;
class ProgramRunner;
struct TraineeStep;
}  // namespace detail

/// A session whose gradients are computed by programs: trains one model, with its states spread over the
/// tiers, and runs it. Used by one thread. The placement never changes a bit of the results (contract C1).
class Engine final : public Session {
 public:
  /// Lays out and places the run, and proves by a dry run that it fits. Errors: `does_not_fit` with the
  /// smallest budgets that fit; `invalid`.
  static Result<std::unique_ptr<const RunPlan>> plan(const ProgramSet& programs,
                                                     const SessionOptions& options);
  /// The plan found by plan_first_fit(), and the index of its choice.
  struct Choice {
    std::size_t index = 0;
    std::unique_ptr<const RunPlan> plan;
  };
  /// Plans the first of `choices` that fits; all are of one model, such as without and with recomputation.
  /// `explains`: a refusal includes the table of budgets, which takes many plans to compute.
  static Result<Choice> plan_first_fit(std::span<const ProgramSet> choices, const SessionOptions& options,
                                       bool explains = true);
  /// Plans with homes set by `choose`; windows get their minimum size.
  static Result<std::unique_ptr<const RunPlan>> plan_with(
      const ProgramSet& programs, const SessionOptions& options,
      const std::function<void(const ChunkLayout&, Placement&)>& choose);

  /// For a run without data, over a null backend or a simulation (dry run, forecast): synthetic gradient
  /// norms, a simulated store, and what work costs.
  struct Dataless {
    SyntheticSteps steps{};
    Simulation* simulation = nullptr;         ///< requests to the slow tier take its time; null: none
    const MachineProfile* profile = nullptr;  ///< the costs of work; null: work costs nothing
    const SimulatedPeers* peers = nullptr;    ///< simulated together with this rank; null: none
  };
  struct Environment {
    Backend& backend;
    ThreadPool& pool;
    Clock& clock;
    Io& io;
    /// Receives the tracks of the store and one of the engine's own phases; outlives the engine.
    Trace* trace = nullptr;
    /// Budgets that this engine shares with others; null: it has its own, those of the plan.
    TierBudgets* budgets = nullptr;
    const Dataless* dataless = nullptr;  ///< null: a real run
    /// The ranks of the run, which all call the engine in the same order; null if there is one, or without
    /// data.
    World* world = nullptr;
    /// On a backend that paces compute: how long collectives take at least, for measurements of overlap.
    NetworkRate network = {};
  };
  /// Allocates the memory of the run. `plan` and the environment outlive the engine. Parameters are undefined
  /// until initialize() or load_checkpoint(). Errors: `invalid`, `does_not_fit`, `out_of_memory`, `no_space`,
  /// `io_error`.
  static Result<std::unique_ptr<Engine>> create(const RunPlan& plan, const Environment& environment);
  ~Engine();

  const RunPlan& plan() const noexcept { return plan_; }

  /// The values that initialize() fills parameters with, for Session::fill(); valid while the engine is.
  FillState initial_values(std::uint64_t seed, const InitialValues& given = {},
                           const QuantizedValues& quantized = {});
  /// Sets parameters to those of `given` or, where it has none, to their initial values, a function of (seed,
  /// program order, element), and moments to zero.
  Status initialize(std::uint64_t seed, const InitialValues& given = {},
                    const QuantizedValues& quantized = {});

  /// Does one optimizer step over grad_accum micro-batches, of which this rank computes every ranks-th one.
  /// An error before the update leaves the states as they were. An error that interrupts the update is
  /// returned by this and by visit() until all states are set again. In all step modes except `serial` the
  /// update runs during the next step, or when a call needs the states; an error in it is returned by that
  /// call, the update stays pending, and the next call tries again. Errors: `diverged` naming the tensor if
  /// the gradient is not finite (in f16: at every loss scale); `io_error`, `corrupt`.
  Status train_step(BatchSource& source, double lr, StepReport& report);
  /// The same of one of several trainees, whose programs get a source each, in their order; the empty name is
  /// the first one's. Its loss is the sum of the programs' means, each times its weight. Sources count from
  /// the trainee's own steps. The update of one trainee may be pending while others compute. Errors also:
  /// `invalid` for another name or number of sources.
  Status train_step(std::string_view trainee, std::span<BatchSource* const> sources, double lr,
                    StepReport& report);
  /// Says which programs run after the passes that come next, in order, until the next call: what they use
  /// first is kept longest. Of a step, it is the first of the trainee's programs. Changes no result. Those
  /// beyond the sixteenth do not count. Empty, as at first: the same passes again. Errors: `unsupported` for
  /// a program that the run does not have.
  Status expect(std::span<const std::string_view> programs);
  /// Runs a program with the role `forward` on micro-batch `index` of `source`; an input "divisor" is 1.
  /// Errors: `unsupported` without such a program; `io_error`, `corrupt`.
  Status forward(std::string_view program, BatchSource& source, std::int64_t index);
  /// Returns an output that forward() or the last step has computed, valid until the next call of either; for
  /// a program that trains, that of a micro-batch which the step computed, and never its "loss". Of an i32
  /// output these are the bits. Empty if there is none of that name.
  std::span<const float> output(std::string_view program, std::string_view name,
                                std::int32_t micro_batch = 0) const;
  /// The sum of an output of SessionOptions::step_sums over the micro-batches of the last step, of all ranks;
  /// empty if there is none of that name. An output that no program of the step has counts as zeros, and so
  /// do micro-batches without a target that are first (BatchSource::n_empty). Sums of i32 outputs are exact.
  std::span<const double> step_sum(std::string_view output) const noexcept;
  /// The bytes of the device's arena that the instructions of each program of the plan have used so far.
  std::span<const std::size_t> arena_used() const noexcept;
  /// Returns the mean loss over the counted targets of `n` micro-batches of `source` from index 0, by the
  /// evaluation program of that name, or the first one. After each micro-batch that this rank computes,
  /// output() has the program's other outputs, and `after` is called with the index, if there is one.
  Result<double> evaluate(BatchSource& source, std::int64_t n, std::string_view program = {},
                          const std::function<void(std::int64_t)>& after = {});

  /// Runs the program with the role `refresh` on the micro-batches of the next step, and calls `sink` with
  /// each of its results, whole, in the program's order; its values stay in the plan's pinned memory until
  /// the next call. No state changes; what is pending is completed first. The sink must not call the engine;
  /// its error ends the call. Errors: `unsupported` without such a program; `io_error`, `corrupt`.
  Status refresh(BatchSource& source, const VisitState& sink);
  /// Adds the product of the factors of each of these groups, which have a basis, to its matrix, and sets the
  /// trained factor to zeros: W += scale B A, in f32 on the masters, each element's sum in the order of the
  /// ranks, so that no bit depends on threads or placement. A group whose factor is zero is left alone. In
  /// bounded memory: the factors of one chunk's matrices at a time. Moments stay. After an error in the midst
  /// of it the states are those of no step: see edit_params(). Errors: `invalid` for a group without a basis
  /// or of a parameter that the run lacks; those of edit_params().
  Status merge_factors(std::span<const LoraGroup> groups);
  /// A basis as renew_bases() found it.
  struct RenewedBasis {
    std::string name;
    std::vector<float> energy;  ///< the share of its gradient's square that the basis of each part captures
    bool kept = false;          ///< it stays as it was, since the one that was found is not finite
  };
  /// Renews the bases, as subspace training does before the steps in which bases change: merge_factors() and
  /// refresh() run, and the results, rounded to the compute dtype, become the bases. Afterwards the model
  /// computes what it did before, to rounding. If refresh() fails, the call may be repeated, and gives the
  /// same bits. Returns the bases in the order of `groups`. Errors: those of the parts; `invalid` for a basis
  /// that is no result; `diverged` naming a basis that is not finite, unless the run skips such steps
  /// (NonFinite::skip), and then the basis is kept.
  Result<std::vector<RenewedBasis>> renew_bases(BatchSource& source, std::span<const LoraGroup> groups);

  /// Returns the logits of row `row` for one sequence of infer's length. Valid until the next call.
  Result<std::span<const float>> infer(std::span<const std::int32_t> tokens, std::int64_t row);

  /// Runs tokens through `decode`, or through `prefill` if they are too many for it, and adds their keys and
  /// values to the cache. Returns the rows of logits of the tokens with indices `wanted`, one after the
  /// other; valid until the next call. The tokens of a sequence must follow each other without a gap.
  /// Position 0 starts its slot again, and a position before the end continues from there, if
  /// continues_from() says so: what the slot had behind it is lost, snapshots included.
  /// Errors: `invalid` for more tokens or logits than prefill allows, for a position beyond the cache or
  /// after a gap, for a slot, token, adapter or index out of range, and for a sequence that changes its
  /// adapter; then nothing ran. After any other error the sequences must be started again.
  Result<std::span<const float>> extend(std::span<const SequenceToken> tokens,
                                        std::span<const std::int32_t> wanted);
  /// Keeps what layers with a state have of a slot's tokens so far, so that the sequence can go on from here
  /// again. A slot has room for ProgramSet::snapshots() of them, and a further one replaces the oldest.
  /// Copies in stream order, and waits for nothing. Does nothing for a slot without tokens, for one that has
  /// this snapshot, and for a model without states. Errors: `invalid` for a slot out of range, for a plan
  /// without room, and for states that were lost in an error; `unsupported` without the programs of extend().
  Status keep_snapshot(std::int32_t slot);
  /// Whether keep_snapshot() takes any: layers have states, and the plan has room.
  bool keeps_snapshots() const noexcept;
  /// The largest position up to `position` from which extend() can continue a slot. Keys and values of
  /// earlier tokens stay, so this is `position`, or the slot's end if that is less. A model whose layers have
  /// a state of all tokens continues from its end, from snapshots, and from 0.
  std::int32_t continues_from(std::int32_t slot, std::int32_t position) const noexcept;

 private:
  Engine(const RunPlan& plan, std::unique_ptr<detail::CostModel> costs,
         std::unique_ptr<StateContext> context);
  Result<std::int32_t> find_trainee(std::string_view name, std::size_t n_sources) const;
  Status run_step(const detail::TraineeStep& step, StepReport& report);
  Status merge_chunk(detail::FactorMerge& merge);

  const RunPlan& plan_;
  std::unique_ptr<detail::CostModel> costs_;  // null unless the run is simulated
  std::unique_ptr<detail::ProgramRunner> runner_;
};

}  // namespace strata
