#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <strata/runtime/status.h>

namespace strata {

class Backend;
class StallMeter;
class ThreadPool;
class Trace;

/// Which memory a Buffer is allocated from. `pinned` is host memory that asynchronous copies can read and
/// write.
enum class MemoryKind : std::uint8_t { device, pinned };
enum class DeviceKind : std::uint8_t { host, cuda, null };
std::string_view to_string(DeviceKind kind) noexcept;

struct DeviceInfo {
  DeviceKind kind = DeviceKind::host;
  std::string name;
  std::size_t device_bytes = 0;  ///< physical device memory, before any budget
};

/// A non-owning range of bytes in a Buffer.
struct BufferView {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  BufferView part(std::size_t offset, std::size_t n) const noexcept { return {data + offset, n}; }
};
struct ConstBufferView {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  ConstBufferView() = default;
  ConstBufferView(const std::byte* d, std::size_t n) noexcept : data(d), bytes(n) {}
  ConstBufferView(BufferView view) noexcept
      : data(view.data), bytes(view.bytes) {}  // NOLINT(google-explicit-constructor)
};

/// Owns memory of one kind and frees it on destruction; move-only. Its Backend must outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend* backend, MemoryKind kind, BufferView view) : backend_(backend), kind_(kind), view_(view) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Buffer();
  /// Gives up the memory without giving it back, for what cannot be stopped and may still use it: it stays
  /// allocated until the process ends, and the backend may be destroyed.
  void abandon() noexcept;
  BufferView view() const noexcept { return view_; }
  MemoryKind kind() const noexcept { return kind_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(kind_, other.kind_);
    std::swap(view_, other.view_);
  }
  Backend* backend_ = nullptr;
  MemoryKind kind_ = MemoryKind::device;
  BufferView view_;
};

/// The use of a stream, fixed for its life. The default CUDA stream is never used.
enum class StreamRole : std::uint8_t { compute, h2d, d2h, cpu, collective };
inline constexpr std::size_t kStreamRoles = 5;
std::string_view to_string(StreamRole role) noexcept;

/// A handle to an in-order queue of work on a backend. Destroying it waits until the queue has drained and
/// returns it to the backend.
class Stream {
 public:
  Stream() = default;
  Stream(Backend* backend, int id, StreamRole role) : backend_(backend), id_(id), role_(role) {}
  Stream(Stream&& other) noexcept { swap(other); }
  Stream& operator=(Stream&& other) noexcept {
    Stream taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Stream();
  Backend* backend() const noexcept { return backend_; }
  int id() const noexcept { return id_; }
  StreamRole role() const noexcept { return role_; }

 private:
  void swap(Stream& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(id_, other.id_);
    std::swap(role_, other.role_);
  }
  Backend* backend_ = nullptr;
  int id_ = -1;
  StreamRole role_ = StreamRole::compute;
};

/// A point in a stream: all work queued before record(). It is a plain value that owns nothing, and an event
/// that has completed stays complete. A default event is complete.
struct Event {
  std::int32_t stream = -1;
  std::uint64_t sequence = 0;
  friend bool operator==(const Event&, const Event&) = default;
};

/// One memory range that queued work reads or writes, declared for the happens-before check.
struct Access {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};

/// Work for a stream: a function with its state stored inline, so that queueing allocates nothing. The state
/// is copied bytewise. The function must not call the Backend (CUDA callbacks must not either). If it returns
/// a Status that is an error, its stream fails with it; a function that returns nothing cannot fail.
class HostCall {
 public:
  static constexpr std::size_t kStateBytes = 1024;
  static constexpr std::size_t kMaxAccesses = 20;

  HostCall() = default;
  /// `function(state, pool)` is a function or a lambda without captures; `pool` is the backend's compute
  /// pool. `label` must be a string literal.
  template <class State>
  HostCall(const char* label, void (*function)(const std::type_identity_t<State>&, ThreadPool&),
           const State& state)
      : label_(label) {
    store(function, state);
  }
  template <class State>
  HostCall(const char* label, Status (*function)(const std::type_identity_t<State>&, ThreadPool&),
           const State& state)
      : label_(label) {
    store(function, state);
  }
  HostCall& reads(const void* data, std::size_t bytes) {
    return add({static_cast<const std::byte*>(data), bytes, false});
  }
  HostCall& writes(const void* data, std::size_t bytes) {
    return add({static_cast<const std::byte*>(data), bytes, true});
  }
  /// Nanoseconds that the work takes on a paced device; 0 means as long as it really takes.
  HostCall& paced(std::int64_t ns) {
    paced_ns_ = ns;
    return *this;
  }

  Status operator()(ThreadPool& pool) const { return trampoline_(*this, pool); }
  const char* label() const noexcept { return label_; }
  std::int64_t paced_ns() const noexcept { return paced_ns_; }
  std::span<const Access> accesses() const noexcept { return {accesses_.data(), n_accesses_}; }
  explicit operator bool() const noexcept { return trampoline_ != nullptr; }

 private:
  template <class Outcome, class State>
  void store(Outcome (*function)(const State&, ThreadPool&), const State& state) {
    static_assert(std::is_trivially_copyable_v<State> && sizeof(State) <= kStateBytes);
    std::memcpy(state_.data(), &state, sizeof(State));
    static_assert(sizeof(function) == sizeof(function_));
    std::memcpy(&function_, &function, sizeof function_);
    trampoline_ = [](const HostCall& call, ThreadPool& pool) -> Status {
      Outcome (*typed)(const State&, ThreadPool&) = nullptr;
      std::memcpy(&typed, &call.function_, sizeof typed);
      alignas(State) std::array<std::byte, sizeof(State)> copy;
      std::memcpy(copy.data(), call.state_.data(), sizeof(State));
      if constexpr (std::is_void_v<Outcome>) {
        typed(*reinterpret_cast<const State*>(copy.data()), pool);
        return {};
      } else {
        return typed(*reinterpret_cast<const State*>(copy.data()), pool);
      }
    };
  }
  HostCall& add(Access access);
  using Trampoline = Status (*)(const HostCall&, ThreadPool&);
  const char* label_ = "";
  Trampoline trampoline_ = nullptr;
  void (*function_)() = nullptr;
  std::int64_t paced_ns_ = 0;
  std::size_t n_accesses_ = 0;
  std::array<Access, kMaxAccesses> accesses_{};
  alignas(16) std::array<std::byte, kStateBytes> state_{};
};

/// Counts of everything that a backend has created and copied so far; contract C6 compares two snapshots of
/// it.
struct BackendCounters {
  std::uint64_t buffers_created = 0;
  std::uint64_t streams_created = 0;
  std::uint64_t events_created = 0;  ///< new events in the pool, not recordings
  std::uint64_t copies = 0;
  /// The bytes copied by the streams of each role.
  std::array<std::uint64_t, kStreamRoles> copied_bytes{};
  /// Time that each role's streams spent working. On CUDA, only the work whose timing events have been read.
  std::array<std::int64_t, kStreamRoles> busy_ns{};
};

/// One device and its memories. Thread-safe, but only one thread at a time may queue work on a given Stream.
/// `_async` calls never wait for the work they queue; they block only while the stream's bounded queue is
/// full. The first failure of queued work sticks to its stream: later work on it is skipped, and every wait
/// on that stream, or on a stream that waited for it, returns that Status.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const DeviceInfo& info() const noexcept = 0;
  /// Returns `bytes` (> 0) of memory, 4096-aligned, with its pages already touched. Errors: `does_not_fit`
  /// past the device's cap, `out_of_memory`.
  virtual Result<Buffer> allocate(MemoryKind kind, std::size_t bytes) = 0;
  virtual Result<Stream> create_stream(StreamRole role) = 0;

  /// Copies `src.bytes` (equal to `dst.bytes`) in stream order. Either side may be device or pinned memory.
  /// Errors: `invalid` if the sizes differ or a side runs past the end of its buffer; then nothing is queued.
  virtual Status copy_async(BufferView dst, ConstBufferView src, Stream& stream) = 0;
  /// Runs `call` on the host in stream order. The host backend runs device kernels this way too.
  virtual Status host_call_async(const HostCall& call, Stream& stream) = 0;
  /// Declares the contents dead from this point of the stream on. The host backend overwrites them with
  /// poison under `check` or latest_legal; other backends do nothing.
  virtual Status discard_async(BufferView view, Stream& stream) = 0;

  /// Returns the point after all work queued on `stream` so far. Events come from a pool.
  virtual Result<Event> record(Stream& stream) = 0;
  /// Makes work queued on `stream` after this call start after `event`. The caller does not wait.
  virtual Status wait_on_async(const Event& event, Stream& stream) = 0;
  /// Blocks the caller until `event` has completed. Returns the stream's sticky error if it occurred at or
  /// before the event, so that the result does not depend on how far the stream has run since.
  virtual Status wait(const Event& event) = 0;
  virtual bool is_complete(const Event& event) noexcept = 0;
  /// Blocks the caller until all queued work on `stream` is done.
  Status synchronize(Stream& stream);

  /// Declares that the host (or a device other than this one) is about to touch `access`. With `check` on,
  /// the host backend verifies that all conflicting queued work has been waited for; other backends do
  /// nothing.
  virtual Status host_access(const Access& access) = 0;

  virtual BackendCounters counters() const = 0;
  /// Work that is queued on `stream` from now on becomes spans in the track of its role in `trace`, which
  /// outlives the stream; null: no longer. For streams of several users of one backend. Backends without work
  /// of their own threads do nothing: their options have one trace for all streams.
  virtual void set_trace(Stream& stream, Trace* trace) {
    static_cast<void>(stream);
    static_cast<void>(trace);
  }

  /// The meter that attributes stalls of the compute stream to causes; null if the backend has none.
  virtual StallMeter* stall_meter() noexcept { return nullptr; }

 protected:
  friend class Buffer;
  friend class Stream;
  virtual void release(MemoryKind kind, BufferView view) noexcept = 0;
  virtual void abandon(BufferView view) noexcept = 0;  ///< the buffer no longer counts as live
  virtual void destroy_stream(int id) noexcept = 0;
};

}  // namespace strata
