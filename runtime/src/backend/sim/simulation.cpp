#include <strata/runtime/backend/simulation.h>

#include <cmath>
#include <utility>
#include <vector>

#include <strata/runtime/assert.h>

#include "backend/host/host_allocator.h"
#include "backend/sim/sim_lanes.h"
#include "backend/sim/sim_scheduler.h"

namespace strata {
namespace detail {
namespace {

/// The virtual time of the thread that queues work.
class SimClock final : public Clock {
 public:
  explicit SimClock(SimLanes& lanes) : lanes_(lanes) {}
  std::int64_t now_ns() const noexcept override { return std::llround(lanes_.now_ns()); }
  void wait_until(std::int64_t deadline_ns) override {
    lanes_.advance(std::max(0.0, static_cast<double>(deadline_ns) - lanes_.now_ns()));
  }

 private:
  SimLanes& lanes_;
};

/// The lanes' clock, by whose time their work is accounted for.
class LanesClock final : public Clock {
 public:
  explicit LanesClock(const SimLanes& lanes) : lanes_(lanes) {}
  std::int64_t now_ns() const noexcept override { return std::llround(lanes_.lanes_now_ns()); }
  void wait_until(std::int64_t) override { STRATA_ASSERT(false, "lanes do not wait for a time"); }

 private:
  const SimLanes& lanes_;
};

class SimBackend final : public Backend {
 public:
  SimBackend(const SimOptions& options, SimLanes& lanes, SimScheduler& scheduler)
      : options_(options),
        lanes_(lanes),
        scheduler_(scheduler),
        memory_({.fill = Fill::unreachable, .huge_pages = false}),
        clock_(lanes),
        stalls_(clock_, nullptr) {
    lanes_.set_meter(&stalls_);
  }
  ~SimBackend() override { lanes_.set_meter(nullptr); }

  const DeviceInfo& info() const noexcept override { return info_; }
  Result<Buffer> allocate(MemoryKind kind, std::size_t bytes) override {
    STRATA_TRY_ASSIGN(const BufferView view, memory_.allocate(kind, bytes, nullptr));
    return Buffer(this, kind, view);
  }
  Result<Stream> create_stream(StreamRole role) override {
    roles_.push_back(role);
    return Stream(this, static_cast<int>(roles_.size()) - 1, role);
  }

  Status copy_async(BufferView dst, ConstBufferView src, Stream& stream) override {
    STRATA_TRY(memory_.check_copy(dst, src));
    if (dst.bytes == 0) return {};
    const SimLane lane = lane_of(stream.id());
    ++copies_;
    copied_bytes_[static_cast<std::size_t>(lane)] += dst.bytes;
    queue(lane, transfer_ns(options_, lane, dst.bytes), "copy", static_cast<std::int64_t>(dst.bytes));
    return {};
  }
  Status host_call_async(const HostCall& call, Stream& stream) override {
    if (!call) return Status::error(Code::invalid, "a host call has no function");
    queue(lane_of(stream.id()), static_cast<double>(call.paced_ns()), call.label(), 0);
    return {};
  }
  Status discard_async(BufferView view, Stream& stream) override {
    (void)stream;
    return memory_.check_bounds("discard", view.data, view.bytes);
  }

  Result<Event> record(Stream& stream) override {
    return Event{stream.id(), lanes_.queued(lane_of(stream.id()))};
  }
  Status wait_on_async(const Event& event, Stream& stream) override {
    if (event.stream >= 0) lanes_.push_wait(lane_of(stream.id()), point_of(event));
    return {};
  }
  Status wait(const Event& event) override {
    if (event.stream < 0) return {};
    lanes_.catch_up();
    const HostWaitScope waits(&stalls_, roles_[static_cast<std::size_t>(event.stream)]);
    lanes_.run_until(point_of(event));
    return scheduler_.status();
  }
  bool is_complete(const Event& event) noexcept override {
    if (event.stream < 0 || lanes_.is_complete(point_of(event))) return true;
    lanes_.catch_up();
    return lanes_.is_complete(point_of(event));
  }
  Status host_access(const Access& access) override {
    (void)access;
    return {};
  }

  BackendCounters counters() const override {
    lanes_.catch_up();
    BackendCounters counters;
    counters.buffers_created = memory_.created();
    counters.streams_created = roles_.size();
    counters.copies = copies_;
    counters.copied_bytes = copied_bytes_;
    for (std::size_t i = 0; i < kStreamRoles; ++i)
      counters.busy_ns[i] = std::llround(lanes_.busy_ns(static_cast<SimLane>(i)));
    return counters;
  }
  StallMeter* stall_meter() noexcept override {
    lanes_.catch_up();
    return &stalls_;
  }

  static double transfer_ns(const SimOptions& options, SimLane lane, std::size_t bytes) noexcept {
    const SimOptions::Rate& rate = options.rates[static_cast<std::size_t>(lane)];
    return 1e9 *
           (rate.latency_s + (rate.bytes_per_s > 0 ? static_cast<double>(bytes) / rate.bytes_per_s : 0));
  }

 protected:
  void release(MemoryKind kind, BufferView view) noexcept override { memory_.release(kind, view); }
  void abandon(BufferView view) noexcept override { memory_.abandon(view); }
  void destroy_stream(int id) noexcept override { (void)id; }

 private:
  SimLane lane_of(int stream) const noexcept {
    return static_cast<SimLane>(roles_[static_cast<std::size_t>(stream)]);
  }
  SimPoint point_of(const Event& event) const noexcept { return {lane_of(event.stream), event.sequence}; }
  void queue(SimLane lane, double ns, const char* label, std::int64_t arg) {
    lanes_.spend(options_.launch_overhead_s * 1e9);
    lanes_.push_work(lane, ns, label, arg);
  }

  const SimOptions& options_;
  SimLanes& lanes_;
  const SimScheduler& scheduler_;
  const DeviceInfo info_{DeviceKind::null, "simulated", 0};
  HostAllocator memory_;
  const LanesClock clock_;
  StallMeter stalls_;
  std::vector<StreamRole> roles_;
  std::uint64_t copies_ = 0;
  std::array<std::uint64_t, kStreamRoles> copied_bytes_{};
};

class SimulatedMachine final : public Simulation {
 public:
  /// `world`: of several ranks; null: it has a clock of its own.
  SimulatedMachine(const SimOptions& options, SimWorld* world, int rank)
      : options_(options),
        own_(world == nullptr ? std::make_unique<SimScheduler>(1) : nullptr),
        scheduler_(world == nullptr ? *own_ : world->scheduler()),
        lanes_(options_, scheduler_, rank),
        clock_(lanes_),
        backend_(options_, lanes_, scheduler_) {}

  Backend& backend() noexcept override { return backend_; }
  Clock& clock() noexcept override { return clock_; }
  void set_trace(Trace& trace, std::string_view prefix) override { lanes_.set_trace(trace, prefix); }

  void meet(StreamRole role, std::int64_t ns, const char* label,
            std::shared_ptr<SimMeeting> meeting) override {
    lanes_.spend(options_.launch_overhead_s * 1e9);
    lanes_.push_meeting(static_cast<SimLane>(role), static_cast<double>(ns), label, 0, std::move(meeting));
  }
  std::uint64_t request(SimLane lane, std::size_t bytes) override {
    STRATA_ASSERT(lane == SimLane::nvme_read || lane == SimLane::nvme_write,
                  "a request must go to lane nvme_read or nvme_write");
    transferred_[static_cast<std::size_t>(lane)] += bytes;
    lanes_.advance(options_.launch_overhead_s * 1e9);
    return lanes_.push_work(lane, SimBackend::transfer_ns(options_, lane, bytes), "request",
                            static_cast<std::int64_t>(bytes));
  }
  void wait(SimLane lane, std::uint64_t number) override { lanes_.run_until({lane, number}); }
  bool wait_for(SimLane lane, std::uint64_t number, std::int64_t ns) override {
    return lanes_.run_until({lane, number}, static_cast<double>(ns));
  }
  double busy_s(SimLane lane) const noexcept override { return lanes_.busy_ns(lane) * 1e-9; }
  std::uint64_t transferred_bytes(SimLane lane) const noexcept override {
    const auto i = static_cast<std::size_t>(lane);
    return i < kStreamRoles ? backend_.counters().copied_bytes[i] : transferred_[i];
  }

 private:
  const SimOptions options_;
  const std::unique_ptr<SimScheduler> own_;
  SimScheduler& scheduler_;
  SimLanes lanes_;
  SimClock clock_;
  SimBackend backend_;
  std::array<std::uint64_t, kSimLanes> transferred_{};
};

}  // namespace
}  // namespace detail

std::unique_ptr<Simulation> Simulation::create(const SimOptions& options) {
  return std::make_unique<detail::SimulatedMachine>(options, nullptr, 0);
}
std::unique_ptr<Simulation> Simulation::create(const SimOptions& options, SimWorld& world, int rank) {
  return std::make_unique<detail::SimulatedMachine>(options, &world, rank);
}

}  // namespace strata
