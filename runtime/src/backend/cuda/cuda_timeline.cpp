#include "backend/cuda/cuda_timeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include <strata/runtime/memory/alloc_counter.h>

namespace strata::detail {
namespace {

constexpr std::size_t kMaxTimelines = 64;
constexpr double kOriginAge = 1e9;  // ns: a float of milliseconds up to this age is exact to 0.1 us

}  // namespace

std::int64_t GpuClock::to_host_ns(double gpu_ns, std::int64_t queued_ns, std::int64_t seen_ns) noexcept {
  if (!std::exchange(has_offset_, true)) offset_ns_ = static_cast<double>(queued_ns) - gpu_ns;
  // The queued time is the firmer bound: a mark may be seen long after it completed.
  offset_ns_ = std::min(offset_ns_, static_cast<double>(seen_ns) - gpu_ns);
  offset_ns_ = std::max(offset_ns_, static_cast<double>(queued_ns) - gpu_ns);
  return static_cast<std::int64_t>(gpu_ns + offset_ns_);
}

CudaTimeline::CudaTimeline(const Clock& clock, Trace* trace)
    : clock_(clock),
      meter_(clock, trace == nullptr ? nullptr : &trace->add_track("compute stalls"), [this] { collect(); }) {
  timelines_.resize(kMaxTimelines);
  if (trace == nullptr) return;
  for (std::size_t role = 0; role < kStreamRoles; ++role)
    tracks_[role] = &trace->add_track(std::string(to_string(static_cast<StreamRole>(role))));
}

CudaTimeline::~CudaTimeline() {
  const MutexLock lock(mutex_);
  for (const StreamTimeline& timeline : timelines_)
    for (const Mark& mark : timeline.marks)
      if (mark.event != nullptr) (void)cudaEventDestroy(mark.event);  // there is nobody to report an error to
  if (origin_ != nullptr) (void)cudaEventDestroy(origin_);
}

cudaError_t CudaTimeline::add_stream(int id, StreamRole role, cudaStream_t stream, std::uint64_t& made) {
  const MutexLock lock(mutex_);
  collect_locked();  // collect what the previous stream with this id recorded
  StreamTimeline& timeline = timelines_[static_cast<std::size_t>(id)];
  timeline.last_pushed = Kind::end;
  timeline.role = role;
  timeline.stream = stream;
  timeline.marks.resize(kMarkRing);
  const auto make = [&](cudaEvent_t& event) {
    if (event != nullptr) return cudaSuccess;
    const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
    made += error == cudaSuccess ? 1 : 0;
    return error;
  };
  for (Mark& mark : timeline.marks)
    if (const cudaError_t error = make(mark.event); error != cudaSuccess) return error;
  if (origin_ != nullptr) return cudaSuccess;
  if (const cudaError_t error = make(origin_); error != cudaSuccess) return error;
  const cudaError_t error = cudaEventRecord(origin_, stream);
  if (error != cudaSuccess) (void)cudaEventDestroy(std::exchange(origin_, nullptr));
  return error;
}

cudaError_t CudaTimeline::mark_begin(int id, std::uint64_t sequence) {
  const MutexLock lock(mutex_);
  StreamTimeline& timeline = timelines_[static_cast<std::size_t>(id)];
  return timeline.last_pushed == Kind::begin ? cudaSuccess
                                             : push(timeline, Kind::begin, timeline.role, sequence);
}

cudaError_t CudaTimeline::mark_wait(int id, StreamRole on) {
  const MutexLock lock(mutex_);
  return push(timelines_[static_cast<std::size_t>(id)], Kind::wait, on);
}

cudaError_t CudaTimeline::mark_end(int id) {
  const MutexLock lock(mutex_);
  StreamTimeline& timeline = timelines_[static_cast<std::size_t>(id)];
  return timeline.last_pushed == Kind::end ? cudaSuccess : push(timeline, Kind::end, timeline.role);
}

void CudaTimeline::add_host_span(StreamRole role, const char* label, std::int64_t begin_ns,
                                 std::int64_t end_ns, const Event& covered_by) noexcept {
  meter_.busy(role, begin_ns);
  meter_.idle(role, end_ns);
  if (Trace::Track* track = tracks_[static_cast<std::size_t>(role)]; track != nullptr)
    track->span(label, 0, begin_ns, end_ns, {covered_by.stream, covered_by.sequence});
}

// If the device is a whole ring behind, the mark is left out and the next one of its kind tries again; the
// intervals it would have separated then count as one.
cudaError_t CudaTimeline::push(StreamTimeline& timeline, Kind kind, StreamRole on, std::uint64_t sequence) {
  if (timeline.pushed - timeline.passed == kMarkRing) collect_locked();
  if (timeline.pushed - timeline.passed == kMarkRing) return cudaSuccess;
  const ThirdPartyScope scope;
  Mark& mark = timeline.marks[timeline.pushed % kMarkRing];
  mark.kind = kind;
  mark.on = on;
  mark.sequence = sequence;
  mark.queued_ns = clock_.now_ns();
  if (const cudaError_t error = cudaEventRecord(mark.event, timeline.stream); error != cudaSuccess)
    return error;
  timeline.last_pushed = kind;
  ++timeline.pushed;
  return cudaSuccess;
}

void CudaTimeline::collect() {
  const MutexLock lock(mutex_);
  collect_locked();
}

void CudaTimeline::collect_locked() {
  if (origin_ == nullptr) return;
  const ThirdPartyScope scope;
  if (!origin_passed_) origin_passed_ = cudaEventQuery(origin_) == cudaSuccess;
  const std::int64_t now = clock_.now_ns();
  std::int64_t settled = now;
  for (StreamTimeline& timeline : timelines_) {
    while (origin_passed_ && timeline.passed < timeline.pushed && read_mark(timeline)) ++timeline.passed;
    if (timeline.passed == timeline.pushed) continue;
    // A mark that has not completed comes after the last completed one, and after it was queued.
    settled =
        std::min(settled, std::max(timeline.last_ns, timeline.marks[timeline.passed % kMarkRing].queued_ns));
  }
  (void)cudaGetLastError();  // clears "not ready", which is not an error
  meter_.apply_until(settled);
  if (origin_passed_) move_origin(settled);
}

// Returns false if the mark has not completed yet.
bool CudaTimeline::read_mark(StreamTimeline& timeline) {
  const Mark& mark = timeline.marks[timeline.passed % kMarkRing];
  float since_origin_ms = 0;
  if (cudaEventQuery(mark.event) != cudaSuccess ||
      cudaEventElapsedTime(&since_origin_ms, origin_, mark.event) != cudaSuccess)
    return false;
  timeline.last_gpu_ns = origin_gpu_ns_ + 1e6 * static_cast<double>(since_origin_ms);
  const std::int64_t at = std::max(
      timeline.last_ns, gpu_clock_.to_host_ns(timeline.last_gpu_ns, mark.queued_ns, clock_.now_ns()));
  timeline.last_ns = at;
  if (timeline.busy) {
    busy_ns_[static_cast<std::size_t>(timeline.role)].fetch_add(at - timeline.since_ns,
                                                                std::memory_order_relaxed);
    if (Trace::Track* track = tracks_[static_cast<std::size_t>(timeline.role)]; track != nullptr)
      track->span("busy", 0, timeline.since_ns, at,
                  {static_cast<std::int32_t>(&timeline - timelines_.data()), timeline.sequence});
  }
  timeline.busy = mark.kind == Kind::begin;
  timeline.sequence = mark.sequence;
  timeline.since_ns = at;
  if (mark.kind == Kind::begin) meter_.busy(timeline.role, at);
  if (mark.kind == Kind::wait) meter_.waits(timeline.role, mark.on, at);
  if (mark.kind == Kind::end) meter_.idle(timeline.role, at);
  return true;
}

// Moves the origin to a completed mark that no later mark can precede.
void CudaTimeline::move_origin(std::int64_t settled_ns) {
  StreamTimeline* latest = nullptr;
  for (StreamTimeline& timeline : timelines_)
    if (timeline.passed > 0 && timeline.pushed - timeline.passed < kMarkRing &&
        timeline.last_ns <= settled_ns && (latest == nullptr || timeline.last_gpu_ns > latest->last_gpu_ns))
      latest = &timeline;
  if (latest == nullptr || latest->last_gpu_ns < origin_gpu_ns_ + kOriginAge) return;
  std::swap(origin_, latest->marks[(latest->passed - 1) % kMarkRing].event);
  origin_gpu_ns_ = latest->last_gpu_ns;
}

}  // namespace strata::detail
