#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <strata/engine/batch_source.h>
#include <strata/engine/run_plan.h>
#include <strata/session/state_piece.h>
#include <strata/session/step_machine.h>

#include "execute/output_sums.h"
#include "execute/sequences/kv_cache_tracker.h"
#include "execute/sequences/state_rows.h"
#include "execute/program_executor.h"
#include "execute/program_memory.h"

namespace strata::detail {

/// A step of a trainee to be computed: a source for each of its programs.
struct TraineeStep {
  std::int32_t trainee = 0;
  std::span<BatchSource* const> sources;
  double lr = 0;
};

/// Runs the programs of a plan: uploads their inputs, replays them, and reads their results back. Between
/// steps it is idle; within one it runs the passes over the micro-batches. After a failed step the caller
/// calls fail(); refresh(), evaluate(), infer() and extend() do so themselves. Not thread-safe.
class ProgramRunner {
 public:
  /// `steps`: the schedule of a step of each trainee. All references outlive the runner; `costs` is null
  /// unless the run is simulated.
  ProgramRunner(StateContext& context, StepMachine& machine, const RunPlan& plan,
                std::span<const PassSchedule> steps, const InstructionCosts* costs);
  ~ProgramRunner() { context_.use_schedule().set_following({}); }
  ProgramRunner(const ProgramRunner&) = delete;
  ProgramRunner& operator=(const ProgramRunner&) = delete;

  /// Runs forward and backward of all micro-batches of a step, and computes their gradient norm and loss.
  Status compute_gradient(const TraineeStep& step, StepReport& report);
  /// See Engine::expect().
  Status expect(std::span<const std::string_view> programs);
  /// See Engine::forward() and Engine::output().
  Status forward(std::string_view program, BatchSource& source, std::int64_t index);
  std::span<const std::size_t> arena_used() const noexcept { return executor_.arena_used(); }
  std::span<const float> output(std::string_view program, std::string_view name,
                                std::int32_t micro_batch) const noexcept;
  /// See Engine::step_sum().
  std::span<const double> step_sum(std::string_view output) const noexcept { return sums_.of(output); }
  /// See Engine::refresh().
  Status refresh(BatchSource& source, const VisitState& sink);
  Result<double> evaluate(std::string_view program, BatchSource& source, std::int64_t n,
                          const std::function<void(std::int64_t)>& after);
  Result<std::span<const float>> infer(std::span<const std::int32_t> tokens, std::int64_t row);
  Result<std::span<const float>> extend(std::span<const SequenceToken> tokens,
                                        std::span<const std::int32_t> wanted);
  /// See Engine::keep_snapshot() and Engine::continues_from().
  Status keep_snapshot(std::int32_t slot);
  bool keeps_snapshots() const noexcept { return kv_cache_.keeps_snapshots(); }
  std::int32_t continues_from(std::int32_t slot, std::int32_t position) const noexcept {
    return kv_cache_.continues_from(slot, position);
  }
  /// "; the loss of micro-batch 6 is not finite, which rank 1 computes", of the last gradient; empty if all
  /// are finite.
  std::string bad_loss_text() const;
  /// After the error `why` of a step or a pass: ends it as StepMachine::fail() does, and forgets what it
  /// moved.
  Status fail(const Status& why);

 private:
  /// A program with its schedule.
  struct Replay {
    const PlannedProgram& planned;
    PassSchedule own;  // empty for programs that train
    const PassSchedule* schedule;
    bool overwrites_cache = false;            // the cache is lost when it runs
    std::size_t first_output = 0;             // where the outputs of its first pass are, in bytes
    std::unique_ptr<FirstUses> first_uses{};  // once it is expected
    const LoweredProgram& program() const noexcept { return planned.program; }
  };
  std::int32_t n_ranks() const noexcept { return context_.plan().options.ranks.ranks; }
  const std::byte* outputs_of(const Replay& replay, std::int32_t pass) const noexcept {
    return memory_.outputs() + replay.first_output +
           static_cast<std::size_t>(pass) * replay.program().output_bytes;
  }
  const Replay* find(ProgramRole role) const noexcept;
  const Replay* find(std::string_view name) const noexcept;
  Status run(const Replay& replay);
  /// Before a pass of a program: the accesses that come next are those of its schedule.
  void activate(const Replay& replay);
  Result<std::int32_t> passes_left_out(BatchSource& source, std::int64_t first,
                                       const PlannedStep::Part& part);
  Status sum_outputs(const TraineeStep& step);
  Status run_part(const TraineeStep& step, std::size_t part, std::int32_t first_loss);
  Status run_forward(const Replay& replay, BatchSource& source, std::int64_t index);
  Status read_back_outputs(const LoweredProgram& program, std::size_t at);
  Status run_refresh(const Replay& replay, BatchSource& source, const VisitState& sink);
  Status give_result(const LoweredProgram::ResultValue& result, const VisitState& sink);
  Result<double> mean_loss(const Replay& eval, BatchSource& source, std::int64_t n,
                           const std::function<void(std::int64_t)>& after);
  Result<std::span<const float>> infer_row(const Replay& replay, std::span<const std::int32_t> tokens,
                                           std::int64_t row);
  Result<std::span<const float>> run_extension(const Replay& replay, std::span<const SequenceToken> tokens,
                                               std::span<const std::int32_t> wanted);
  Status copy_snapshot(std::int32_t slot, std::int32_t place, bool restores);
  Result<BatchView> open_inputs(const LoweredProgram& program, std::int32_t micro_batch);
  Status upload(const LoweredProgram& program);
  /// What the engine fills of a micro-batch (NamedProgram).
  struct LossScaling {
    float divisor = 1, factor = 1;
  };
  Status load_batch(const LoweredProgram& program, BatchSource& source, std::int64_t index,
                    const LossScaling& scaling);
  Result<double> counted_per(BatchSource& source, std::int64_t index, std::int64_t n);
  Status read_back_losses(const LoweredProgram& program, std::int32_t first);
  Status read_back(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Waits for what has been read back to `at`.
  Status await_read_back(const void* at, std::size_t bytes);
  Result<std::span<const float>> read_logits(const Operand& logits, std::int64_t first_row, std::size_t rows);

  StateContext& context_;
  StepMachine& machine_;
  const RunPlan& plan_;
  const ProgramMemory memory_;
  std::vector<Replay> replays_;
  ProgramExecutor executor_;
  KvCacheTracker kv_cache_;
  const StateRows state_rows_{plan_.of(ProgramRole::decode)};
  OutputSums sums_;
  std::vector<BatchInput> inputs_;   // the inputs of the micro-batch that is being filled
  std::int32_t bad_loss_ = -1;       // the first micro-batch of the last gradient whose loss is not finite
  std::size_t slot_ = 0;             // index of the next input slot
  std::array<Event, 2> uploaded_{};  // after which the slot may be written again
  Event arena_free_;                 // after which inputs and results of the last pass are no longer needed
};

}  // namespace strata::detail
