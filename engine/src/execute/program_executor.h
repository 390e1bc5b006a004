#pragma once

#include <array>
#include <vector>

#include "execute/activation_moves.h"
#include "step/commit.h"
#include "execute/execution_context.h"
#include "plan/schedule.h"
#include "step/speculation.h"

namespace strata {

/// Replays a lowered program: pins the parameters of each instruction once their update is committed,
/// launches it, accumulates gradients, and prefetches. Not thread-safe; allocates nothing after construction.
class ProgramExecutor {
 public:
  static constexpr std::size_t kMaxOperands = 12;
  ProgramExecutor(ExecutionContext& context, Commit& commit, Speculation& speculation);

  /// Runs `program` once as micro-batch `k` of `schedule`. With `accumulates`, gradients are accumulated into
  /// the step's gradient, and the last micro-batch also computes their norm partials.
  struct Pass {
    const LoweredProgram& program;
    const ProgramSchedule& schedule;
    std::int32_t k = 0;
    bool accumulates = false;
    bool last = false;
  };
  Status run(const Pass& pass);
  /// Prefetching starts again at the schedule's first access.
  void rewind() noexcept { here_ = 0; }
  /// After a failure: releases the pins and drops the micro-batch's gradients.
  void release() noexcept;
  /// Does the same and also drops the accumulated gradients of the abandoned step.
  void abandon() noexcept;

 private:
  Status launch(const LoweredInstr& instr);
  TensorView bind(const LoweredInstr& instr, const Operand& operand) const;
  Status make_current(const LoweredInstr& instr);
  Status prefetch_params(const ProgramSchedule& schedule, std::int32_t position);
  Status accumulate_gradient(ChunkId chunk, const Pass& pass);
  Status accumulate_gradient_on_device(ChunkId chunk, const Pass& pass);
  Status accumulate_gradient_in_ram(ChunkId chunk, const Pass& pass);
  bool runs_on_device(const Stream& stream) const;
  /// Whether a micro-batch's gradient has the dtype of the accumulated gradient.
  bool sum_has_grad_dtype(ChunkId chunk) const;
  Status queue_accumulate(ChunkId chunk, const ChunkPin& sum, const ChunkPin& grad, bool first,
                          Stream& stream);
  Status queue_norm_partials(ChunkId chunk, const ChunkPin& sum, Stream& stream);

  ExecutionContext& context_;
  Commit& commit_;
  Speculation& speculation_;
  ActivationMoves moves_;
  std::vector<ChunkPin> params_;      ///< of the current instruction
  std::vector<ChunkPin> open_grads_;  ///< by chunk
  std::size_t here_ = 0;              ///< position in ProgramSchedule::params: the next access
};

}  // namespace strata
