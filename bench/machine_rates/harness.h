#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/threads/topology.h>

namespace strata::bench {

struct Options {
  std::string only;
  double gib = 0;  ///< GiB of each measurement's buffers; 0: a sixteenth of the usable RAM, at most 1 GiB
  int rounds = 5;
};

struct Bench {
  Options options;
  HostFacts facts;
  Topology topology;
  SteadyClock clock;
  std::size_t bytes = 0;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;  ///< the GPU, or the host if there is none
  bool gpu = false;
};

/// Prints one JSON object before it returns.
using RowSink = std::function<void(const std::string& row)>;

// The parts. Each passes its rows to `row` as soon as they are measured. Errors: those of the backend.
Status dram(Bench& bench, const RowSink& row);
Status link(Bench& bench, const RowSink& row);
Status peak(Bench& bench, const RowSink& row);
Status matrix(Bench& bench, const RowSink& row);
Status attention_mma(Bench& bench, const RowSink& row);
Status attention_wgmma(Bench& bench, const RowSink& row);
Status attention_cudnn(Bench& bench, const RowSink& row);

/// Median, minimum and maximum of `rates`, which must not be empty, as {"unit": median, "min": ..., "max":
/// ...}.
std::string summary(const char* unit, std::vector<double> rates);
/// The same for `rounds` calls after a warm-up call, each of which does `work` (bytes or FLOPs).
Result<std::string> rate(Bench& bench, const char* unit, double work, const std::function<Status()>& round);
std::string skipped(std::string_view why);

}  // namespace strata::bench
