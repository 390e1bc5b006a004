#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <strata/runtime/backend.h>
#include <strata/runtime/stall_meter.h>
#include <strata/runtime/thread_annotations.h>

#include "host/stream_executor.h"

namespace strata::detail {

inline constexpr std::size_t kMaxStreams = 256;

/// One stream: a ring of entries that its feeder fills and its schedule empties. The n-th entry has sequence
/// n, from 1; an event is the sequence of the last entry queued before it, so recording one costs nothing. A
/// slot outlives its Stream and is used again with the sequence going on, so old events stay complete for
/// ever.
struct StreamSlot {
  StreamSlot(int slot_id, std::size_t depth) : id(slot_id), ring(depth), ends_ns(depth, 0) {}
  const int id;
  StreamRole role = StreamRole::compute;  // written while no Stream uses the slot

  // Entries in [completed, queued) belong to the schedule, the next free one to the feeder.
  std::vector<StreamEntry> ring;

  Mutex mutex;
  Condition work_ready, progress;
  std::uint64_t queued STRATA_GUARDED_BY(mutex) = 0;
  std::uint64_t completed STRATA_GUARDED_BY(mutex) = 0;
  // The first sequence that somebody waits for: nobody is woken before, since a thread that wakes only to
  // sleep again takes the core of one that computes.
  std::uint64_t wake_at STRATA_GUARDED_BY(mutex) = kNoWaiter;
  static constexpr std::uint64_t kNoWaiter = UINT64_MAX;
  std::vector<std::int64_t> ends_ns STRATA_GUARDED_BY(mutex);  // when recent entries ended, by sequence
  std::int64_t free_ns STRATA_GUARDED_BY(mutex) = INT64_MIN;   // when the last one ended
  Status error STRATA_GUARDED_BY(mutex);
  std::uint64_t error_at STRATA_GUARDED_BY(mutex) = 0;  // the sequence that failed
  bool open STRATA_GUARDED_BY(mutex) = false;
  bool stopping STRATA_GUARDED_BY(mutex) = false;
  std::jthread worker;  // threads schedule only
};

/// When queued work runs. Slots are never freed before the scheduler, so a pointer to one stays good.
class StreamScheduler {
 public:
  /// `stalls` may be null.
  StreamScheduler(StreamExecutor& executor, std::size_t depth, StallMeter* stalls)
      : executor_(executor), depth_(depth), stalls_(stalls) {}
  virtual ~StreamScheduler() = default;
  StreamScheduler(const StreamScheduler&) = delete;
  StreamScheduler& operator=(const StreamScheduler&) = delete;

  /// Errors: `does_not_fit` past kMaxStreams, `out_of_memory` if no thread can be had.
  Result<int> open(StreamRole role);
  /// Runs what is left, then gives the slot back.
  void close(int id);

  /// The entry to fill next; where the queue is full it waits until half of it is done, so that a feeder that
  /// is far ahead wakes seldom. Feeder only, then publish().
  virtual StreamEntry& claim(int id) = 0;
  virtual void publish(int id) = 0;
  /// Returns once the event has completed, with the error that struck its stream by then.
  virtual Status await(const Event& event) = 0;
  virtual bool poll(const Event& event) = 0;

  Event last_event(int id);
  /// Everything queued on every stream so far is done.
  void drain();
  /// Puts an error on a stream from outside; queued work that has not begun is skipped.
  void fail(int id, std::uint64_t sequence, Status error);
  StreamSlot& slot(int id);
  std::size_t open_streams();
  std::uint64_t streams_created();

 protected:
  virtual Status start(StreamSlot& slot) = 0;
  virtual void stop(StreamSlot& slot) = 0;

  /// Runs the head entry of `slot`, whose event (if it waits) has completed on `awaited`.
  struct Head {
    const StreamEntry* entry;
    bool skip;
    std::int64_t ready_ns;
  };
  Head head(StreamSlot& slot) STRATA_REQUIRES(slot.mutex);
  void finish(StreamSlot& slot, StreamExecutor::Outcome outcome) STRATA_REQUIRES(slot.mutex);
  static void wait_until(StreamSlot& slot, std::uint64_t completed) STRATA_REQUIRES(slot.mutex);
  /// What a stream takes over from an event it waited for.
  StreamExecutor::Outcome inherit(const Event& event, std::int64_t ready_ns);

  StreamExecutor& executor_;
  const std::size_t depth_;
  StallMeter* const stalls_;
  Mutex table_mutex_;
  // Written under the lock; read without it by id, which reached the reader after the write.
  std::array<std::unique_ptr<StreamSlot>, kMaxStreams> slots_;
  std::uint64_t created_ STRATA_GUARDED_BY(table_mutex_) = 0;
};

std::unique_ptr<StreamScheduler> make_threaded_scheduler(StreamExecutor& executor, std::size_t depth,
                                                         StallMeter* stalls);
std::unique_ptr<StreamScheduler> make_latest_legal_scheduler(StreamExecutor& executor, std::size_t depth);

}  // namespace strata::detail
