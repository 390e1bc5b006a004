#include "session_slot.h"

namespace strata::capi {

SessionSlot::Lock::~Lock() {
  if (slot_ == nullptr) return;
  slot_->caller_ = std::thread::id{};
  slot_->mutex_.unlock();
}

Result<SessionSlot::Lock> SessionSlot::lock() {
  // Only this thread can have stored its own id.
  if (caller_.load() == std::this_thread::get_id())
    return Status::error(Code::invalid, "the session is called from one of its own callbacks");
  mutex_.lock();
  caller_ = std::this_thread::get_id();
  return Lock(this);
}

}  // namespace strata::capi
