#pragma once

#include <map>

#include <strata/runtime/thread_annotations.h>

#include "host/host_memory.h"

namespace strata::detail {

/// Device buffers from cudaMalloc, pinned ones from registered mappings; the caller has set the device.
class CudaMemory final : public HostMemory {
 public:
  /// `registration_bytes`: the most that is registered at once.
  CudaMemory(const HostMemoryOptions& options, std::size_t registration_bytes)
      : HostMemory(options), registration_bytes_(registration_bytes) {}

  /// How many of the `bytes` from `p` on a copy may take: a registration, or device memory, to its end.
  std::size_t copyable(const std::byte* p, std::size_t bytes) const;

 protected:
  Result<BufferView> acquire(MemoryKind kind, std::size_t bytes, ThreadPool* pool) override;
  void give_up(MemoryKind kind, BufferView view) noexcept override;

 private:
  Result<BufferView> acquire_device(std::size_t bytes) STRATA_EXCLUDES(mutex_);
  Result<BufferView> acquire_pinned(std::size_t bytes, ThreadPool* pool);
  void unregister(BufferView view) const noexcept;

  const std::size_t registration_bytes_;
  Mutex mutex_;
  std::map<std::byte*, void*> padded_
      STRATA_GUARDED_BY(mutex_);  // buffers that start inside their allocation
};

}  // namespace strata::detail
