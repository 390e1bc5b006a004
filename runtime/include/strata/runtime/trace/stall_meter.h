#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/trace/trace.h>

namespace strata {

/// Why a device does not compute: the activity at the end of the chain of waits that starts at its compute
/// stream.
enum class StallCause : std::uint8_t {
  h2d,         ///< a host-to-device copy
  d2h,         ///< a device-to-host copy
  optimizer,   ///< the CPU stream: optimizer updates, gradient accumulation, norm partials
  nvme,        ///< NVMe reads and writes
  collective,  ///< communication with other ranks
  data,        ///< loading the next batch
  host,        ///< the thread that queues work: it has queued no more, or is doing something else
};
inline constexpr std::size_t kStallCauses = 7;
std::string_view to_string(StallCause cause) noexcept;

/// Nanoseconds since the meter was created that the compute stream was busy, or was stalled by each cause.
struct StallTimes {
  std::int64_t computing_ns = 0;
  std::array<std::int64_t, kStallCauses> stalled_ns{};

  std::int64_t of(StallCause cause) const noexcept { return stalled_ns[static_cast<std::size_t>(cause)]; }
  StallTimes& operator+=(const StallTimes& more) noexcept;
  StallTimes operator-(const StallTimes& before) const noexcept;
};

/// Attributes the time of a step. It is notified of every change of a stream's activity, follows the chain of
/// waits from the compute stream, and charges the time since the last change to the one cause at the end of
/// that chain. The times of all causes and the compute time therefore add up to the elapsed time. Assumes one
/// stream per role. Thread-safe; allocates nothing.
class StallMeter {
 public:
  /// `track` may be null; otherwise it gets a span for each stall, labeled with its cause.
  StallMeter(const Clock& clock, Trace::Track* track);
  virtual ~StallMeter() = default;
  StallMeter(const StallMeter&) = delete;
  StallMeter& operator=(const StallMeter&) = delete;

  void stream_is_idle(StreamRole role) noexcept { set(role, {Activity::idle, role}); }
  void stream_is_busy(StreamRole role) noexcept { set(role, {Activity::busy, role}); }
  void stream_waits(StreamRole role, StreamRole on) noexcept { set(role, {Activity::waits, on}); }

  virtual StallTimes times() noexcept;

 protected:
  friend class HostWaitScope;
  enum class Activity : std::uint8_t { idle, busy, waits };
  struct StreamState {
    Activity activity = Activity::idle;
    StreamRole on = StreamRole::compute;
  };
  /// The state of the thread that queues work: it waits for a stream, or for something else.
  struct HostState {
    bool for_stream = false;
    StreamRole on = StreamRole::compute;
    StallCause cause = StallCause::host;
  };
  virtual void set(StreamRole role, StreamState state) noexcept;
  virtual HostState set(HostState host) noexcept;

 private:
  StallCause cause() const noexcept STRATA_REQUIRES(mutex_);
  void charge() noexcept STRATA_REQUIRES(mutex_);
  void update_cause() noexcept STRATA_REQUIRES(mutex_);

  const Clock& clock_;
  Trace::Track* const track_;
  Mutex mutex_;
  std::array<StreamState, kStreamRoles> streams_ STRATA_GUARDED_BY(mutex_);
  HostState host_ STRATA_GUARDED_BY(mutex_);
  StallTimes times_ STRATA_GUARDED_BY(mutex_);
  bool computing_ STRATA_GUARDED_BY(mutex_) = false;
  StallCause stalled_for_ STRATA_GUARDED_BY(mutex_) = StallCause::host;  // valid while not computing
  std::int64_t charged_until_ns_ STRATA_GUARDED_BY(mutex_);
  std::int64_t stall_began_ns_ STRATA_GUARDED_BY(mutex_);
};

/// Reports to the meter that the thread that queues work is waiting, for the lifetime of the scope. `meter`
/// may be null.
class HostWaitScope {
 public:
  HostWaitScope(StallMeter* meter, StallCause cause) noexcept;
  HostWaitScope(StallMeter* meter, StreamRole on) noexcept;
  ~HostWaitScope();
  HostWaitScope(const HostWaitScope&) = delete;
  HostWaitScope& operator=(const HostWaitScope&) = delete;

 private:
  StallMeter* const meter_;
  StallMeter::HostState before_;
};

}  // namespace strata
