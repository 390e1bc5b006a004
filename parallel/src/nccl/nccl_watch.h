#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include <strata/runtime/thread_annotations.h>

#include "nccl/nccl_comm.h"
#include "nccl/nccl_work.h"

namespace strata::detail {

/// A thread that fails the communicator when NCCL has noticed an error, or when no queued collective has
/// ended for the timeout. So nobody waits for ever, whatever other threads do.
class NcclWatch {
 public:
  /// `peer_failure` as in NcclOptions.
  NcclWatch(NcclComm& comm, NcclWork& work, std::function<Status()> peer_failure);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void run() noexcept;
  Status look();

  NcclComm& comm_;
  NcclWork& work_;
  const std::function<Status()> peer_failure_;
  std::uint64_t ended_ = 0;  // at the last look, which the thread alone touches; like its time
  Clock::time_point progressed_at_ = Clock::now();

  Mutex mutex_;
  Condition changed_;
  bool stop_ STRATA_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: ends before anything above is destroyed
};

}  // namespace strata::detail
