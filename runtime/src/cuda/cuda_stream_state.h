#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <strata/runtime/backend.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::detail {

inline constexpr std::size_t kMaxCudaStreams = 64;
inline constexpr std::size_t kEventRing = 256;  ///< recordings a stream may be ahead of its device
inline constexpr std::size_t kCallRing = 128;   ///< host calls a stream may be ahead

class CudaBackend;
struct CudaStreamState;

/// For each stream, up to which of its events another has waited: where errors may come from.
using WaitClock = std::array<std::uint64_t, kMaxCudaStreams>;

/// The state of one queued host call; stays put until it ran.
struct CudaHostCall {
  CudaBackend* backend = nullptr;
  CudaStreamState* stream_state = nullptr;
  std::uint64_t sequence = 0;  // the first event that covers it
  WaitClock waited{};
  HostCall call;
  std::optional<StreamRole> waits_on;  // the last that the stream waits for between the call before and this
};

/// One stream with its pools, made once and used again by later Streams. Events are numbered from 1; number n
/// lives in slot n % kEventRing, and is recorded over only once it has completed, so what has left the ring
/// is complete. The mutex is a leaf and is never held over a CUDA call: the driver's callback thread takes it
/// too.
struct CudaStreamState {
  int id = 0;
  StreamRole role = StreamRole::compute;  // written while no Stream uses the queue
  cudaStream_t stream = nullptr;
  std::array<cudaEvent_t, kEventRing> events{};
  std::vector<CudaHostCall> calls = std::vector<CudaHostCall>(kCallRing);

  Mutex mutex;
  Condition call_ended;
  bool open STRATA_GUARDED_BY(mutex) = false;
  bool dirty STRATA_GUARDED_BY(mutex) = false;          // work was queued since the last recording
  std::uint64_t recorded STRATA_GUARDED_BY(mutex) = 0;  // the last event
  std::uint64_t retired STRATA_GUARDED_BY(mutex) = 0;   // events up to here are complete
  std::uint64_t calls_queued STRATA_GUARDED_BY(mutex) = 0;
  std::uint64_t calls_ended STRATA_GUARDED_BY(mutex) = 0;
  WaitClock waited STRATA_GUARDED_BY(mutex) = {};
  std::optional<StreamRole> waits_on STRATA_GUARDED_BY(mutex);  // since the last call was queued
  Status error STRATA_GUARDED_BY(mutex);
  std::uint64_t error_at STRATA_GUARDED_BY(mutex) = 0;  // the first event that carries it
};

}  // namespace strata::detail
