#pragma once

#include <map>

#include <strata/runtime/thread_annotations.h>

#include "host/host_memory.h"

namespace strata::detail {

/// Device buffers from cudaMalloc, pinned ones from registered mappings; the caller has set the device.
class CudaMemory final : public HostMemory {
 public:
  using HostMemory::HostMemory;

 protected:
  Result<BufferView> acquire(MemoryKind kind, std::size_t bytes, ThreadPool* pool) override;
  void give_up(MemoryKind kind, BufferView view) noexcept override;

 private:
  Result<BufferView> acquire_device(std::size_t bytes) STRATA_EXCLUDES(mutex_);
  Result<BufferView> acquire_pinned(std::size_t bytes, ThreadPool* pool);

  Mutex mutex_;
  std::map<std::byte*, void*> padded_
      STRATA_GUARDED_BY(mutex_);  // buffers that start inside their allocation
};

}  // namespace strata::detail
