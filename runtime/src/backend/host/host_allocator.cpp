#include "backend/host/host_allocator.h"

#include <sys/mman.h>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace strata::detail {
namespace {

constexpr std::size_t kHugePageBytes = 2 * kMiB;
constexpr std::size_t kTouchBytes = 4 * kMiB;  // one item of the parallel first touch

// Uses only huge pages that are entirely inside the mapping: rounding up would use memory that no budget was
// charged for.
void advise_huge_pages(std::byte* data, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::size_t skip = round_up(static_cast<std::size_t>(begin), kHugePageBytes) - begin;
  if (skip >= bytes) return;
  const std::size_t inside = (bytes - skip) / kHugePageBytes * kHugePageBytes;
  if (inside > 0) (void)::madvise(data + skip, inside, MADV_HUGEPAGE);  // if refused, small pages will do
}

// Touches each page from a thread of the node that will process this part of the memory later.
void first_touch(std::byte* data, std::size_t bytes, Fill fill, ThreadPool& pool) {
  const auto items = static_cast<std::int64_t>((bytes + kTouchBytes - 1) / kTouchBytes);
  pool.parallel_for_numa_local(items, [&](std::int64_t i) {
    const std::size_t begin = static_cast<std::size_t>(i) * kTouchBytes;
    const std::size_t n = std::min(kTouchBytes, bytes - begin);
    if (fill == Fill::poison) {
      std::memset(data + begin, kPoisonByte, n);
    } else {
      for (std::size_t at = begin; at < begin + n; at += kPageBytes)
        *static_cast<volatile std::byte*>(data + at) = std::byte{0};
    }
  });
}

// Call before the first touch. If the system refuses, first touch decides the placement. If the threads are
// bound to several nodes, each thread reads what it touched first, and interleaving would make most accesses
// remote. If they are not bound, it is unknown which node reads what, and interleaving at least uses the
// bandwidth of all nodes.
void bind_pages(std::byte* data, std::size_t bytes, int numa_node, std::span<const int> pool_nodes) {
  if (numa_node == kAllNumaNodes && pool_nodes.size() > 1) return;
  const bool near_threads = numa_node == kAllNumaNodes && pool_nodes.size() == 1;
  (void)bind_to_numa(data, bytes, near_threads ? pool_nodes.front() : numa_node);
}

}  // namespace

std::string_view to_string(MemoryKind kind) noexcept {
  return kind == MemoryKind::device ? "device" : "pinned";
}

Result<BufferView> map_memory(std::size_t bytes, const HostAllocatorOptions& options, ThreadPool* pool) {
  const bool reachable = options.fill != Fill::unreachable;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reachable ? 0 : MAP_NORESERVE);
  void* p = ::mmap(nullptr, bytes, reachable ? PROT_READ | PROT_WRITE : PROT_NONE, flags, -1, 0);
  if (p == MAP_FAILED)
    return Status::error(Code::out_of_memory,
                         str("out of memory: mmap of ", bytes, " bytes: ", std::strerror(errno)));
  auto* const data = static_cast<std::byte*>(p);
  if (!reachable) return BufferView{data, bytes};
  (void)::madvise(data, bytes, MADV_DONTDUMP);
  // While a forked child lived, every write would copy a page.
  (void)::madvise(data, bytes, MADV_DONTFORK);
  if (options.huge_pages) advise_huge_pages(data, bytes);
  try {  // the pool needs memory for its tasks
    bind_pages(data, bytes, options.numa_node, pool->nodes());
    first_touch(data, bytes, options.fill, *pool);
  } catch (...) {
    unmap_memory({data, bytes});
    throw;
  }
  return BufferView{data, bytes};
}

void unmap_memory(BufferView view) noexcept {
  const int rc = ::munmap(view.data, view.bytes);
  STRATA_ASSERT(rc == 0, "munmap of a buffer failed, errno ", errno);
}

HostAllocator::~HostAllocator() {  // only quarantined buffers are left, which are always plain mappings
  for (const auto& [data, allocation] : allocations_)
    unmap_memory({const_cast<std::byte*>(data), allocation.bytes});
}

Status HostAllocator::charge(MemoryKind kind, std::size_t bytes) {
  const std::size_t cap = kind == MemoryKind::device ? options_.device_cap : options_.pinned_cap;
  const MutexLock lock(mutex_);
  std::size_t& used = used_[static_cast<std::size_t>(kind)];
  const std::size_t free_bytes = cap == 0 ? SIZE_MAX - used : cap - used;
  if (bytes > free_bytes)
    return Status::error(Code::does_not_fit, str(to_string(kind), " memory: ", bytes, " bytes requested, ",
                                                 free_bytes, " free of a cap of ", cap));
  used += bytes;
  return {};
}

void HostAllocator::uncharge(MemoryKind kind, std::size_t bytes) {
  const MutexLock lock(mutex_);
  used_[static_cast<std::size_t>(kind)] -= bytes;
}

Result<BufferView> HostAllocator::allocate(MemoryKind kind, std::size_t bytes, ThreadPool* pool) {
  if (bytes == 0) return Status::error(Code::invalid, str("a ", to_string(kind), " buffer of 0 bytes"));
  STRATA_TRY(charge(kind, bytes));
  Status status;
  BufferView view;
  try {
    Result<BufferView> raw = allocate_raw(kind, bytes, pool);
    if (raw.has_value()) {
      view = *raw;
      const MutexLock lock(mutex_);
      allocations_[view.data] = Allocation{view.data, bytes, kind, created_++, false};
      ++live_;
      return view;
    }
    status = std::move(raw).error();
  } catch (...) {  // the heap is exhausted, too
    if (view.data != nullptr) free_raw(kind, view);
    uncharge(kind, bytes);
    throw;
  }
  uncharge(kind, bytes);
  return status;
}

void HostAllocator::release(MemoryKind kind, BufferView view) noexcept {
  const bool keep = options_.quarantine_bytes > 0;
  if (keep) std::memset(view.data, kPoisonByte, view.bytes);
  {
    const MutexLock lock(mutex_);
    const auto it = allocations_.find(view.data);
    STRATA_ASSERT(it != allocations_.end() && !it->second.freed && it->second.bytes == view.bytes,
                  "not a live buffer");
    used_[static_cast<std::size_t>(kind)] -= view.bytes;
    --live_;
    if (keep) {
      it->second.freed = true;
      quarantine_.push_back(view.data);
      quarantined_bytes_ += view.bytes;
      return;
    }
    allocations_.erase(it);
  }
  free_raw(kind, view);
}

void HostAllocator::abandon(BufferView view) noexcept {
  const MutexLock lock(mutex_);
  const auto it = allocations_.find(view.data);
  STRATA_ASSERT(it != allocations_.end() && !it->second.freed, "not a live buffer");
  allocations_.erase(it);
  --live_;
}

Result<BufferView> HostAllocator::allocate_raw(MemoryKind kind, std::size_t bytes, ThreadPool* pool) {
  (void)kind;
  return map_memory(bytes, options_, pool);
}

void HostAllocator::free_raw(MemoryKind kind, BufferView view) noexcept {
  (void)kind;
  unmap_memory(view);
}

Status HostAllocator::check_bounds(const char* what, const std::byte* data, std::size_t bytes) const {
  const std::optional<Allocation> allocation = find(data);
  if (!allocation || bytes <= static_cast<std::size_t>(allocation->data + allocation->bytes - data))
    return {};
  return Status::error(Code::invalid,
                       str(what, ": ", describe(data, bytes), " runs past its end at ", allocation->bytes));
}

Status HostAllocator::check_copy(BufferView dst, ConstBufferView src) const {
  if (dst.bytes != src.bytes)
    return Status::error(Code::invalid, str("a copy of ", src.bytes, " bytes into a range of ", dst.bytes));
  if (dst.bytes == 0) return {};
  STRATA_TRY(check_bounds("copy to", dst.data, dst.bytes));
  return check_bounds("copy from", src.data, src.bytes);
}

bool HostAllocator::needs_trim() const noexcept {
  const MutexLock lock(mutex_);
  return quarantined_bytes_ > options_.quarantine_bytes;
}

void HostAllocator::trim() noexcept {
  const MutexLock lock(mutex_);
  while (quarantined_bytes_ > options_.quarantine_bytes) {
    const auto it = allocations_.find(quarantine_.front());
    const BufferView view{const_cast<std::byte*>(it->first), it->second.bytes};
    quarantine_.pop_front();
    quarantined_bytes_ -= view.bytes;
    allocations_.erase(it);
    unmap_memory(view);
  }
}

std::optional<Allocation> HostAllocator::find(const void* p) const {
  const auto* const at = static_cast<const std::byte*>(p);
  const MutexLock lock(mutex_);
  auto it = allocations_.upper_bound(at);
  if (it == allocations_.begin()) return std::nullopt;
  --it;
  if (at >= it->first + it->second.bytes) return std::nullopt;
  return it->second;
}

std::string HostAllocator::describe(const void* p, std::size_t bytes) const {
  const std::optional<Allocation> allocation = find(p);
  if (!allocation) return str("memory at ", fmt::ptr(p), " (", bytes, " bytes)");
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(p) - allocation->data);
  return str(to_string(allocation->kind), " buffer ", allocation->number, " [", offset, ", ", offset + bytes,
             ")");
}

std::size_t HostAllocator::live_buffers() const {
  const MutexLock lock(mutex_);
  return live_;
}
std::uint64_t HostAllocator::created() const {
  const MutexLock lock(mutex_);
  return created_;
}

}  // namespace strata::detail
