#pragma once

#include <map>

#include <strata/runtime/thread_annotations.h>

#include "host/host_allocator.h"

namespace strata::detail {

/// Device buffers from cudaMalloc, pinned ones from registered mappings; the caller has set the device.
class CudaAllocator final : public HostAllocator {
 public:
  /// `registration_bytes`: the most that is registered at once.
  CudaAllocator(const HostAllocatorOptions& options, std::size_t registration_bytes)
      : HostAllocator(options), registration_bytes_(registration_bytes) {}

  /// How many of the `bytes` from `p` on a copy may take: a registration, or device memory, to its end.
  std::size_t max_copy_bytes(const std::byte* p, std::size_t bytes) const;

 protected:
  Result<BufferView> allocate_raw(MemoryKind kind, std::size_t bytes, ThreadPool* pool) override;
  void free_raw(MemoryKind kind, BufferView view) noexcept override;

 private:
  Result<BufferView> allocate_device(std::size_t bytes) STRATA_EXCLUDES(mutex_);
  Result<BufferView> allocate_pinned(std::size_t bytes, ThreadPool* pool);
  void unregister(BufferView view) const noexcept;

  const std::size_t registration_bytes_;
  Mutex mutex_;
  std::map<std::byte*, void*> padded_
      STRATA_GUARDED_BY(mutex_);  // buffers that start inside their allocation
};

}  // namespace strata::detail
