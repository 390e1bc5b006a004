#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

#include "nccl/nccl_comm.h"

namespace strata::detail {

/// The work that a group has queued, and how much of it has ended. Queued work refers to it: call wait()
/// before it is destroyed.
class NcclWork {
 public:
  NcclWork(Backend& backend, NcclComm& comm) : backend_(backend), comm_(comm) {}
  /// Queues the end of a collective: it fails the stream if the communicator has failed, since NCCL's kernels
  /// then end without a result.
  Status queue_end(Stream& stream);
  std::uint64_t ended() const noexcept { return ended_.load(); }
  /// Whether all that was queued is known to have ended.
  bool is_idle() const noexcept { return ended_.load() + skipped_.load() == queued_.load(); }
  /// The same, after asking the backend: the end is skipped where a stream has failed before.
  bool look_whether_idle();
  /// Waits for that.
  void wait();

 private:
  /// The state of a HostCall.
  struct Ending {
    NcclWork* work;
  };
  static Status end(const Ending& ending, ThreadPool& pool);
  std::vector<Event> last_events();

  Backend& backend_;
  NcclComm& comm_;
  std::atomic<std::uint64_t> queued_{0}, ended_{0}, skipped_{0};
  Mutex mutex_;
  std::vector<Event> last_ STRATA_GUARDED_BY(mutex_);  // the last event of each stream
};

}  // namespace strata::detail
