#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include <strata/graph/passes.h>
#include <strata/graph/program.h>

namespace strata {

/// The use of a program by an engine.
enum class ProgramRole : std::uint8_t {
  train,  ///< forward, loss and backward; it may cover all micro-batches of a step, each with its own inputs
          ///< and "loss" (interleave_micro_batches)
  eval,   ///< forward and "loss"
  infer,  ///< forward of one sequence; ends in "logits"
  prefill,  ///< continues sequences by many tokens (Engine::extend)
  decode,   ///< continues sequences by few tokens; it shares the states of `prefill`
  refresh,  ///< computes values of parameters between steps, from all micro-batches of the next step
  forward,  ///< forward of one micro-batch, whose outputs the caller gets (Engine::forward)
};
std::string_view to_string(ProgramRole role) noexcept;

/// A program of a run. Its inputs and outputs are known by name. Inputs are filled by the caller's
/// BatchSource, except two that the engine fills: "divisor" [1] f32, by which the loss is divided, and
/// "loss_factor" [1] f32, by which gradients that the divisor does not scale are multiplied. A program
/// with the role `infer` has the input "tokens" [T] i32; `prefill` and `decode` have "tokens", "positions",
/// "slots" [R] and "logit_indices" [N], all i32, and the output "logits" [N, vocab]; with adapters that rows
/// choose (add_lora_rows) also "adapters" [R] i32. The outputs "loss" and "logits" are f32. A program with
/// the role `refresh` has results, in f32, and no gradients (find_bases). A program with the role `train` may
/// have further outputs, such as statistics of its loss, and one with the role `forward` has any; all are f32
/// (Engine::output).
struct NamedProgram {
  std::string name;
  ProgramRole role = ProgramRole::train;
  Program program;
  /// Result of plan_memory() for callers that make many plans; if null, every plan computes it.
  std::shared_ptr<const MemoryPlan> memory = nullptr;
  /// Role `train` only: the model whose gradient it computes. Programs of one trainee train the same
  /// parameters, and a step of the trainee runs them one after the other.
  std::string trainee = {};
  /// Role `train` only: micro-batches of a step; 0: SessionOptions::grad_accum.
  std::int32_t micro_batches = 0;
  double weight = 1;  ///< role `train` only: the weight of its loss among those of the trainee
};

/// The programs of a run. Parameters with one name are one parameter; a program need not have all of them. No
/// two trainees train the same parameter, and what none of them trains is frozen. At most one program
/// refreshes. A run without a program that trains is for inference only.
class ProgramSet {
 public:
  /// The first program of that role. If there is none, an empty one is added, whose name is the role's.
  Program& operator[](ProgramRole role);
  /// The first program of that role that is not empty; an empty one if there is none.
  const Program& operator[](ProgramRole role) const noexcept;
  /// The first program of that role; null if there is none, or an empty one.
  const NamedProgram* find(ProgramRole role) const noexcept;
  /// Adds a program. Its name is that of no other.
  void add(NamedProgram program) { programs_.push_back(std::move(program)); }
  const std::deque<NamedProgram>& list() const noexcept { return programs_; }
  /// Sets NamedProgram::memory of every program, for the programs as they are now.
  void plan_memory();
  /// Room for so many snapshots of each sequence of `prefill` and `decode` (Engine::keep_snapshot), at least
  /// 0. Programs whose layers have no states take no memory for it.
  void set_snapshots(std::int32_t per_sequence) noexcept { snapshots_ = per_sequence; }
  std::int32_t snapshots() const noexcept { return snapshots_; }

 private:
  std::deque<NamedProgram> programs_;  // references stay valid when one is added
  std::int32_t snapshots_ = 0;
};

}  // namespace strata
