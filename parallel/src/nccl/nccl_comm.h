#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

#include "nccl/nccl_api.h"

namespace strata::detail {

/// One non-blocking communicator of NCCL. Once anything has failed it is aborted, which ends the kernels that
/// wait for other ranks, and stays failed. Thread-safe; the two threads that call it are the one that queues
/// and the one that watches.
class NcclComm {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using PeerFailure = std::function<Status()>;

  NcclComm(std::shared_ptr<const NcclApi> api, int rank, int size, Milliseconds timeout)
      : api_(std::move(api)), rank_(rank), size_(size), timeout_(timeout) {}
  /// Aborts, unless close() was called.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const std::shared_ptr<const NcclApi>& api() const noexcept { return api_; }
  Milliseconds timeout() const noexcept { return timeout_; }

  /// Begins to join the communicator `id`. Once, before all else.
  Status start(const NcclUniqueId& id);
  /// Waits until all of its ranks have joined it, or `peer_failure`, as in NcclOptions, says that one has
  /// failed.
  Status wait_until_joined(const PeerFailure& peer_failure);
  /// Every rank calls it, for a communicator of those with the same `color`; no work may be under way. Waits
  /// for all ranks.
  Result<std::unique_ptr<NcclComm>> split(int color, int rank, int size);

  /// Runs `body(api, comm)`, which queues operations and returns an NcclOutcome, as one group of NCCL, and
  /// waits until NCCL has started it.
  template <class Body>
  Status queue_group(const Body& body) {
    {
      const MutexLock lock(calls_mutex_);
      const ThirdPartyScope scope;
      if (comm_ == nullptr) return has_ended();
      NcclOutcome outcome{"ncclGroupStart", api_->group_start()};
      if (!outcome.is_error()) {
        outcome = body(*api_, comm_);
        const NcclOutcome end{"ncclGroupEnd", api_->group_end()};  // also after an error: groups are nested
        if (!outcome.is_error()) outcome = end;
      }
      if (outcome.is_error()) return error(outcome);
    }
    return wait_until_ready("ncclGroupEnd", timeout_);
  }

  /// Returns the error that NCCL has noticed since: an error of this rank's network, or that another rank is
  /// gone. Cheap.
  Status check();

  /// Ok, or why nothing works any more.
  Status failure();
  bool has_failed() const noexcept { return failed_.load(); }
  /// Aborts. Returns why the communicator has failed: `why` with code `lost_peer`, or what came before.
  Status fail(const Status& why);
  /// Ends the communicator; this rank's work in it has ended. What the others still receive from it arrives.
  void close();

 private:
  Status wait_until_ready(const char* function, Milliseconds limit, const PeerFailure& peer_failure = {});
  Result<bool> is_ready(const char* function);
  Status error(const NcclOutcome& outcome) STRATA_REQUIRES(calls_mutex_);
  Status has_ended();
  void abort();

  const std::shared_ptr<const NcclApi> api_;
  const int rank_, size_;
  const Milliseconds timeout_;

  // Held over calls of NCCL, which return at once. ncclCommAbort may take its time.
  Mutex calls_mutex_;
  void* comm_ STRATA_GUARDED_BY(calls_mutex_) = nullptr;   // null before it has joined, and when it has ended
  void* child_ STRATA_GUARDED_BY(calls_mutex_) = nullptr;  // NCCL writes it when a split is complete

  Mutex
      failure_mutex_;  // never held over a call: the end of queued work takes it, and abort() waits for that
  Status failure_ STRATA_GUARDED_BY(failure_mutex_);
  std::atomic<bool> failed_{false};
};

}  // namespace strata::detail
