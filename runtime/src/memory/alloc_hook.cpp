// Replaces the global operator new in programs that count their allocations or make one fail (the CLI, engine
// tests).
#include <cstddef>
#include <cstdlib>
#include <new>

#include <strata/runtime/memory/alloc_counter.h>

namespace {

void* counted_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  if (!strata::AllocCounter::note()) return nullptr;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(bytes == 0 ? 1 : bytes)
             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* counted(std::size_t bytes, std::size_t alignment) {
  void* p = counted_or_null(bytes, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
// The nothrow forms call the ones above by default, but a sanitizer replaces them with its own; the memory
// would then come from another allocator than the one our delete frees to.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
