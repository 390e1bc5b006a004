#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/backend/cuda_backend_options.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/threads/thread_pool.h>

#include "backend/cuda/cuda_devices.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_allocator.h"
#include "backend/cuda/cuda_stream_state.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/cuda_timeline.h"

// Like STRATA_CUDA_TRY, for members of CudaBackend, which remembers a sticky error.
#define STRATA_CUDA_BACKEND_TRY(call)                                                   \
  do {                                                                                  \
    if (const cudaError_t strata_cuda_error = (call); strata_cuda_error != cudaSuccess) \
      return record_failure(strata_cuda_error, #call, __LINE__);                        \
  } while (false)

namespace strata::detail {

/// Thread-safe. Every entry point selects the device, since calls come from any thread.
class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaBackendOptions& options, DeviceInfo info, ThreadPool& pool)
      : device_(options.device),
        info_(std::move(info)),
        pool_(pool),
        memory_({options.device_bytes, options.pinned_bytes, Fill::zero, options.huge_pages, 0,
                 numa_node_of_gpu(options.device)},
                options.registration_bytes) {
    if (options.timed) timeline_.emplace(clock_, options.trace);
  }
  ~CudaBackend() override;

  const DeviceInfo& info() const noexcept override { return info_; }
  Result<Buffer> allocate(MemoryKind kind, std::size_t bytes) override;
  Result<Stream> create_stream(StreamRole role) override;
  Status copy_async(BufferView dst, ConstBufferView src, Stream& stream) override;
  Status host_call_async(const HostCall& call, Stream& stream) override;
  Status discard_async(BufferView view, Stream& stream) override {
    (void)stream;
    return memory_.check_bounds("discard", view.data, view.bytes);
  }
  Result<Event> record(Stream& stream) override;
  Status wait_on_async(const Event& event, Stream& stream) override;
  Status wait(const Event& event) override;
  bool is_complete(const Event& event) noexcept override;
  Status host_access(const Access& access) override {
    (void)access;
    return {};
  }
  BackendCounters counters() const override;
  StallMeter* stall_meter() noexcept override { return timeline_ ? &timeline_->meter() : nullptr; }

  /// Makes the device the calling thread's current one. Errors: the error by which the device was lost.
  Status select_device();
  Result<cudaStream_t> begin_enqueue(int id);

 protected:
  void release(MemoryKind kind, BufferView view) noexcept override;
  void abandon(BufferView view) noexcept override { memory_.abandon(view); }
  void destroy_stream(int id) noexcept override;

 private:
  static void CUDART_CB run_call(void* state) noexcept;
  void record_host_call(const CudaHostCall& slot, std::int64_t begin_ns, std::int64_t end_ns) noexcept;
  Status record_failure(cudaError_t error, const char* call, int line);
  Status init_stream_state(CudaStreamState& stream_state);
  Status acquire_stream_state(StreamRole role, CudaStreamState*& taken) STRATA_EXCLUDES(table_mutex_);
  CudaStreamState& stream_state(int id);
  Status wait_for_call_slot(CudaStreamState& to);
  cudaEvent_t pending_event(const Event& event);
  Status stream_error(CudaStreamState& stream_state, std::uint64_t sequence);
  Status inherited_error(const WaitClock& waited);

  static bool is_timed_by_host(const CudaStreamState& stream_state) noexcept {
    return stream_state.role == StreamRole::cpu;
  }

  const int device_;
  const DeviceInfo info_;
  ThreadPool& pool_;
  CudaAllocator memory_;
  const SteadyClock clock_;
  mutable std::optional<CudaTimeline> timeline_;

  std::atomic<bool> lost_{false};  // once set, lost_status_ no longer changes
  Mutex lost_mutex_;
  Status lost_status_ STRATA_GUARDED_BY(lost_mutex_);

  mutable Mutex table_mutex_;
  // Written under the lock. Read without it by a stream id, which its owner can only have obtained after the
  // write.
  std::array<std::unique_ptr<CudaStreamState>, kMaxCudaStreams> stream_states_;
  std::uint64_t streams_created_ STRATA_GUARDED_BY(table_mutex_) = 0;

  std::atomic<std::uint64_t> events_created_{0}, copies_{0};
  std::array<std::atomic<std::uint64_t>, kStreamRoles> copied_bytes_{};
  std::array<std::atomic<std::int64_t>, kStreamRoles> busy_ns_{};
};

}  // namespace strata::detail
