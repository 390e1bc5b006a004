#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/tensor_view.h>
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
  Stream compute;               ///< the stream on which kernels are measured
  std::vector<Buffer> buffers;  ///< what random_tensor() and device_memory() made
};

/// Prints one JSON object before it returns.
using RowSink = std::function<void(const std::string& row)>;

/// Median, minimum and maximum of `rates`, which must not be empty, as {"unit": median, "min": ..., "max":
/// ...}.
std::string summary(const char* unit, std::vector<double> rates);
/// The same for `rounds` calls after a warm-up call, each of which does `work` (bytes or FLOPs).
Result<std::string> rate(Bench& bench, const char* unit, double work, const std::function<Status()>& round);
/// The same for work that `queue` queues on the device's compute stream: timed by its events around the work
/// on a GPU, by the clock of its worker on the host. On a GPU it is queued ten times in a row.
Result<std::string> queued_rate(Bench& bench, const char* unit, double work,
                                const std::function<Status()>& queue);
std::string skipped(std::string_view why);

/// Device memory with standard normal values in bf16 or f32. A GPU's power consumption, and so its clock
/// rate, depends on the bits of the data.
Result<TensorView> random_tensor(Bench& bench, const Shape& shape, DType dtype);
/// Device memory that lives until release().
Result<BufferView> device_memory(Bench& bench, std::size_t bytes);
void release(Bench& bench);

/// A part of a program of rates. It passes its rows to `row` as soon as they are measured. Errors: those of
/// the backend.
struct Part {
  const char* name;
  Status (*measure)(Bench& bench, const RowSink& row);
};
/// Parses the options and runs the parts. Lines of JSON go to stdout, each as soon as it is measured, so that
/// an interrupted run keeps its results. The first line is {"machine": {...}}; the others are {"part": NAME,
/// "row": {...}}, where a row that cannot be measured has the reason in "skipped". A part that failed ends
/// with {"part": NAME, "error": "..."}, and the exit code is 1.
int run_parts(int argc, char** argv, const char* about, std::span<const Part> parts);

}  // namespace strata::bench
