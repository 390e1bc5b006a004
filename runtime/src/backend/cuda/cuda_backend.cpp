#include <strata/runtime/backend/cuda_backend.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "backend/cuda/cuda_backend_impl.h"
#include "backend/host/stream_executor.h"

namespace strata {
namespace detail {
namespace {

constexpr std::chrono::milliseconds kStreamCheck{100};

}  // namespace

CudaBackend::~CudaBackend() {
  STRATA_ASSERT(memory_.live_buffers() == 0, "a backend is destroyed while ", memory_.live_buffers(),
                " of its buffers live");
  for (const std::unique_ptr<CudaStreamState>& stream_state : stream_states_) {
    if (stream_state == nullptr) break;
    {
      const MutexLock lock(stream_state->mutex);
      STRATA_ASSERT(!stream_state->open, "a backend is destroyed while its stream ", stream_state->id,
                    " lives");
    }
    for (const cudaEvent_t event : stream_state->events)
      if (event != nullptr) (void)cudaEventDestroy(event);  // there is nobody to report an error to
    if (stream_state->stream != nullptr) (void)cudaStreamDestroy(stream_state->stream);
  }
}

Status CudaBackend::record_failure(cudaError_t error, const char* call, int line) {
  Status status = cuda_failure(error, call, __FILE__, line);
  if (!cuda_error_is_sticky(error)) return status;
  const MutexLock lock(lost_mutex_);
  if (lost_status_.is_ok()) lost_status_ = std::move(status).annotate(str("GPU ", device_, " is lost"));
  lost_.store(true);
  return lost_status_;
}

Status CudaBackend::select_device() {
  STRATA_ASSERT(!in_host_call(), "work on a stream may not call the Backend");
  if (lost_.load()) {
    const MutexLock lock(lost_mutex_);
    return lost_status_;
  }
  STRATA_CUDA_BACKEND_TRY(cudaSetDevice(device_));
  return {};
}

Result<Buffer> CudaBackend::allocate(MemoryKind kind, std::size_t bytes) {
  STRATA_TRY(select_device());
  STRATA_TRY_ASSIGN(const BufferView view, memory_.allocate(kind, bytes, &pool_));
  return Buffer(this, kind, view);
}

void CudaBackend::release(MemoryKind kind, BufferView view) noexcept {
  (void)select_device();  // host memory is freed even if the device is lost
  // cudaFree synchronizes with the device itself; unmapping host memory does not.
  if (kind == MemoryKind::pinned) (void)cudaDeviceSynchronize();
  memory_.release(kind, view);
}

Status CudaBackend::init_stream_state(CudaStreamState& stream_state) {
  if (stream_state.stream == nullptr)
    STRATA_CUDA_BACKEND_TRY(cudaStreamCreateWithFlags(&stream_state.stream, cudaStreamNonBlocking));
  for (cudaEvent_t& event : stream_state.events) {
    if (event != nullptr) continue;
    // BlockingSync: a waiting thread sleeps and leaves its core to the optimizer.
    STRATA_CUDA_BACKEND_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    events_created_.fetch_add(1, std::memory_order_relaxed);
  }
  if (!timeline_) return {};
  std::uint64_t made = 0;
  const cudaError_t error =
      timeline_->add_stream(stream_state.id, stream_state.role, stream_state.stream, made);
  events_created_.fetch_add(made, std::memory_order_relaxed);
  STRATA_CUDA_BACKEND_TRY(error);
  return {};
}

Status CudaBackend::acquire_stream_state(StreamRole role, CudaStreamState*& taken) {
  const MutexLock table(table_mutex_);
  for (std::size_t i = 0; i < kMaxCudaStreams; ++i) {
    if (stream_states_[i] == nullptr) {
      stream_states_[i] = std::make_unique<CudaStreamState>();
      stream_states_[i]->id = static_cast<int>(i);
    }
    const MutexLock lock(stream_states_[i]->mutex);
    if (stream_states_[i]->open) continue;
    taken = stream_states_[i].get();
    taken->open = true;
    taken->role = role;
    taken->error = Status();
    taken->waited = {};
    taken->waits_on.reset();
    ++streams_created_;
    return {};
  }
  return Status::error(Code::does_not_fit, str("a CUDA backend has at most ", kMaxCudaStreams, " streams"));
}

Result<Stream> CudaBackend::create_stream(StreamRole role) {
  STRATA_TRY(select_device());
  CudaStreamState* taken = nullptr;
  STRATA_TRY(acquire_stream_state(role, taken));
  if (Status status = init_stream_state(*taken); !status.is_ok()) {
    const MutexLock lock(taken->mutex);
    taken->open = false;
    return status;
  }
  return Stream(this, taken->id, role);
}

void CudaBackend::destroy_stream(int id) noexcept {
  CudaStreamState& closing = stream_state(id);
  (void)select_device();
  if (timeline_ && !is_timed_by_host(closing)) (void)timeline_->mark_end(id);
  // Synchronize even if the device is lost: a running host call still uses the stream's state.
  if (const cudaError_t error = cudaStreamSynchronize(closing.stream);
      error != cudaSuccess && error != cudaErrorCudartUnloading)
    (void)record_failure(error, "cudaStreamSynchronize", __LINE__);  // an earlier wait returned it
  const MutexLock lock(closing.mutex);
  closing.retired = closing.recorded;
  closing.open = false;
}

CudaStreamState& CudaBackend::stream_state(int id) {
  STRATA_ASSERT(id >= 0 && static_cast<std::size_t>(id) < kMaxCudaStreams &&
                    stream_states_[static_cast<std::size_t>(id)] != nullptr,
                "no stream ", id, " on this backend");
  return *stream_states_[static_cast<std::size_t>(id)];
}

Result<cudaStream_t> CudaBackend::begin_enqueue(int id) {
  CudaStreamState& target = stream_state(id);
  std::uint64_t sequence = 0;
  {
    const MutexLock lock(target.mutex);
    target.dirty = true;
    sequence = target.recorded + 1;
  }
  if (timeline_ && !is_timed_by_host(target)) STRATA_CUDA_BACKEND_TRY(timeline_->mark_begin(id, sequence));
  return target.stream;
}

Status CudaBackend::copy_async(BufferView dst, ConstBufferView src, Stream& stream) {
  STRATA_TRY(select_device());
  STRATA_TRY(memory_.check_copy(dst, src));
  if (dst.bytes == 0) return {};
  const ThirdPartyScope scope;
  for (std::size_t done = 0; done < dst.bytes;) {
    const std::size_t left = dst.bytes - done;
    const std::size_t n = std::min(memory_.max_copy_bytes(dst.data + done, left),
                                   memory_.max_copy_bytes(src.data + done, left));
    STRATA_TRY_ASSIGN(const cudaStream_t to, begin_enqueue(stream.id()));
    STRATA_CUDA_BACKEND_TRY(cudaMemcpyAsync(dst.data + done, src.data + done, n, cudaMemcpyDefault, to));
    done += n;
  }
  copies_.fetch_add(1, std::memory_order_relaxed);
  copied_bytes_[static_cast<std::size_t>(stream.role())].fetch_add(dst.bytes, std::memory_order_relaxed);
  return {};
}

// A failed device runs no more host calls, so the stream is queried from time to time. Only one thread queues
// work on a stream, so a free slot stays free.
Status CudaBackend::wait_for_call_slot(CudaStreamState& to) {
  const auto has_slot = [&to]() STRATA_REQUIRES(to.mutex) {
    return to.calls_queued - to.calls_ended < kCallRing;
  };
  for (bool idle = false;;) {
    {
      const MutexLock lock(to.mutex);
      if (!has_slot() && !idle) to.call_ended.wait_for(to.mutex, kStreamCheck);
      if (has_slot()) return {};
    }
    if (idle)
      return Status::error(Code::internal, str("stream ", to.id, " is idle, but ", kCallRing,
                                               " of its host calls never ran: the GPU has failed"));
    STRATA_TRY(select_device());  // fails if another stream's work lost the device
    const cudaError_t error = cudaStreamQuery(to.stream);
    if (error != cudaSuccess && error != cudaErrorNotReady)
      return record_failure(error, "cudaStreamQuery", __LINE__);
    (void)cudaGetLastError();
    idle = error == cudaSuccess;
  }
}

Status CudaBackend::host_call_async(const HostCall& call, Stream& stream) {
  STRATA_TRY(select_device());
  if (!call) return Status::error(Code::invalid, "a host call has no function");
  CudaStreamState& to = stream_state(stream.id());
  STRATA_TRY_ASSIGN(const cudaStream_t stream_of_call, begin_enqueue(to.id));
  STRATA_TRY(wait_for_call_slot(to));
  CudaHostCall* slot = nullptr;
  {
    const MutexLock lock(to.mutex);
    slot = &to.calls[to.calls_queued++ % kCallRing];
    to.dirty = true;
    slot->sequence = to.recorded + 1;
    slot->waited = to.waited;
    slot->waits_on = std::exchange(to.waits_on, std::nullopt);
  }
  slot->backend = this;
  slot->stream_state = &to;
  slot->call = call;
  const ThirdPartyScope scope;
  const cudaError_t error = cudaLaunchHostFunc(stream_of_call, &CudaBackend::run_call, slot);
  if (error == cudaSuccess) return {};
  {
    const MutexLock lock(to.mutex);
    --to.calls_queued;  // only one thread queues work on a stream, so this slot is still the last
  }
  return record_failure(error, "cudaLaunchHostFunc", __LINE__);
}

// Records busy time of a stream that is timed by the host (the CPU stream's work needs no device events). The
// time of other streams is measured by their timeline marks.
void CudaBackend::record_host_call(const CudaHostCall& slot, std::int64_t begin_ns,
                                   std::int64_t end_ns) noexcept {
  const CudaStreamState& on = *slot.stream_state;
  if (timeline_ && !is_timed_by_host(on)) return;  // covered by the timeline's marks
  busy_ns_[static_cast<std::size_t>(on.role)].fetch_add(end_ns - begin_ns, std::memory_order_relaxed);
  if (timeline_)
    timeline_->add_host_span(on.role, slot.call.label(), begin_ns, end_ns, {on.id, slot.sequence});
}

// Runs on the driver's thread, in stream order. CUDA functions must not be called here.
void CUDART_CB CudaBackend::run_call(void* state) noexcept {
  CudaHostCall& slot = *static_cast<CudaHostCall*>(state);
  CudaStreamState& on = *slot.stream_state;
  CudaBackend& backend = *slot.backend;
  Status status = backend.inherited_error(slot.waited);
  bool failed_before = false;
  {
    const MutexLock lock(on.mutex);
    failed_before = !on.error.is_ok();
  }
  if (!failed_before && status.is_ok()) {
    const std::int64_t begin = backend.clock_.now_ns();
    status = run_host_call(slot.call, backend.pool_);
    backend.record_host_call(slot, begin, backend.clock_.now_ns());
  }
  const MutexLock lock(on.mutex);
  if (!failed_before && !status.is_ok()) {
    on.error = std::move(status);
    on.error_at = slot.sequence;
  }
  ++on.calls_ended;
  if (backend.timeline_ && is_timed_by_host(on) && on.calls_ended < on.calls_queued)
    if (const auto& next = on.calls[on.calls_ended % kCallRing]; next.waits_on)
      backend.timeline_->add_host_wait(on.role, *next.waits_on, backend.clock_.now_ns());
  on.call_ended.notify_all();
}

BackendCounters CudaBackend::counters() const {
  if (timeline_) timeline_->collect();
  BackendCounters counters;
  counters.buffers_created = memory_.created();
  counters.events_created = events_created_.load(std::memory_order_relaxed);
  counters.copies = copies_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kStreamRoles; ++i) {
    counters.copied_bytes[i] = copied_bytes_[i].load(std::memory_order_relaxed);
    counters.busy_ns[i] = busy_ns_[i].load(std::memory_order_relaxed) +
                          (timeline_ ? timeline_->busy_ns(static_cast<StreamRole>(i)) : 0);
  }
  const MutexLock table(table_mutex_);
  counters.streams_created = streams_created_;
  return counters;
}

Result<cudaStream_t> cuda_stream(Stream& stream) {
  auto* backend = dynamic_cast<CudaBackend*>(stream.backend());
  if (backend == nullptr)
    return Status::error(Code::invalid, "a CUDA kernel was launched on a stream of another backend");
  STRATA_TRY(backend->select_device());
  return backend->begin_enqueue(stream.id());
}

}  // namespace detail

Result<std::unique_ptr<Backend>> create_cuda_backend(const CudaBackendOptions& options, ThreadPool& pool) {
  STRATA_TRY(detail::check_gpu(options.device));
  cudaDeviceProp properties{};
  STRATA_CUDA_TRY(cudaGetDeviceProperties(&properties, options.device));
  STRATA_CUDA_TRY(cudaSetDevice(options.device));
  int same_pointers = 0;  // kernels write norms into memory that the host reads
  STRATA_CUDA_TRY(
      cudaDeviceGetAttribute(&same_pointers, cudaDevAttrCanUseHostPointerForRegisteredMem, options.device));
  if (same_pointers == 0)
    return Status::error(Code::unsupported, str(properties.name,
                                                " cannot access registered host memory by its host address "
                                                "(cudaDevAttrCanUseHostPointerForRegisteredMem is 0)"));
  DeviceInfo info{DeviceKind::cuda, properties.name, properties.totalGlobalMem};
  return std::unique_ptr<Backend>(std::make_unique<detail::CudaBackend>(options, std::move(info), pool));
}

}  // namespace strata
