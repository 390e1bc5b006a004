#pragma once

#include <algorithm>
#include <vector>

#include <strata/offload/machine_profile.h>
#include <strata/profile/measure_options.h>

#include "bench_fixture.h"

namespace strata {

// The parts of measure_machine(). Each fills its figures and series in the profile.
Status measure_gemm(BenchFixture& fixture, bool quick, MachineProfile& p);
Status measure_attention(BenchFixture& fixture, MachineProfile& p);
/// The memory-bound kernels of a transformer block (norm, activation, addition), and the time to launch any
/// kernel.
Status measure_streaming(BenchFixture& fixture, MachineProfile& p);
Status measure_link(BenchFixture& fixture, bool quick, MachineProfile& p);
/// Requires the figures of measure_link().
Status measure_event_latency(BenchFixture& fixture, MachineProfile& p);
Status measure_ram(BenchFixture& fixture, MachineProfile& p);
/// Requires p.cores and, on a GPU, the figures of measure_link().
Status measure_optimizer(BenchFixture& fixture, MachineProfile& p);
/// Measures the network of two ranks that are threads.
Status measure_thread_network(BenchFixture& fixture, bool quick, MachineProfile& p);
Status measure_disk(BenchFixture& fixture, const MeasureOptions& options, MachineProfile& p);

/// A kernel that not every GPU or build has. `measure` requires p.gemm_sizes and leaves
/// `p` unchanged if it fails.
struct OptionalMeasurement {
  const char* name;
  Status (*measure)(BenchFixture& fixture, MachineProfile& p);
};
/// The optional measurements that this device and this build support.
std::vector<OptionalMeasurement> optional_measurements(const BenchFixture& fixture);

/// Both directions together are as fast as the slower one at least and as the sum of both at most; anything
/// else is noise of the measurement.
inline double combined_rate(double both, double one, double other) {
  return std::clamp(both, std::min(one, other), one + other);
}

}  // namespace strata
