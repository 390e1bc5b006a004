#pragma once

#include <cstdint>

#include <strata/cpuopt/isa.h>
#include <strata/cpuopt/update.h>

namespace strata::bench {

/// The bound of an update: a pass over the same spans that reads what it reads and writes what it writes, and
/// computes nothing (each value is stored as it was read, through an exclusive or with a zero that the
/// compiler does not know).
struct StreamShape {
  cpuopt::MasterLayout layout;
  int moments = 0;  ///< how many
  StateFormat states = StateFormat::fp32;
  bool narrow_gradient = false;  ///< 2 bytes, else 4
};
using StreamKernel = void (*)(const cpuopt::UpdateBlock& block, std::int64_t n);
/// `prefetch`: with a software prefetch, as the update has it. AVX-512 where `isa` is that, else AVX2.
StreamKernel select_stream_kernel(const StreamShape& shape, cpuopt::CpuIsa isa, bool prefetch);

/// Bytes that a step must move for one element: each span it reads, and each it writes.
double necessary_bytes(const StreamShape& shape);

}  // namespace strata::bench
