#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::capi {

/// Errors: `unsupported` in a process that was forked from one that had called this: threads, locks and
/// memory of its objects were not copied.
Status check_process();

/// The objects of one kind in this process, by handle: the kind and the number of an entry and, in the upper
/// half, how many objects it has had, so that a handle of a closed object finds nothing. Thread-safe.
template <class Object>
class HandleTable {
 public:
  /// `kind`: what keeps handles of several tables apart; less than 16.
  explicit HandleTable(std::uint32_t kind) noexcept : kind_(kind << 28) {}

  std::uint64_t add(std::shared_ptr<Object> object) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (free_.empty()) {
      free_.reserve(entries_.size() + 1);  // so that remove() needs no memory
      entries_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    entries_[index].object = std::move(object);
    return (std::uint64_t{entries_[index].generation} << 32) | kind_ | (index + 1);
  }
  /// Null if the handle is stale or was never one.
  std::shared_ptr<Object> find(std::uint64_t handle) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const Entry* const entry = entry_of(handle);
    return entry == nullptr ? nullptr : entry->object;
  }
  /// Returns the object, whose handle is stale from now on.
  std::shared_ptr<Object> remove(std::uint64_t handle) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Entry* const entry = entry_of(handle);
    if (entry == nullptr) return nullptr;
    std::shared_ptr<Object> object = std::move(entry->object);
    // An entry whose numbers are used up is not used again.
    if (++entry->generation != 0) free_.push_back(index_of(handle));
    return object;
  }

 private:
  struct Entry {
    std::uint32_t generation = 1;
    std::shared_ptr<Object> object;
  };
  std::uint32_t index_of(std::uint64_t handle) const noexcept {
    return (static_cast<std::uint32_t>(handle) ^ kind_) - 1;
  }
  Entry* entry_of(std::uint64_t handle) STRATA_REQUIRES(mutex_) {
    if (index_of(handle) >= entries_.size()) return nullptr;
    Entry& entry = entries_[index_of(handle)];
    return entry.object != nullptr && entry.generation == handle >> 32 ? &entry : nullptr;
  }

  const std::uint32_t kind_;
  Mutex mutex_;
  std::vector<Entry> entries_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ STRATA_GUARDED_BY(mutex_);
};

/// The table of a kind. Never destroyed: objects may be closed by destructors of static objects. Errors:
/// those of check_process().
template <class Object, std::uint32_t kKind>
Result<HandleTable<Object>*> table_of_process() {
  STRATA_TRY(check_process());
  static auto* const table = new HandleTable<Object>(kKind);
  return table;
}

}  // namespace strata::capi
