#pragma once

#include <span>

#include <strata/graph/program.h>
#include <strata/runtime/backend/backend.h>

namespace strata {

/// One instruction with its operands bound to memory. Views of absent operands have null data.
struct OpCall {
  Op op = {};
  Attrs attrs;
  std::uint32_t accumulate = 0;
  std::span<const TensorView> in;
  std::span<const TensorView> out;
};

/// Queues the op's kernel on `stream` and does not synchronize. Errors: those of the kernel's validation;
/// `unsupported` if the device has no such kernel; `internal` for a move, which has none.
Status launch(const OpCall& call, Backend& backend, Stream& stream);

}  // namespace strata
