#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <strata/runtime/status.h>

#include "c_session.h"
#include "handle_table.h"

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

/// The sessions of the process.
inline Result<HandleTable<SessionSlot>*> session_table() { return table_of_process<SessionSlot, 0>(); }

}  // namespace strata::capi
