#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <strata/runtime/backend.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/thread_pool.h>
#include <strata/runtime/topology.h>

namespace strata::detail {

/// How fresh memory is left: unreachable (address space only), zero, or 0xFF bytes.
enum class Fill : std::uint8_t { unreachable, zero, poison };
inline constexpr int kPoisonByte = 0xFF;

struct HostAllocatorOptions {
  std::size_t device_cap = 0, pinned_cap = 0;  ///< 0: none
  Fill fill = Fill::zero;
  bool huge_pages = true;
  std::size_t quarantine_bytes = 0;  ///< freed memory kept mapped and poisoned
  int numa_node = kAllNumaNodes;
};

/// A buffer, live or freed and still in quarantine.
struct Allocation {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::device;
  std::uint64_t number = 0;
  bool freed = false;
};

/// Buffers under two caps, in exact bytes: anonymous mappings, unless a subclass has another source.
/// Thread-safe; its lock is a leaf.
class HostAllocator {
 public:
  explicit HostAllocator(const HostAllocatorOptions& options) : options_(options) {}
  virtual ~HostAllocator();
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  /// `pool` touches the pages first; it may be null when fill is `unreachable`.
  Result<BufferView> allocate(MemoryKind kind, std::size_t bytes, ThreadPool* pool) STRATA_EXCLUDES(mutex_);
  /// Unmaps the buffer, or poisons it and puts it into quarantine.
  void release(MemoryKind kind, BufferView view) noexcept STRATA_EXCLUDES(mutex_);
  /// Whether quarantine is over its limit; trim() then unmaps the oldest, which no queued work may still use.
  bool needs_trim() const noexcept STRATA_EXCLUDES(mutex_);
  void trim() noexcept STRATA_EXCLUDES(mutex_);

  /// The buffer that holds `p`, if any.
  std::optional<Allocation> find(const void* p) const STRATA_EXCLUDES(mutex_);
  /// "device buffer 3 [0, 4096)", or addresses for memory that is not ours.
  std::string describe(const void* p, std::size_t bytes) const;
  std::size_t live_buffers() const STRATA_EXCLUDES(mutex_);
  std::uint64_t created() const STRATA_EXCLUDES(mutex_);
  /// Errors: `invalid` if `bytes` from `data` on leave the buffer that holds `data`; memory that is not ours
  /// passes.
  Status check_bounds(const char* what, const std::byte* data, std::size_t bytes) const;
  /// The same for both sides of a copy, which must be of one length.
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

/// An exact anonymous mapping, kept out of core dumps and filled as asked. Its pages lie on `numa_node`;
/// where none is named, near the threads of the pool that work them, or in turn on all nodes if those are not
/// bound. A node that cannot be had leaves the pages to first touch. Errors: `out_of_memory` with errno's
/// text.
Result<BufferView> map_memory(std::size_t bytes, const HostAllocatorOptions& options, ThreadPool* pool);
void unmap_memory(BufferView view) noexcept;

std::string_view to_string(MemoryKind kind) noexcept;

}  // namespace strata::detail
