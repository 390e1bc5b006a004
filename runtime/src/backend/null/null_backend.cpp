#include <strata/runtime/backend/null_backend.h>

#include <array>
#include <atomic>

#include <strata/runtime/assert.h>

#include "backend/host/host_allocator.h"

namespace strata {
namespace detail {
namespace {

/// Nothing runs, so an event is complete as soon as it is created; only counters are kept.
class NullBackend final : public Backend {
 public:
  explicit NullBackend(const NullBackendOptions& options)
      : info_{DeviceKind::null, "null", options.device_bytes},
        memory_({options.device_bytes, options.pinned_bytes, Fill::unreachable, false, 0}) {}
  ~NullBackend() override {
    STRATA_ASSERT(memory_.live_buffers() == 0, "a backend is destroyed while ", memory_.live_buffers(),
                  " of its buffers live");
  }

  const DeviceInfo& info() const noexcept override { return info_; }
  Result<Buffer> allocate(MemoryKind kind, std::size_t bytes) override {
    STRATA_TRY_ASSIGN(const BufferView view, memory_.allocate(kind, bytes, nullptr));
    return Buffer(this, kind, view);
  }
  Result<Stream> create_stream(StreamRole role) override {
    return Stream(this, static_cast<int>(streams_.fetch_add(1, std::memory_order_relaxed)), role);
  }

  Status copy_async(BufferView dst, ConstBufferView src, Stream& stream) override {
    STRATA_TRY(memory_.check_copy(dst, src));
    if (dst.bytes == 0) return {};
    copies_.fetch_add(1, std::memory_order_relaxed);
    copied_bytes_[static_cast<std::size_t>(stream.role())].fetch_add(dst.bytes, std::memory_order_relaxed);
    return {};
  }
  Status host_call_async(const HostCall& call, Stream& stream) override {
    (void)stream;
    return call ? Status() : Status::error(Code::invalid, "a host call has no function");
  }
  Status discard_async(BufferView view, Stream& stream) override {
    (void)stream;
    return memory_.check_bounds("discard", view.data, view.bytes);
  }

  Result<Event> record(Stream& stream) override { return Event{stream.id(), 0}; }
  Status wait_on_async(const Event& event, Stream& stream) override {
    (void)event, (void)stream;
    return {};
  }
  Status wait(const Event& event) override {
    (void)event;
    return {};
  }
  bool is_complete(const Event& event) noexcept override {
    (void)event;
    return true;
  }
  Status host_access(const Access& access) override {
    (void)access;
    return {};
  }

  BackendCounters counters() const override {
    BackendCounters counters;
    counters.buffers_created = memory_.created();
    counters.streams_created = streams_.load(std::memory_order_relaxed);
    counters.copies = copies_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < kStreamRoles; ++i)
      counters.copied_bytes[i] = copied_bytes_[i].load(std::memory_order_relaxed);
    return counters;
  }

 protected:
  void release(MemoryKind kind, BufferView view) noexcept override { memory_.release(kind, view); }
  void abandon(BufferView view) noexcept override { memory_.abandon(view); }
  void destroy_stream(int id) noexcept override { (void)id; }

 private:
  const DeviceInfo info_;
  HostAllocator memory_;
  std::atomic<std::uint64_t> streams_{0}, copies_{0};
  std::array<std::atomic<std::uint64_t>, kStreamRoles> copied_bytes_{};
};

}  // namespace
}  // namespace detail

Result<std::unique_ptr<Backend>> create_null_backend(const NullBackendOptions& options) {
  return std::unique_ptr<Backend>(std::make_unique<detail::NullBackend>(options));
}

}  // namespace strata
