#pragma once

#include <algorithm>
#include <vector>

#include <strata/offload/machine_profile.h>

#include "machine/measure.h"
#include "machine/bench_fixture.h"

namespace strata::cli {

// The parts of measure_machine(), each of which fills its figures and series of the profile.
Status measure_gemm(BenchFixture& fixture, bool quick, MachineProfile& p);
Status measure_attention(BenchFixture& fixture, MachineProfile& p);
/// What a block has beside its products: a norm, an activation, a sum; and what any instruction takes.
Status measure_streaming(BenchFixture& fixture, MachineProfile& p);
Status measure_link(BenchFixture& fixture, bool quick, MachineProfile& p);
/// Needs the link's figures.
Status measure_event_latency(BenchFixture& fixture, MachineProfile& p);
Status measure_ram(BenchFixture& fixture, bool quick, MachineProfile& p);
/// Needs p.cores.
Status measure_optimizer(BenchFixture& fixture, bool quick, MachineProfile& p);
Status measure_disk(BenchFixture& fixture, const MeasureOptions& options, MachineProfile& p);

/// What a run has to ask for. Each needs p.gemm_sizes, and leaves p as it is where it fails.
struct OptionalMeasurement {
  const char* name;
  Status (*measure)(BenchFixture& fixture, MachineProfile& p);
};
/// Those that this device and this build may have.
std::vector<OptionalMeasurement> optional_measurements(const BenchFixture& fixture);

/// Both directions at once carry no more than each alone, and no less than the slower: else it was noise.
inline double combined_rate(double both, double one, double other) {
  return std::clamp(both, std::min(one, other), one + other);
}

}  // namespace strata::cli
