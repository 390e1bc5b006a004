#pragma once

#include <span>

#include <strata/graph/program.h>
#include <strata/runtime/backend.h>

namespace strata {

/// One instruction with its operands bound to memory. Views of values that are not given have null data.
struct OpCall {
  Op op = Op::add;
  Attrs attrs;
  std::uint32_t accumulate = 0;
  std::span<const TensorView> in;
  std::span<const TensorView> out;
};

/// Queues the op's kernel on `stream`; the one place that knows which kernel an op is. Does not synchronize.
/// Errors: those of the kernel's validation; `unsupported` where the device has no kernel.
Status launch(const OpCall& call, Backend& backend, Stream& stream);

}  // namespace strata
