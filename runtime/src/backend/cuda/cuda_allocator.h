#pragma once

#include <map>

#include <strata/runtime/thread_annotations.h>

#include "backend/host/host_allocator.h"

namespace strata::detail {

/// Allocates device buffers with cudaMalloc, and pinned buffers as mappings registered with CUDA. The caller
/// must have selected the device.
class CudaAllocator final : public HostAllocator {
 public:
  /// `registration_bytes` is the maximum size of one cudaHostRegister call.
  CudaAllocator(const HostAllocatorOptions& options, std::size_t registration_bytes)
      : HostAllocator(options), registration_bytes_(registration_bytes) {}

  /// How many of the `bytes` from `p` on one copy may transfer: a copy must not cross from one registration
  /// into the next.
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
      STRATA_GUARDED_BY(mutex_);  // device buffers that start inside their allocation
};

}  // namespace strata::detail
