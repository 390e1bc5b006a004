#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::detail {

inline constexpr std::size_t kMaxCudaStreams = 64;
inline constexpr std::size_t kEventRing = 256;  ///< recordings by which a stream may be ahead of its device
inline constexpr std::size_t kCallRing = 128;   ///< host calls by which a stream may be ahead of its device

class CudaBackend;
struct CudaStreamState;

/// For each stream, the last of its events that another stream has waited for, and so may inherit an error
/// from.
using WaitClock = std::array<std::uint64_t, kMaxCudaStreams>;

/// The state of one queued host call; its address is stable until it has run.
struct CudaHostCall {
  CudaBackend* backend = nullptr;
  CudaStreamState* stream_state = nullptr;
  std::uint64_t sequence = 0;  // the first event that covers it
  WaitClock waited{};
  HostCall call;
  std::optional<StreamRole> waits_on;  // role of the last stream waited for since the previous call
};

/// One stream with its event and call pools, created once and reused by later Streams. Events are numbered
/// from 1. Event n is stored in slot n % kEventRing, which is recorded again only after the event has
/// completed, so events that have left the ring are complete. The mutex is a leaf and is never held over a
/// CUDA call, because the driver's callback thread takes it too.
struct CudaStreamState {
  int id = 0;
  StreamRole role = StreamRole::compute;  // written while no Stream uses this state
  cudaStream_t stream = nullptr;
  std::array<cudaEvent_t, kEventRing> events{};
  std::vector<CudaHostCall> calls = std::vector<CudaHostCall>(kCallRing);

  Mutex mutex;
  Condition call_ended;
  bool open STRATA_GUARDED_BY(mutex) = false;
  bool dirty STRATA_GUARDED_BY(mutex) = false;          // work was queued since the last event was recorded
  std::uint64_t recorded STRATA_GUARDED_BY(mutex) = 0;  // number of the last event
  std::uint64_t retired STRATA_GUARDED_BY(mutex) = 0;   // events up to this one are complete
  std::uint64_t calls_queued STRATA_GUARDED_BY(mutex) = 0;
  std::uint64_t calls_ended STRATA_GUARDED_BY(mutex) = 0;
  WaitClock waited STRATA_GUARDED_BY(mutex) = {};
  std::optional<StreamRole> waits_on STRATA_GUARDED_BY(mutex);  // last one since the last queued call
  Status error STRATA_GUARDED_BY(mutex);
  std::uint64_t error_at STRATA_GUARDED_BY(mutex) = 0;  // the first event that carries the error
};

}  // namespace strata::detail
