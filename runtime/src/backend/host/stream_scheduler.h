#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/thread_annotations.h>

#include "backend/host/stream_executor.h"

namespace strata::detail {

inline constexpr std::size_t kMaxStreams = 256;

/// One stream: a ring of entries that a producer thread fills and the scheduler empties. The n-th entry has
/// sequence number n, counted from 1. An event is the sequence number of the last entry queued before it, so
/// recording one costs nothing. A slot outlives its Stream; when it is reused the sequence numbers continue,
/// so old events stay complete.
struct StreamSlot {
  StreamSlot(int slot_id, std::size_t depth) : id(slot_id), ring(depth), ends_ns(depth, 0) {}
  const int id;
  StreamRole role = StreamRole::compute;  // written while no Stream uses the slot
  Trace::Track* track = nullptr;  // belongs to the thread that queues work, which gives it to each entry

  // Entries in [completed, queued) belong to the scheduler, the next free one to the producer thread.
  std::vector<StreamEntry> ring;

  Mutex mutex;
  Condition work_ready, progress;
  std::uint64_t queued STRATA_GUARDED_BY(mutex) = 0;
  std::uint64_t completed STRATA_GUARDED_BY(mutex) = 0;
  // The lowest sequence number that a thread waits for. Waiters are not notified before, since a thread that
  // wakes up only to sleep again takes the core of one that computes.
  std::uint64_t wake_at STRATA_GUARDED_BY(mutex) = kNoWaiter;
  static constexpr std::uint64_t kNoWaiter = UINT64_MAX;
  std::vector<std::int64_t> ends_ns STRATA_GUARDED_BY(mutex);  // end times of recent entries
  std::int64_t free_ns STRATA_GUARDED_BY(mutex) = INT64_MIN;   // when the last entry ended
  Status error STRATA_GUARDED_BY(mutex);
  std::uint64_t error_at STRATA_GUARDED_BY(mutex) = 0;  // the sequence number of the entry that failed
  bool open STRATA_GUARDED_BY(mutex) = false;
  bool stopping STRATA_GUARDED_BY(mutex) = false;
  std::jthread worker;  // only for the threads schedule
};

/// Decides when queued work runs. Slots live as long as the scheduler, so pointers to them stay valid.
class StreamScheduler {
 public:
  /// `stalls` may be null.
  StreamScheduler(StreamExecutor& executor, std::size_t depth, StallMeter* stalls)
      : executor_(executor), depth_(depth), stalls_(stalls) {}
  virtual ~StreamScheduler() = default;
  StreamScheduler(const StreamScheduler&) = delete;
  StreamScheduler& operator=(const StreamScheduler&) = delete;

  /// Errors: `does_not_fit` past kMaxStreams, `out_of_memory` if no thread can be created.
  Result<int> open(StreamRole role);
  /// Runs the remaining entries, then releases the slot.
  void close(int id);

  /// Returns the entry to fill next, to be followed by publish(). If the queue is full, waits until half of
  /// it is done, so that a producer that is far ahead wakes up rarely. For the producer thread only.
  virtual StreamEntry& claim(int id) = 0;
  virtual void publish(int id) = 0;
  /// Returns once the event has completed, with the error that its stream had by then.
  virtual Status await(const Event& event) = 0;
  virtual bool poll(const Event& event) = 0;

  Event last_event(int id);
  /// Waits until everything queued on any stream so far is done.
  void drain();
  /// Sets a stream's error from outside; queued work that has not begun is skipped.
  void fail(int id, std::uint64_t sequence, Status error);
  StreamSlot& slot(int id);
  std::size_t open_streams();
  std::uint64_t streams_created();

 protected:
  virtual Status start(StreamSlot& slot) = 0;
  virtual void stop(StreamSlot& slot) = 0;

  /// The next entry of a slot, whether it is skipped because the stream has failed, and the earliest time at
  /// which it can start.
  struct Head {
    const StreamEntry* entry;
    bool skip;
    std::int64_t ready_ns;
  };
  Head head(StreamSlot& slot) STRATA_REQUIRES(slot.mutex);
  StreamEntry& next_entry(StreamSlot& slot) const STRATA_REQUIRES(slot.mutex);
  void finish(StreamSlot& slot, StreamExecutor::Outcome outcome) STRATA_REQUIRES(slot.mutex);
  static void wait_until(StreamSlot& slot, std::uint64_t completed) STRATA_REQUIRES(slot.mutex);
  /// The error and end time that a stream inherits from an event it waited for.
  StreamExecutor::Outcome inherit(const Event& event, std::int64_t ready_ns);

  StreamExecutor& executor_;
  const std::size_t depth_;
  StallMeter* const stalls_;
  Mutex table_mutex_;
  // Written under the lock. Read without it by a stream id, which its owner can only have obtained after the
  // write.
  std::array<std::unique_ptr<StreamSlot>, kMaxStreams> slots_;
  std::uint64_t created_ STRATA_GUARDED_BY(table_mutex_) = 0;
};

std::unique_ptr<StreamScheduler> make_threaded_scheduler(StreamExecutor& executor, std::size_t depth,
                                                         StallMeter* stalls);
std::unique_ptr<StreamScheduler> make_latest_legal_scheduler(StreamExecutor& executor, std::size_t depth);

}  // namespace strata::detail
