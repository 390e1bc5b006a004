#pragma once

#include <cstdint>

#include <strata/simd/isa.h>
#include <strata/cpuopt/update.h>

namespace strata::bench {

/// Shape of the bound of an update: a pass that reads and writes the same spans as the update, but computes
/// nothing. Each value is stored as it was read, after an exclusive or with a zero that the compiler does not
/// know.
struct StreamShape {
  cpuopt::MasterLayout layout;
  int moments = 0;  ///< number of moments
  StateFormat states = StateFormat::fp32;
  bool narrow_gradient = false;  ///< 2 bytes per gradient, otherwise 4
};
using StreamKernel = void (*)(const cpuopt::UpdateBlock& block, std::int64_t n);
/// `prefetch`: with software prefetches, as in the update. Uses AVX-512 if `isa` is that, otherwise AVX2.
StreamKernel select_stream_kernel(const StreamShape& shape, simd::CpuIsa isa, bool prefetch);

/// Bytes that a step must move per element: every span that it reads and every span that it writes.
double necessary_bytes(const StreamShape& shape);

}  // namespace strata::bench
