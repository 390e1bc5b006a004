#include "backend/host/stream_executor.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include <strata/runtime/trace/profiler_range.h>
#include <strata/runtime/str.h>

#include "backend/host/host_allocator.h"

namespace strata::detail {
namespace {

thread_local bool inside_host_call = false;

struct InsideHostCall {
  InsideHostCall() noexcept { inside_host_call = true; }
  ~InsideHostCall() { inside_host_call = false; }
};

}  // namespace

bool in_host_call() noexcept { return inside_host_call; }

Status run_host_call(const HostCall& call, ThreadPool& pool) noexcept {
  const InsideHostCall inside;
  const ProfilerRange range(call.label());
  try {
    try {
      return call(pool);
    } catch (const std::bad_alloc&) {
      return Status::error(Code::out_of_memory, str(call.label(), ": the heap is exhausted"));
    } catch (const std::exception& e) {
      return Status::error(Code::internal, str(call.label(), " threw: ", e.what()));
    } catch (...) {
      return Status::error(Code::internal,
                           str(call.label(), " threw something that is not a std::exception"));
    }
  } catch (const std::bad_alloc&) {  // there is no memory for the message either
    return Status::heap_exhausted();
  }
}

std::int64_t PacedLink::duration_ns(std::size_t bytes) const noexcept {
  const double transfer_ns = rate_.gb_per_s > 0 ? static_cast<double>(bytes) / rate_.gb_per_s : 0;
  return static_cast<std::int64_t>(rate_.latency_us * 1e3 + transfer_ns);
}

std::int64_t PacedLink::reserve(std::int64_t ready_ns, std::int64_t duration_ns) {
  const MutexLock lock(mutex_);
  const std::int64_t start = std::max(ready_ns, free_at_ns_);
  free_at_ns_ = start + duration_ns;
  return start;
}

void PacedLink::extend(std::int64_t end_ns) {
  const MutexLock lock(mutex_);
  free_at_ns_ = std::max(free_at_ns_, end_ns);
}

StreamExecutor::StreamExecutor(const HostBackendOptions& options, ThreadPool& pool, Clock& clock)
    : timed_(options.schedule == StreamSchedule::threads),
      paced_(options.paced_compute),
      skip_(options.paced_compute && options.skip_arithmetic),
      pool_(pool),
      clock_(clock),
      h2d_(options.h2d),
      d2h_(options.d2h) {}

namespace {

void add_span(const StreamEntry& entry, const char* label, std::int64_t arg, std::int64_t begin_ns,
              std::int64_t end_ns) noexcept {
  if (entry.track != nullptr)
    entry.track->span(label, arg, begin_ns, end_ns, {entry.own.stream, entry.own.sequence});
}

}  // namespace

StreamExecutor::Outcome StreamExecutor::run(const StreamEntry& entry, StreamRole role,
                                            std::int64_t ready_ns) noexcept {
  switch (entry.kind) {
    case StreamEntry::Kind::call: {
      const std::int64_t begin = now_ns();
      Outcome out = run_call(entry.call, ready_ns);
      const bool paced = timed_ && paced_ && entry.call.paced_ns() > 0;
      busy_ns_[static_cast<std::size_t>(role)].fetch_add(out.end_ns - (paced ? ready_ns : begin),
                                                         std::memory_order_relaxed);
      add_span(entry, entry.call.label(), 0, paced ? ready_ns : begin, out.end_ns);
      return out;
    }
    case StreamEntry::Kind::copy:
      return run_copy(entry, role, ready_ns);
    case StreamEntry::Kind::poison:
      std::memset(entry.dst.data, kPoisonByte, entry.dst.bytes);
      break;
    case StreamEntry::Kind::fail:
      return {entry.failure, ready_ns};
    case StreamEntry::Kind::wait:
      break;
  }
  return {{}, ready_ns};
}

StreamExecutor::Outcome StreamExecutor::run_call(const HostCall& call, std::int64_t ready_ns) {
  const bool paced = paced_ && call.paced_ns() > 0;
  const std::int64_t begin = now_ns();
  Status status;
  if (!(paced && skip_)) status = run_host_call(call, pool_);
  if (!paced || !timed_) return {std::move(status), now_ns()};
  const std::int64_t end = ready_ns + std::max(call.paced_ns(), now_ns() - begin);
  if (end > now_ns()) clock_.wait_until(end);
  return {std::move(status), end};
}

StreamExecutor::Outcome StreamExecutor::run_copy(const StreamEntry& entry, StreamRole role,
                                                 std::int64_t ready_ns) {
  const auto lane = static_cast<std::size_t>(role);
  copies_.fetch_add(1, std::memory_order_relaxed);
  copied_bytes_[lane].fetch_add(entry.dst.bytes, std::memory_order_relaxed);
  PacedLink* link = nullptr;
  if (timed_ && entry.to_device != entry.from_device) link = entry.to_device ? &h2d_ : &d2h_;
  if (link != nullptr && !link->paced()) link = nullptr;
  const std::int64_t wanted = link != nullptr ? link->duration_ns(entry.dst.bytes) : 0;
  const std::int64_t start = link != nullptr ? link->reserve(ready_ns, wanted) : 0;
  const std::int64_t begin = now_ns();
  std::memmove(entry.dst.data, entry.src, entry.dst.bytes);
  std::int64_t end = now_ns();
  std::int64_t busy = end - begin;
  if (link != nullptr) {
    busy = std::max(wanted, busy);
    end = start + busy;
    link->extend(end);
    if (end > now_ns()) clock_.wait_until(end);
  }
  busy_ns_[lane].fetch_add(busy, std::memory_order_relaxed);
  add_span(entry, "copy", static_cast<std::int64_t>(entry.dst.bytes), end - busy, end);
  return {{}, end};
}

void StreamExecutor::count(BackendCounters& into) const noexcept {
  into.copies = copies_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kStreamRoles; ++i) {
    into.copied_bytes[i] = copied_bytes_[i].load(std::memory_order_relaxed);
    into.busy_ns[i] = busy_ns_[i].load(std::memory_order_relaxed);
  }
}

}  // namespace strata::detail
