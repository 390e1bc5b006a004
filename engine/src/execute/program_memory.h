#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/engine/run_plan.h>
#include <strata/session/run_memory.h>

namespace strata::detail {

/// The memory of a run's programs in addition to the states: the arena and the cache on the device, and in
/// pinned memory two input slots, losses and other outputs, logits, offloaded activations and the results of
/// a program. It is the driver's memory of a session. The cache follows the activations of the programs that
/// infer or extend sequences, in memory where others may have theirs.
DriverMemory plan_driver_memory(const RunPlan& plan);
/// Whether activations of the program overwrite the cache.
bool overwrites_cache(const RunPlan& plan, const PlannedProgram& planned) noexcept;

/// Addresses in the driver's memory of a run.
class ProgramMemory {
 public:
  ProgramMemory(const RunPlan& plan, const RunMemory& memory);

  std::byte* arena(const Operand& operand) const noexcept { return arena_ + operand.offset; }
  std::byte* state(const Operand& operand) const noexcept { return states_ + operand.offset; }
  std::byte* states() const noexcept { return states_; }
  /// The snapshots of the slots' states, those of a slot one behind the other.
  std::byte* snapshots() const noexcept { return snapshots_; }
  /// Address of an operand that is offloaded to the host.
  std::byte* host(const Operand& operand) const noexcept { return activations_ + operand.offset; }
  /// One of two slots, which hold a program's inputs one after the other.
  std::byte* input_slot(std::size_t slot) const noexcept { return inputs_ + slot * input_slot_bytes_; }
  float* losses() const noexcept { return losses_; }  ///< one per micro-batch
  /// Outputs other than losses and logits, one pass of a step after the other.
  std::byte* outputs() const noexcept { return outputs_; }
  float* logits() const noexcept { return logits_; }
  std::byte* result(const LoweredProgram::ResultValue& result) const noexcept {
    return results_ + result.host_offset;
  }

 private:
  std::size_t input_slot_bytes_;
  std::byte *arena_, *states_, *snapshots_, *inputs_, *outputs_, *activations_, *results_;
  float *losses_, *logits_;
};

}  // namespace strata::detail
