#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/threads/topology.h>

namespace strata::detail {

/// The contents of fresh memory: inaccessible (address space only), zeros, or 0xFF bytes.
enum class Fill : std::uint8_t { unreachable, zero, poison };
inline constexpr int kPoisonByte = 0xFF;

struct HostAllocatorOptions {
  std::size_t device_cap = 0, pinned_cap = 0;  ///< 0: no cap
  Fill fill = Fill::zero;
  bool huge_pages = true;
  std::size_t quarantine_bytes = 0;  ///< freed memory that stays mapped and poisoned
  int numa_node = kAllNumaNodes;
};

/// A buffer that is live, or freed and in quarantine.
struct Allocation {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::device;
  std::uint64_t number = 0;
  bool freed = false;
};

/// Allocates buffers under two caps, in exact bytes. They are anonymous mappings unless a subclass has
/// another source. Thread-safe; its lock is a leaf.
class HostAllocator {
 public:
  explicit HostAllocator(const HostAllocatorOptions& options) : options_(options) {}
  virtual ~HostAllocator();
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  /// `pool` touches the pages first; it may be null if fill is `unreachable`.
  Result<BufferView> allocate(MemoryKind kind, std::size_t bytes, ThreadPool* pool) STRATA_EXCLUDES(mutex_);
  /// Unmaps the buffer, or poisons it and puts it into quarantine.
  void release(MemoryKind kind, BufferView view) noexcept STRATA_EXCLUDES(mutex_);
  /// Forgets the buffer, which stays mapped and charged.
  void abandon(BufferView view) noexcept STRATA_EXCLUDES(mutex_);
  /// Whether the quarantine exceeds its limit. trim() then unmaps the oldest buffers in it, which queued work
  /// must no longer use.
  bool needs_trim() const noexcept STRATA_EXCLUDES(mutex_);
  void trim() noexcept STRATA_EXCLUDES(mutex_);

  /// The buffer that contains `p`, if any.
  std::optional<Allocation> find(const void* p) const STRATA_EXCLUDES(mutex_);
  /// "device buffer 3 [0, 4096)", or addresses for memory that was not allocated here.
  std::string describe(const void* p, std::size_t bytes) const;
  std::size_t live_buffers() const STRATA_EXCLUDES(mutex_);
  std::uint64_t created() const STRATA_EXCLUDES(mutex_);
  /// Errors: `invalid` if `bytes` from `data` on leave the buffer that contains `data`. Memory that was not
  /// allocated here passes.
  Status check_bounds(const char* what, const std::byte* data, std::size_t bytes) const;
  /// Checks both sides of a copy, which must have the same size.
  Status check_copy(BufferView dst, ConstBufferView src) const;

 protected:
  virtual Result<BufferView> allocate_raw(MemoryKind kind, std::size_t bytes, ThreadPool* pool);
  virtual void free_raw(MemoryKind kind, BufferView view) noexcept;
  const HostAllocatorOptions& options() const noexcept { return options_; }

 private:
  Status charge(MemoryKind kind, std::size_t bytes) STRATA_EXCLUDES(mutex_);
  void uncharge(MemoryKind kind, std::size_t bytes) STRATA_EXCLUDES(mutex_);

  const HostAllocatorOptions options_;
  mutable Mutex mutex_;
  std::map<const std::byte*, Allocation> allocations_ STRATA_GUARDED_BY(mutex_);
  std::deque<const std::byte*> quarantine_ STRATA_GUARDED_BY(mutex_);
  std::size_t quarantined_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  std::size_t used_[2] STRATA_GUARDED_BY(mutex_) = {0, 0};
  std::size_t live_ STRATA_GUARDED_BY(mutex_) = 0;
  std::uint64_t created_ STRATA_GUARDED_BY(mutex_) = 0;
};

/// Creates an anonymous mapping of exactly `bytes`, excluded from core dumps and filled as asked. Its pages
/// are on `numa_node`. If that is kAllNumaNodes, they are local to the pool's threads that process them, or
/// interleaved over all nodes if those threads are not bound. If the node cannot be used, first touch
/// decides. Errors: `out_of_memory` with errno's text.
Result<BufferView> map_memory(std::size_t bytes, const HostAllocatorOptions& options, ThreadPool* pool);
void unmap_memory(BufferView view) noexcept;

std::string_view to_string(MemoryKind kind) noexcept;

}  // namespace strata::detail
