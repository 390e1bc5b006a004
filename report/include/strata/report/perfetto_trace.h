#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <strata/report/run_trace.h>

namespace strata {

/// Steps, both included.
struct TraceSteps {
  std::int64_t first = 0, last = std::numeric_limits<std::int64_t>::max();
  bool all() const noexcept { return first == 0 && last == std::numeric_limits<std::int64_t>::max(); }
};
/// "10-12", "10-" or "10", as in log.trace; empty: all. Errors: `invalid`.
Result<TraceSteps> parse_trace_steps(std::string_view text);

/// A trace for Perfetto, and figures about it.
struct PerfettoTrace {
  struct Lane {
    int rank = 0;
    std::string name;
    std::size_t slices = 0;
  };
  std::string json;
  std::vector<Lane> lanes;
  std::array<std::size_t, 3> flows{};          ///< indexed by PayloadFlow::Kind
  std::size_t arrows = 0;                      ///< a flow of n slices has n - 1
  std::int64_t first_step = 0, last_step = 0;  ///< 0: the trace has no whole step
  std::uint64_t dropped = 0;                   ///< spans that the trace of the run had no room for
};

/// The chosen steps of a run as Chrome trace events, which ui.perfetto.dev and chrome://tracing open. Ranks
/// are processes and lanes are threads. Moves are named by their payload, and flows lead from each read, copy
/// or work to the next lane that its payload's contents come to. Errors: `not_found` if the trace has none of
/// the steps.
Result<PerfettoTrace> perfetto_trace(const std::vector<RankTrace>& ranks, const TraceSteps& steps);

/// Describes what was written, for a terminal and as JSON. `file`: where to.
std::string perfetto_text(const PerfettoTrace& trace, const std::string& file);
std::string perfetto_summary_json(const PerfettoTrace& trace, const std::string& file);

}  // namespace strata
