#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <sys/types.h>

#include <strata.h>
#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

#include "c_session.h"

namespace strata::capi {

/// A session behind a handle. Calls to it come one after the other.
class SessionSlot {
 public:
  explicit SessionSlot(std::unique_ptr<CSession> session) : session_(std::move(session)) {}

  /// The right to call the session, until it is destroyed.
  class Lock {
   public:
    Lock(Lock&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    ~Lock();
    explicit operator bool() const noexcept { return slot_->session_ != nullptr; }
    CSession& session() const noexcept { return *slot_->session_; }
    /// Destroys the session.
    void close() const noexcept { slot_->session_.reset(); }

   private:
    friend class SessionSlot;
    explicit Lock(SessionSlot* slot) noexcept : slot_(slot) {}
    SessionSlot* slot_;
  };
  /// Waits for calls of other threads. The lock is empty if the session has been closed. Errors: `invalid` if
  /// the thread is in a callback of this session.
  Result<Lock> lock();

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> caller_{};
  std::unique_ptr<CSession> session_;
};

/// The sessions of the process, by handle: the number of an entry and, in the upper half, how many sessions
/// it has had, so that a handle of a closed session finds nothing. Thread-safe.
class SessionTable {
 public:
  /// Never destroyed: sessions may be closed by destructors of static objects. Errors: `unsupported` in a
  /// process that was forked from one with a table: threads, locks and memory of sessions were not copied.
  static Result<SessionTable*> of_process();

  strata_session add(std::shared_ptr<SessionSlot> slot) STRATA_EXCLUDES(mutex_);
  /// Null if the handle is stale or was never one.
  std::shared_ptr<SessionSlot> find(strata_session handle) STRATA_EXCLUDES(mutex_);
  void remove(strata_session handle) STRATA_EXCLUDES(mutex_);

 private:
  SessionTable();
  struct Entry {
    std::uint32_t generation = 1;
    std::shared_ptr<SessionSlot> slot;
  };
  Entry* entry_of(strata_session handle) STRATA_REQUIRES(mutex_);

  const pid_t process_;
  Mutex mutex_;
  std::vector<Entry> entries_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::capi
