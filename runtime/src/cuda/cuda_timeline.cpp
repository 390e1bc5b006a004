#include "cuda/cuda_timeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include <strata/runtime/alloc_counter.h>

namespace strata::detail {
namespace {

constexpr std::size_t kMostLanes = 64;
constexpr double kOriginAge =
    1e9;  // ns: floats of milliseconds since then are exact to a tenth of a microsecond

}  // namespace

std::int64_t GpuClock::host_ns(double gpu_ns, std::int64_t queued_ns, std::int64_t seen_ns) noexcept {
  if (!std::exchange(known_, true)) offset_ns_ = static_cast<double>(queued_ns) - gpu_ns;
  // Queued is the firmer bound: what was seen late was only looked at late.
  offset_ns_ = std::min(offset_ns_, static_cast<double>(seen_ns) - gpu_ns);
  offset_ns_ = std::max(offset_ns_, static_cast<double>(queued_ns) - gpu_ns);
  return static_cast<std::int64_t>(gpu_ns + offset_ns_);
}

CudaTimeline::CudaTimeline(const Clock& clock, Trace* trace)
    : clock_(clock),
      meter_(clock, trace == nullptr ? nullptr : &trace->add_track("compute waits for"),
             [this] { collect(); }) {
  lanes_.resize(kMostLanes);
  if (trace == nullptr) return;
  for (std::size_t role = 0; role < kStreamRoles; ++role)
    tracks_[role] = &trace->add_track(std::string(to_string(static_cast<StreamRole>(role))));
}

CudaTimeline::~CudaTimeline() {
  const MutexLock lock(mutex_);
  for (const Lane& lane : lanes_)
    for (const Mark& mark : lane.marks)
      if (mark.event != nullptr) (void)cudaEventDestroy(mark.event);  // nobody is left to tell
  if (origin_ != nullptr) (void)cudaEventDestroy(origin_);
}

cudaError_t CudaTimeline::open(int id, StreamRole role, cudaStream_t stream, std::uint64_t& made) {
  const MutexLock lock(mutex_);
  collect_all();  // what there was before under this id
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  lane.doing = Kind::ends;
  lane.role = role;
  lane.stream = stream;
  lane.marks.resize(kMarkRing);
  const auto make = [&](cudaEvent_t& event) {
    if (event != nullptr) return cudaSuccess;
    const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
    made += error == cudaSuccess ? 1 : 0;
    return error;
  };
  for (Mark& mark : lane.marks)
    if (const cudaError_t error = make(mark.event); error != cudaSuccess) return error;
  if (origin_ != nullptr) return cudaSuccess;
  if (const cudaError_t error = make(origin_); error != cudaSuccess) return error;
  const cudaError_t error = cudaEventRecord(origin_, stream);
  if (error != cudaSuccess) (void)cudaEventDestroy(std::exchange(origin_, nullptr));
  return error;
}

cudaError_t CudaTimeline::begins(int id) {
  const MutexLock lock(mutex_);
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  return lane.doing == Kind::begins ? cudaSuccess : push(lane, Kind::begins, lane.role);
}

cudaError_t CudaTimeline::waits(int id, StreamRole on) {
  const MutexLock lock(mutex_);
  return push(lanes_[static_cast<std::size_t>(id)], Kind::waits, on);
}

cudaError_t CudaTimeline::ends(int id) {
  const MutexLock lock(mutex_);
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  return lane.doing == Kind::ends ? cudaSuccess : push(lane, Kind::ends, lane.role);
}

void CudaTimeline::ran(StreamRole role, const char* label, std::int64_t begin_ns,
                       std::int64_t end_ns) noexcept {
  meter_.busy(role, begin_ns);
  meter_.idle(role, end_ns);
  if (Trace::Track* track = tracks_[static_cast<std::size_t>(role)]; track != nullptr)
    track->span(label, 0, begin_ns, end_ns);
}

// Where the device is a whole ring behind, a mark is left out, and the next one of its kind tries again: what
// they would have told apart counts as one.
cudaError_t CudaTimeline::push(Lane& lane, Kind kind, StreamRole on) {
  if (lane.pushed - lane.passed == kMarkRing) collect_all();
  if (lane.pushed - lane.passed == kMarkRing) return cudaSuccess;
  const ThirdPartyScope scope;
  Mark& mark = lane.marks[lane.pushed % kMarkRing];
  mark.kind = kind;
  mark.on = on;
  mark.queued_ns = clock_.now_ns();
  if (const cudaError_t error = cudaEventRecord(mark.event, lane.stream); error != cudaSuccess) return error;
  lane.doing = kind;
  ++lane.pushed;
  return cudaSuccess;
}

void CudaTimeline::collect() {
  const MutexLock lock(mutex_);
  collect_all();
}

void CudaTimeline::collect_all() {
  if (origin_ == nullptr) return;
  const ThirdPartyScope scope;
  if (!origin_passed_) origin_passed_ = cudaEventQuery(origin_) == cudaSuccess;
  const std::int64_t now = clock_.now_ns();
  std::int64_t settled = now;
  for (Lane& lane : lanes_) {
    while (origin_passed_ && lane.passed < lane.pushed && pass(lane)) ++lane.passed;
    if (lane.passed == lane.pushed) continue;
    // What has not passed comes after what has, and after it was queued.
    settled = std::min(settled, std::max(lane.last_ns, lane.marks[lane.passed % kMarkRing].queued_ns));
  }
  (void)cudaGetLastError();  // "not ready" is no error
  meter_.settle(settled);
  if (origin_passed_) move_origin(settled);
}

// False where the mark is still to come.
bool CudaTimeline::pass(Lane& lane) {
  const Mark& mark = lane.marks[lane.passed % kMarkRing];
  float since_origin_ms = 0;
  if (cudaEventQuery(mark.event) != cudaSuccess ||
      cudaEventElapsedTime(&since_origin_ms, origin_, mark.event) != cudaSuccess)
    return false;
  lane.last_gpu_ns = origin_gpu_ns_ + 1e6 * static_cast<double>(since_origin_ms);
  const std::int64_t at =
      std::max(lane.last_ns, gpu_clock_.host_ns(lane.last_gpu_ns, mark.queued_ns, clock_.now_ns()));
  lane.last_ns = at;
  if (lane.busy) {
    busy_ns_[static_cast<std::size_t>(lane.role)].fetch_add(at - lane.since_ns, std::memory_order_relaxed);
    if (Trace::Track* track = tracks_[static_cast<std::size_t>(lane.role)]; track != nullptr)
      track->span("works", 0, lane.since_ns, at);
  }
  lane.busy = mark.kind == Kind::begins;
  lane.since_ns = at;
  if (mark.kind == Kind::begins) meter_.busy(lane.role, at);
  if (mark.kind == Kind::waits) meter_.waits(lane.role, mark.on, at);
  if (mark.kind == Kind::ends) meter_.idle(lane.role, at);
  return true;
}

// To a mark that no later one can come before.
void CudaTimeline::move_origin(std::int64_t settled_ns) {
  Lane* latest = nullptr;
  for (Lane& lane : lanes_)
    if (lane.passed > 0 && lane.pushed - lane.passed < kMarkRing && lane.last_ns <= settled_ns &&
        (latest == nullptr || lane.last_gpu_ns > latest->last_gpu_ns))
      latest = &lane;
  if (latest == nullptr || latest->last_gpu_ns < origin_gpu_ns_ + kOriginAge) return;
  std::swap(origin_, latest->marks[(latest->passed - 1) % kMarkRing].event);
  origin_gpu_ns_ = latest->last_gpu_ns;
}

}  // namespace strata::detail
