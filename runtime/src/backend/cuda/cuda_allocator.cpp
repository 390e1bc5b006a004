#include "backend/cuda/cuda_allocator.h"

#include <algorithm>
#include <cstdio>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "backend/cuda/cuda_error.h"

namespace strata::detail {
namespace {

constexpr std::size_t kAlignBytes = 4096;

void report(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading)
    return;  // cudaErrorCudartUnloading: the process is exiting
  std::fprintf(stderr, "strata: %s: %s\n", what, cudaGetErrorName(error));
  (void)cudaGetLastError();
}

}  // namespace

Result<BufferView> CudaAllocator::allocate_raw(MemoryKind kind, std::size_t bytes, ThreadPool* pool) {
  return kind == MemoryKind::device ? allocate_device(bytes) : allocate_pinned(bytes, pool);
}

// cudaMalloc only guarantees 256-byte alignment and packs small buffers. A buffer that is not 4096-aligned is
// allocated again with padding, so the large slabs, which are aligned anyway, keep their exact size.
Result<BufferView> CudaAllocator::allocate_device(std::size_t bytes) {
  void* p = nullptr;
  STRATA_CUDA_TRY(cudaMalloc(&p, bytes));
  if (reinterpret_cast<std::uintptr_t>(p) % kAlignBytes == 0)
    return BufferView{static_cast<std::byte*>(p), bytes};
  STRATA_CUDA_TRY(cudaFree(p));
  STRATA_CUDA_TRY(cudaMalloc(&p, bytes + kAlignBytes));
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto* const data = static_cast<std::byte*>(p) + (round_up(static_cast<std::size_t>(at), kAlignBytes) - at);
  const MutexLock lock(mutex_);
  padded_[data] = p;
  return BufferView{data, bytes};
}

Result<BufferView> CudaAllocator::allocate_pinned(std::size_t bytes, ThreadPool* pool) {
  STRATA_TRY_ASSIGN(const BufferView view, map_memory(bytes, options(), pool));
  for (std::size_t done = 0; done < bytes; done += registration_bytes_) {
    const std::size_t n = std::min(registration_bytes_, bytes - done);
    const cudaError_t error =
        cudaHostRegister(view.data + done, n, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess) continue;
    unregister({view.data, done});
    unmap_memory(view);
    Status status = cuda_failure(error, "cudaHostRegister", __FILE__, __LINE__);
    return std::move(status).annotate(str("pinning ", bytes, " bytes"));
  }
  return view;
}

void CudaAllocator::unregister(BufferView view) const noexcept {
  for (std::size_t done = 0; done < view.bytes; done += registration_bytes_)
    report(cudaHostUnregister(view.data + done), "unpinning host memory");
}

std::size_t CudaAllocator::max_copy_bytes(const std::byte* p, std::size_t bytes) const {
  const std::optional<Allocation> allocation = find(p);
  if (!allocation || allocation->kind != MemoryKind::pinned) return bytes;
  const auto into = static_cast<std::size_t>(p - allocation->data) % registration_bytes_;
  return std::min(bytes, registration_bytes_ - into);
}

void CudaAllocator::free_raw(MemoryKind kind, BufferView view) noexcept {
  if (kind == MemoryKind::pinned) {
    unregister(view);
    unmap_memory(view);
    return;
  }
  void* p = view.data;
  {
    const MutexLock lock(mutex_);
    if (const auto it = padded_.find(view.data); it != padded_.end()) {
      p = it->second;
      padded_.erase(it);
    }
  }
  report(cudaFree(p), "freeing device memory");
}

}  // namespace strata::detail
