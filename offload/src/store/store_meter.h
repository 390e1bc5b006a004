#pragma once

#include <array>
#include <cstdint>

#include <strata/offload/object_store.h>

#include "store/io/busy_time.h"
#include "store/request_table.h"
#include "store/store_trace.h"

namespace strata::detail {

/// The reports of a store about its requests: counters, busy times and spans in a trace. Guarded by its
/// owner.
class StoreMeter {
 public:
  StoreMeter(Trace* trace, std::uint64_t files_opened) : trace_(trace) {
    counters_.files_opened = files_opened;
  }

  void begin(const StoreRequest& request) noexcept {
    busy_time_[request.write ? 1 : 0].begin(request.begin_ns);
    if (request.write) counters_.endurance_bytes += request.bytes;
  }
  void read_again() noexcept { ++counters_.read_retries; }
  void bad_slot() noexcept { ++counters_.bad_slots; }
  void write_again(std::uint64_t bytes) noexcept {
    ++counters_.write_retries;
    counters_.endurance_bytes += bytes;
  }
  void end(const StoreRequest& request, bool is_ok, std::int64_t now_ns) noexcept {
    busy_time_[request.write ? 1 : 0].end(now_ns);
    trace_.record(request, now_ns);
    if (!is_ok) return;
    if (request.write) {
      ++counters_.writes;
      counters_.bytes_written += request.bytes;
    } else {
      ++counters_.reads;
      counters_.bytes_read += request.bytes;
      counters_.verified_bytes += request.bytes;
    }
  }

  NvmeCounters counters(std::int64_t now_ns) const noexcept {
    NvmeCounters counters = counters_;
    counters.read_busy_ns = busy_time_[0].until(now_ns);
    counters.write_busy_ns = busy_time_[1].until(now_ns);
    return counters;
  }

 private:
  NvmeCounters counters_;
  std::array<BusyTime, 2> busy_time_;  // the busy times of reads and of writes
  StoreTrace trace_;
};

}  // namespace strata::detail
