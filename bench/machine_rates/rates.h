#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <strata/runtime/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/json.h>
#include <strata/runtime/thread_pool.h>
#include <strata/runtime/topology.h>

namespace strata::bench {

struct Options {
  std::string only;
  double gib = 0;  ///< bytes of each measurement's buffers; 0: a sixteenth of the usable RAM, 1 GiB at most
  int rounds = 5;
};

struct Bench {
  Options options;
  HostFacts facts;
  Topology topology;
  SteadyClock clock;
  std::size_t bytes = 0;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;  ///< the GPU, or the host where there is none
  bool gpu = false;
};

/// Takes one JSON object, and has printed it when it returns.
using RowSink = std::function<void(const std::string& row)>;

// The parts: each gives its rows as it has measured them. Errors: the backend's.
Status dram(Bench& bench, const RowSink& row);
Status link(Bench& bench, const RowSink& row);
Status peak(Bench& bench, const RowSink& row);
Status matrix(Bench& bench, const RowSink& row);
Status attention_mma(Bench& bench, const RowSink& row);
Status attention_wgmma(Bench& bench, const RowSink& row);
Status attention_cudnn(Bench& bench, const RowSink& row);

/// Median, least and most of `rates`, which are not empty, as {"unit": median, "min": ..., "max": ...}.
std::string summary(const char* unit, std::vector<double> rates);
/// The same of `rounds` calls after one that warms up, each of which does `work` (bytes, FLOPs).
Result<std::string> rate(Bench& bench, const char* unit, double work, const std::function<Status()>& round);
std::string skipped(std::string_view why);

}  // namespace strata::bench
