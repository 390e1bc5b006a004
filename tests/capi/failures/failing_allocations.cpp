// Replaces operator new and delete, and decides which event fails.
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "capi/failures/failures.h"

namespace strata::test {
namespace {

std::atomic<Failure> chosen{Failure::none};
std::atomic<std::uint64_t> nth{0}, counted{0};
std::atomic<bool> going_on{false}, failed{false}, uring_refused{false};
std::atomic<std::int64_t> n_allocations{0}, n_bytes{0}, n_mapped{0};
constinit thread_local bool of_test = false;
constinit thread_local bool in_call = false;

}  // namespace

void start_failures(const FailureAt& at) noexcept {
  chosen = Failure::none;
  nth = at.nth;
  counted = 0;
  going_on = at.goes_on;
  failed = false;
  chosen = at.kind;
}
void stop_failures() noexcept { chosen = Failure::none; }
bool has_failed() noexcept { return failed; }
std::uint64_t events() noexcept { return counted; }
void refuse_uring(bool refused) noexcept { uring_refused = refused; }
bool is_uring_refused() noexcept { return uring_refused; }

bool fails(Failure kind) noexcept {
  if (chosen.load(std::memory_order_relaxed) != kind || (of_test && !in_call)) return false;
  const std::uint64_t number = counted.fetch_add(1) + 1;
  if (number != nth && !(number > nth && going_on)) return false;
  failed = true;
  return true;
}

CallScope::CallScope() noexcept { in_call = true; }
CallScope::~CallScope() {
  in_call = false;
  if (failed) going_on = false;
}
void mark_test_thread() noexcept { of_test = true; }

Held held() noexcept { return {n_allocations, n_bytes, n_mapped}; }
void note_mapped(std::int64_t bytes) noexcept { n_mapped += bytes; }

namespace {

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (fails(Failure::allocation)) return nullptr;
  void* const p = alignment <= alignof(std::max_align_t)
                      ? std::malloc(bytes == 0 ? 1 : bytes)
                      : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) return nullptr;
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  n_bytes.fetch_add(static_cast<std::int64_t>(::malloc_usable_size(p)), std::memory_order_relaxed);
  return p;
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const p = allocate(bytes, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void release(void* p) noexcept {
  if (p == nullptr) return;
  n_allocations.fetch_sub(1, std::memory_order_relaxed);
  n_bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(p)), std::memory_order_relaxed);
  std::free(p);
}

std::size_t of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace
}  // namespace strata::test

using strata::test::allocate;
using strata::test::allocate_or_throw;
using strata::test::of;
using strata::test::release;

// The nothrow forms, too: a sanitizer's own would take memory from another allocator than delete gives it to.
void* operator new(std::size_t n) { return allocate_or_throw(n, 1); }
void* operator new[](std::size_t n) { return allocate_or_throw(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) { return allocate_or_throw(n, of(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return allocate_or_throw(n, of(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, 1); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate(n, 1); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, of(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, of(a));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
