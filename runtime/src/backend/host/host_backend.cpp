#include <strata/runtime/backend/host_backend.h>

#include <unistd.h>

#include <array>
#include <string>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "backend/host/stream_executor.h"
#include "backend/host/happens_before.h"
#include "backend/host/host_allocator.h"
#include "backend/host/stream_scheduler.h"

namespace strata {
namespace detail {
namespace {

constexpr std::size_t kQuarantineBytes = 64 * kMiB;

std::size_t physical_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) : 0;
}

/// Combines allocator, scheduler and happens-before check, each of which has its own locks.
class HostBackend final : public Backend {
 public:
  HostBackend(const HostBackendOptions& options, ThreadPool& pool, Clock& clock)
      : pool_(pool),
        poisons_(options.check || options.schedule == StreamSchedule::latest_legal),
        drains_before_free_(options.schedule == StreamSchedule::threads),
        memory_({options.device_bytes, options.pinned_bytes, poisons_ ? Fill::poison : Fill::zero,
                 options.huge_pages, poisons_ ? kQuarantineBytes : 0}),
        executor_(options, pool, clock),
        stalls_(clock, options.trace == nullptr ? nullptr : &options.trace->add_track("compute stalls")),
        trace_(options.trace),
        timed_(options.schedule == StreamSchedule::threads),
        scheduler_(options.schedule == StreamSchedule::threads
                       ? make_threaded_scheduler(executor_, options.queue_depth, &stalls_)
                       : make_latest_legal_scheduler(executor_, options.queue_depth)) {
    if (options.check) checker_ = std::make_unique<HappensBefore>(memory_);
    for (std::size_t role = 0; trace_ != nullptr && role < kStreamRoles; ++role)
      (void)trace_->add_track(std::string(to_string(static_cast<StreamRole>(role))));
    info_ = {DeviceKind::host, "host memory",
             options.device_bytes != 0 ? options.device_bytes : physical_bytes()};
  }
  ~HostBackend() override {
    STRATA_ASSERT(scheduler_->open_streams() == 0, "a backend is destroyed while ",
                  scheduler_->open_streams(), " of its streams live");
    STRATA_ASSERT(memory_.live_buffers() == 0, "a backend is destroyed while ", memory_.live_buffers(),
                  " of its buffers live");
  }

  const DeviceInfo& info() const noexcept override { return info_; }

  Result<Buffer> allocate(MemoryKind kind, std::size_t bytes) override {
    assert_outside_host_call();
    STRATA_TRY_ASSIGN(const BufferView view, memory_.allocate(kind, bytes, &pool_));
    return Buffer(this, kind, view);
  }

  Result<Stream> create_stream(StreamRole role) override {
    assert_outside_host_call();
    STRATA_TRY_ASSIGN(const int id, scheduler_->open(role));
    if (checker_) checker_->open_stream(id, role);
    Stream stream(this, id, role);
    set_trace(stream, trace_);
    return stream;
  }

  Status copy_async(BufferView dst, ConstBufferView src, Stream& stream) override;
  Status host_call_async(const HostCall& call, Stream& stream) override;
  Status discard_async(BufferView view, Stream& stream) override;

  Result<Event> record(Stream& stream) override {
    assert_outside_host_call();
    const Event event = scheduler_->last_event(stream.id());
    if (checker_) checker_->recorded(event);
    return event;
  }
  Status wait_on_async(const Event& event, Stream& stream) override;
  Status wait(const Event& event) override {
    assert_outside_host_call();
    const HostWaitScope waits(event.stream < 0 ? nullptr : stall_meter(), role_of(event));
    Status status = scheduler_->await(event);
    if (checker_) checker_->host_waited(event);
    return status;
  }
  bool is_complete(const Event& event) noexcept override {
    assert_outside_host_call();
    if (!scheduler_->poll(event)) return false;
    if (checker_) checker_->host_waited(event);
    return true;
  }
  Status host_access(const Access& access) override {
    return checker_ ? checker_->host_access(access) : Status();
  }

  void set_trace(Stream& stream, Trace* trace) override {
    scheduler_->slot(stream.id()).track =
        trace == nullptr ? nullptr : &trace->add_track(std::string(to_string(stream.role())));
  }
  StallMeter* stall_meter() noexcept override { return timed_ ? &stalls_ : nullptr; }
  BackendCounters counters() const override {
    BackendCounters counters;
    counters.buffers_created = memory_.created();
    counters.streams_created = scheduler_->streams_created();
    executor_.count(counters);
    return counters;
  }

 protected:
  void release(MemoryKind kind, BufferView view) noexcept override;
  void abandon(BufferView view) noexcept override { memory_.abandon(view); }
  void destroy_stream(int id) noexcept override {
    assert_outside_host_call();
    const Event last = scheduler_->last_event(id);
    scheduler_->close(id);
    if (checker_) {
      checker_->recorded(last);
      checker_->host_waited(last);
    }
  }

 private:
  static void assert_outside_host_call() {
    STRATA_ASSERT(!in_host_call(), "work on a stream may not call the Backend");
  }
  /// Queues one entry; `fill` sets everything except its time. An entry that violates the check is queued as
  /// a failure, so that the work after it, which it would have corrupted, is skipped.
  template <class FillEntry>
  Status push(Stream& stream, const char* label, std::span<const Access> accesses, const FillEntry& fill) {
    assert_outside_host_call();
    Status verdict;
    if (checker_) verdict = checker_->queued(stream.id(), next_sequence(stream), label, accesses);
    StreamEntry& entry = scheduler_->claim(stream.id());
    entry.queued_ns = executor_.now_ns();
    if (verdict.is_ok()) {
      fill(entry);
    } else {
      entry.kind = StreamEntry::Kind::fail;
      entry.failure = std::move(verdict);
    }
    scheduler_->publish(stream.id());
    return {};
  }
  StreamRole role_of(const Event& event) {
    return event.stream < 0 ? StreamRole::compute : scheduler_->slot(event.stream).role;
  }
  std::uint64_t next_sequence(Stream& stream) { return scheduler_->last_event(stream.id()).sequence + 1; }
  bool on_device(const std::byte* data) const {
    const std::optional<Allocation> allocation = memory_.find(data);
    return allocation && allocation->kind == MemoryKind::device;
  }

  ThreadPool& pool_;
  const bool poisons_, drains_before_free_;
  DeviceInfo info_;
  HostAllocator memory_;
  std::unique_ptr<HappensBefore> checker_;
  StreamExecutor executor_;
  StallMeter stalls_;
  Trace* const trace_;
  const bool timed_;
  std::unique_ptr<StreamScheduler> scheduler_;  // last: its workers use everything above
};

Status HostBackend::copy_async(BufferView dst, ConstBufferView src, Stream& stream) {
  STRATA_TRY(memory_.check_copy(dst, src));
  if (dst.bytes == 0) return {};
  const bool to_device = on_device(dst.data), from_device = on_device(src.data);
  const std::array accesses{Access{src.data, src.bytes, false}, Access{dst.data, dst.bytes, true}};
  return push(stream, "copy", accesses, [&](StreamEntry& entry) {
    entry.kind = StreamEntry::Kind::copy;
    entry.to_device = to_device;
    entry.from_device = from_device;
    entry.dst = dst;
    entry.src = src.data;
  });
}

Status HostBackend::host_call_async(const HostCall& call, Stream& stream) {
  if (!call) return Status::error(Code::invalid, "a host call has no function");
  return push(stream, call.label(), call.accesses(), [&](StreamEntry& entry) {
    entry.kind = StreamEntry::Kind::call;
    entry.call = call;
  });
}

Status HostBackend::discard_async(BufferView view, Stream& stream) {
  STRATA_TRY(memory_.check_bounds("discard", view.data, view.bytes));
  if (!poisons_ || view.bytes == 0) return {};
  const std::array accesses{Access{view.data, view.bytes, true}};
  return push(stream, "discard", accesses, [&](StreamEntry& entry) {
    entry.kind = StreamEntry::Kind::poison;
    entry.dst = view;
  });
}

Status HostBackend::wait_on_async(const Event& event, Stream& stream) {
  assert_outside_host_call();
  if (event.stream < 0 || event.stream == stream.id()) return {};
  if (checker_) checker_->waits(stream.id(), next_sequence(stream), event);
  StreamEntry& entry = scheduler_->claim(stream.id());
  entry.kind = StreamEntry::Kind::wait;
  entry.event = event;
  entry.queued_ns = executor_.now_ns();
  scheduler_->publish(stream.id());
  return {};
}

void HostBackend::release(MemoryKind kind, BufferView view) noexcept {
  assert_outside_host_call();
  if (checker_) {
    HappensBefore::Pending pending = checker_->freed(view);
    if (pending.site.stream >= 0)
      scheduler_->fail(pending.site.stream, pending.site.sequence, std::move(pending.error));
  }
  // Drain, as cudaFree does, because worker threads may still use the buffer. Under latest_legal, queued work
  // runs later and then reads the poison.
  if (drains_before_free_) scheduler_->drain();
  memory_.release(kind, view);
  if (!memory_.needs_trim()) return;
  scheduler_->drain();
  memory_.trim();
}

Status validate(const HostBackendOptions& options) {
  for (const CopyLink& link : {options.h2d, options.d2h})
    if (!(link.gb_per_s >= 0 && link.latency_us >= 0))
      return Status::error(Code::invalid, str("a copy link must have a bandwidth and latency >= 0, not ",
                                              link.gb_per_s, " GB/s and ", link.latency_us, " us"));
  if (options.queue_depth == 0)
    return Status::error(Code::invalid, "queue_depth is 0; a stream holds at least 1 entry");
  if (options.skip_arithmetic && !options.paced_compute)
    return Status::error(
        Code::invalid,
        "skip_arithmetic needs paced_compute: without it, calls would neither compute nor take time");
  return {};
}

}  // namespace
}  // namespace detail

Result<std::unique_ptr<Backend>> create_host_backend(const HostBackendOptions& options, ThreadPool& pool,
                                                     Clock& clock) {
  STRATA_TRY(detail::validate(options));
  return std::unique_ptr<Backend>(std::make_unique<detail::HostBackend>(options, pool, clock));
}

}  // namespace strata
