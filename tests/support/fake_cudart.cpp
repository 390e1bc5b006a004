#include "support/fake_cudart.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

namespace {

std::atomic<const char*> gpu_name{"fake GPU"};

std::mutex fault_mutex;
const char* fault_in = "";
cudaError_t fault = cudaSuccess;
thread_local cudaError_t last_error = cudaSuccess;

std::atomic<bool> host_functions_dropped{false};

std::mutex registered_mutex;
std::map<const std::byte*, std::size_t> registered;

// Whether the range begins in one registration and ends past it.
bool straddles(const void* p, std::size_t bytes) {
  const std::lock_guard lock(registered_mutex);
  const auto* const begin = static_cast<const std::byte*>(p);
  auto after = registered.upper_bound(begin);
  if (after == registered.begin()) return false;
  --after;
  return begin < after->first + after->second && begin + bytes > after->first + after->second;
}

cudaError_t enter(std::string_view function) {
  const std::lock_guard lock(fault_mutex);
  if (function != fault_in) return cudaSuccess;
  fault_in = "";
  return last_error = fault;
}

}  // namespace

std::size_t strata::test::registered_ranges() {
  const std::lock_guard lock(registered_mutex);
  return registered.size();
}

#define FAKE_ENTER() \
  if (const cudaError_t error = enter(__func__); error != cudaSuccess) return error

struct CUevent_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, completed = 0;
  std::chrono::steady_clock::time_point completed_at{};

  void await(std::uint64_t generation) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= generation; });
  }
  std::uint64_t generation() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
};

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool busy = false, stopping = false;
  std::thread worker{[this] { run(); }};

  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.empty() && !busy; });
  }
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      const std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      work();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
      changed.notify_all();
    }
    worker.join();
  }
};

namespace strata::test {

void name_gpu(const char* name) { gpu_name = name; }
void fail_next_cuda(const char* function, cudaError_t error) {
  const std::lock_guard lock(fault_mutex);
  fault_in = function;
  fault = error;
}
void drop_host_functions(bool lost) { host_functions_dropped = lost; }
}  // namespace strata::test

// Deliberately not 4096-aligned, since cudaMalloc only guarantees 256.
constexpr std::size_t kOffset = 256;

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) {
  FAKE_ENTER();
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  FAKE_ENTER();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  FAKE_ENTER();
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  FAKE_ENTER();
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "%s", gpu_name.load());
  properties->totalGlobalMem = std::size_t{1} << 30;
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  FAKE_ENTER();
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  FAKE_ENTER();
  *total = std::size_t{1} << 30;
  *free = *total / 4;
  return cudaSuccess;
}
// A PCI slot that no machine has.
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int) {
  FAKE_ENTER();
  std::snprintf(id, static_cast<std::size_t>(bytes), "FFFF:FF:1F.7");
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorFake";
}
const char* cudaGetErrorString(cudaError_t) { return "planted"; }

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  FAKE_ENTER();
  *p = static_cast<char*>(std::aligned_alloc(4096, (bytes + kOffset + 4095) / 4096 * 4096)) + kOffset;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  FAKE_ENTER();
  std::free(static_cast<char*>(p) - kOffset);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  FAKE_ENTER();
  const std::lock_guard lock(registered_mutex);
  registered[static_cast<const std::byte*>(p)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  const std::lock_guard lock(registered_mutex);
  return registered.erase(static_cast<const std::byte*>(p)) == 1 ? cudaSuccess
                                                                 : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  FAKE_ENTER();
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FAKE_ENTER();
  stream->drain();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FAKE_ENTER();
  const std::lock_guard lock(stream->mutex);
  return stream->queue.empty() && !stream->busy ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  FAKE_ENTER();
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE_ENTER();
  std::uint64_t generation = 0;
  {
    const std::lock_guard lock(event->mutex);
    generation = ++event->recorded;
  }
  stream->push([event, generation] {
    const std::lock_guard lock(event->mutex);
    event->completed = generation;
    event->completed_at = std::chrono::steady_clock::now();
    event->changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  FAKE_ENTER();
  const auto at = [](cudaEvent_t event) {
    const std::lock_guard lock(event->mutex);
    return event->completed_at;
  };
  *ms = std::chrono::duration<float, std::milli>(at(end) - at(begin)).count();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_ENTER();
  const std::lock_guard lock(event->mutex);
  return event->completed == event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE_ENTER();
  event->await(event->generation());
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FAKE_ENTER();
  stream->push([event, generation = event->generation()] { event->await(generation); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind) {
  FAKE_ENTER();
  std::memcpy(dst, src, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  FAKE_ENTER();
  if (straddles(dst, bytes) || straddles(src, bytes)) return cudaErrorInvalidValue;
  stream->push([=] { std::memcpy(dst, src, bytes); });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* state) {
  FAKE_ENTER();
  if (host_functions_dropped) return cudaSuccess;
  stream->push([=] { function(state); });
  return cudaSuccess;
}

}  // extern "C"
