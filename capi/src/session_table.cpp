#include "session_table.h"

#include <unistd.h>

#include <strata/runtime/str.h>

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

SessionTable::SessionTable() : process_(::getpid()) {}

Result<SessionTable*> SessionTable::of_process() {
  static SessionTable* const table = new SessionTable;
  if (table->process_ == ::getpid()) return table;
  return Status::error(Code::unsupported,
                       str("process ", ::getpid(), " was forked from ", table->process_,
                           ", which uses strata: threads and memory of sessions are not copied. Start "
                           "processes that use strata by spawn (exec)"));
}

strata_session SessionTable::add(std::shared_ptr<SessionSlot> slot) {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    free_.reserve(entries_.size() + 1);  // so that remove() needs no memory
    entries_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  entries_[index].slot = std::move(slot);
  return (strata_session{entries_[index].generation} << 32) | (index + 1);
}

SessionTable::Entry* SessionTable::entry_of(strata_session handle) {
  const std::uint64_t index = (handle & 0xffffffffu) - 1;
  if (index >= entries_.size()) return nullptr;
  Entry& entry = entries_[index];
  return entry.slot != nullptr && entry.generation == handle >> 32 ? &entry : nullptr;
}

std::shared_ptr<SessionSlot> SessionTable::find(strata_session handle) {
  const MutexLock lock(mutex_);
  const Entry* const entry = entry_of(handle);
  return entry == nullptr ? nullptr : entry->slot;
}

void SessionTable::remove(strata_session handle) {
  const MutexLock lock(mutex_);
  Entry* const entry = entry_of(handle);
  if (entry == nullptr) return;
  entry->slot.reset();
  // An entry whose numbers are used up is not used again.
  if (++entry->generation != 0) free_.push_back(static_cast<std::uint32_t>((handle & 0xffffffffu) - 1));
}

}  // namespace strata::capi
