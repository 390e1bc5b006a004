#pragma once

#include <cstdint>

#include <strata/engine/lowering.h>

namespace strata::detail {

/// The time that an instruction takes on a simulated machine if nothing else slows it, in nanoseconds.
class InstructionCosts {
 public:
  virtual ~InstructionCosts() = default;
  virtual std::int64_t instruction_ns(const LoweredInstr& instr, double flops) const = 0;
};

}  // namespace strata::detail
