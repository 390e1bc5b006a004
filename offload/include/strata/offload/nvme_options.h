#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <strata/runtime/units.h>

namespace strata {

class Trace;

enum class IoEngine : std::uint8_t {
  automatic,  ///< io_uring, or threads if the kernel or the build lacks it; see io_description()
  uring,      ///< io_uring, or the error `unsupported`
  threads,    ///< positioned reads and writes through File
};

/// `slots` slots of `slot_bytes` (a multiple of 4096). A class needs one slot for each object and one spare
/// for each write that may be in flight, since a write never overwrites a published generation.
struct SlotClass {
  std::size_t slot_bytes = 0;
  std::uint32_t slots = 0;
};

struct NvmeOptions {
  /// Created if absent. Objects are striped over all dirs in proportion to their rates, so that their
  /// bandwidths add up.
  std::vector<std::string> dirs = {};
  /// One rate per dir; only the ratios matter. Empty: with several dirs each is measured, in a fraction of a
  /// second.
  std::vector<double> path_rates = {};
  std::vector<SlotClass> classes = {};
  IoEngine engine = IoEngine::automatic;
  int queue_depth = 24;  ///< blocks in flight in the ring, per direction and dir
  std::size_t block_bytes =
      4 * kMiB;        ///< larger requests are split into blocks of this size, a multiple of 4096
  bool direct = true;  ///< O_DIRECT where the file system supports it
  int io_threads = 2;  ///< threads per dir of IoEngine::threads
  std::uint32_t max_requests = 64;  ///< in flight; a call that submits one more blocks
  /// The store fails if no block completes for this long while requests are in flight. Longer than any driver
  /// takes to report a device that does not respond.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  Trace* trace = nullptr;  ///< receives tracks with one span per request; outlives the store
};

}  // namespace strata
