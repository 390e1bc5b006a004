#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/engine/run_plan.h>
#include <strata/session/run_memory.h>

namespace strata::detail {

/// The memory of a run's programs in addition to the states: the arena and the cache on the device, and in
/// pinned memory two input slots, losses, logits, offloaded activations and the results of a program. It is
/// the driver's memory of a session.
DriverMemory plan_driver_memory(const RunPlan& plan);

/// Addresses in the driver's memory of a run.
class ProgramMemory {
 public:
  ProgramMemory(const RunPlan& plan, const RunMemory& memory);

  std::byte* arena(const Operand& operand) const noexcept { return arena_ + operand.offset; }
  std::byte* state(const Operand& operand) const noexcept { return states_ + operand.offset; }
  /// Address of an operand that is offloaded to the host.
  std::byte* host(const Operand& operand) const noexcept { return activations_ + operand.offset; }
  /// One of two slots, which hold a program's inputs one after the other.
  std::byte* input_slot(std::size_t slot) const noexcept { return inputs_ + slot * input_slot_bytes_; }
  float* losses() const noexcept { return losses_; }  ///< one per micro-batch
  float* logits() const noexcept { return logits_; }
  std::byte* result(const LoweredProgram::ResultValue& result) const noexcept {
    return results_ + result.host_offset;
  }

 private:
  std::size_t input_slot_bytes_;
  std::byte *arena_, *states_, *inputs_, *activations_, *results_;
  float *losses_, *logits_;
};

}  // namespace strata::detail
