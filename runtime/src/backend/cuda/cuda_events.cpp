#include <algorithm>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "backend/cuda/cuda_backend_impl.h"

// Events: how streams and the host wait for each other.

namespace strata::detail {

Result<Event> CudaBackend::record(Stream& stream) {
  STRATA_TRY(select_device());
  CudaStreamState& on = stream_state(stream.id());
  std::uint64_t next = 0;
  {
    const MutexLock lock(on.mutex);
    if (!on.dirty) return Event{on.id, on.recorded};
    next = on.recorded + 1;
  }
  const ThirdPartyScope scope;
  if (timeline_ && !is_timed_by_host(on)) STRATA_CUDA_BACKEND_TRY(timeline_->mark_end(on.id));
  const cudaEvent_t event = on.events[next % kEventRing];
  if (next > kEventRing) {  // the ring is full: wait for the event that this slot held
    STRATA_CUDA_BACKEND_TRY(cudaEventSynchronize(event));
    const MutexLock lock(on.mutex);
    on.retired = std::max(on.retired, next - kEventRing);
  }
  STRATA_CUDA_BACKEND_TRY(cudaEventRecord(event, on.stream));
  const MutexLock lock(on.mutex);
  on.recorded = next;
  on.dirty = false;
  return Event{on.id, next};
}

// Returns null if the event is known to be complete. If the returned handle is recorded again before it is
// used, its user waits for a later point of the same stream. That is longer, but never too short, and cannot
// deadlock, since that point was already queued.
cudaEvent_t CudaBackend::pending_event(const Event& event) {
  if (event.stream < 0) return nullptr;
  CudaStreamState& on = stream_state(event.stream);
  const MutexLock lock(on.mutex);
  STRATA_ASSERT(event.sequence <= on.recorded, "an event of stream ", event.stream,
                " that was never recorded");
  return event.sequence <= on.retired ? nullptr : on.events[event.sequence % kEventRing];
}

Status CudaBackend::wait_on_async(const Event& event, Stream& stream) {
  STRATA_TRY(select_device());
  if (event.stream < 0 || event.stream == stream.id()) return {};
  CudaStreamState& to = stream_state(stream.id());
  const ThirdPartyScope scope;
  if (const cudaEvent_t handle = pending_event(event); handle != nullptr) {
    if (timeline_ && !is_timed_by_host(to))
      STRATA_CUDA_BACKEND_TRY(timeline_->mark_wait(to.id, stream_state(event.stream).role));
    STRATA_CUDA_BACKEND_TRY(cudaStreamWaitEvent(to.stream, handle, 0));
  }
  WaitClock from{};
  {
    CudaStreamState& other = stream_state(event.stream);
    const MutexLock lock(other.mutex);
    from = other.waited;
  }
  const StreamRole on = stream_state(event.stream).role;
  const MutexLock lock(to.mutex);
  to.waits_on = on;
  for (std::size_t i = 0; i < kMaxCudaStreams; ++i) to.waited[i] = std::max(to.waited[i], from[i]);
  std::uint64_t& upto = to.waited[static_cast<std::size_t>(event.stream)];
  upto = std::max(upto, event.sequence);
  to.dirty = true;
  return {};
}

Status CudaBackend::stream_error(CudaStreamState& on, std::uint64_t sequence) {
  const MutexLock lock(on.mutex);
  return !on.error.is_ok() && on.error_at <= sequence ? on.error : Status();
}

Status CudaBackend::inherited_error(const WaitClock& waited) {
  for (std::size_t i = 0; i < kMaxCudaStreams; ++i)
    if (waited[i] > 0) STRATA_TRY(stream_error(*stream_states_[i], waited[i]));
  return {};
}

Status CudaBackend::wait(const Event& event) {
  STRATA_TRY(select_device());
  if (event.stream < 0) return {};
  if (const cudaEvent_t handle = pending_event(event); handle != nullptr) {
    const HostWaitScope waits(stall_meter(), stream_state(event.stream).role);
    STRATA_CUDA_BACKEND_TRY(cudaEventSynchronize(handle));
  }
  CudaStreamState& on = stream_state(event.stream);
  STRATA_TRY(stream_error(on, event.sequence));
  WaitClock waited{};
  {
    const MutexLock lock(on.mutex);
    on.retired = std::max(on.retired, event.sequence);
    waited = on.waited;
  }
  return inherited_error(waited);
}

bool CudaBackend::is_complete(const Event& event) noexcept {
  if (!select_device().is_ok()) return true;  // nothing more will complete; wait() returns the reason
  const cudaEvent_t handle = pending_event(event);
  if (handle == nullptr) return true;
  const cudaError_t error = cudaEventQuery(handle);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  if (error != cudaSuccess) (void)record_failure(error, "cudaEventQuery", __LINE__);
  return true;
}

}  // namespace strata::detail
