#include "backend/host/stream_scheduler.h"

#include <algorithm>
#include <array>
#include <new>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "threads/thread_refused.h"

namespace strata::detail {

Result<int> StreamScheduler::open(StreamRole role) {
  const MutexLock table(table_mutex_);
  for (std::size_t i = 0; i < kMaxStreams; ++i) {
    if (slots_[i] == nullptr) slots_[i] = std::make_unique<StreamSlot>(static_cast<int>(i), depth_);
    StreamSlot& slot = *slots_[i];
    {
      const MutexLock lock(slot.mutex);
      if (slot.open) continue;
      slot.open = true;
      slot.stopping = false;
      slot.role = role;
      slot.error = Status();
    }
    Status started = Status::heap_exhausted();
    try {
      started = start(slot);
    } catch (const std::bad_alloc&) {  // it has not started
    }
    if (!started.is_ok()) {
      const MutexLock lock(slot.mutex);
      slot.open = false;
      return started;
    }
    ++created_;
    return slot.id;
  }
  return Status::error(Code::does_not_fit, str("a backend has at most ", kMaxStreams, " streams"));
}

void StreamScheduler::close(int id) {
  (void)await(last_event(id));  // an error that matters was returned by an earlier wait
  StreamSlot& closing = slot(id);
  stop(closing);
  const MutexLock lock(closing.mutex);
  closing.open = false;
}

Event StreamScheduler::last_event(int id) {
  StreamSlot& of = slot(id);
  const MutexLock lock(of.mutex);
  return Event{id, of.queued};
}

void StreamScheduler::drain() {
  for (std::size_t i = 0; i < kMaxStreams; ++i) {
    bool exists = false;
    {
      const MutexLock table(table_mutex_);
      exists = slots_[i] != nullptr;
    }
    if (!exists) return;
    (void)await(last_event(static_cast<int>(i)));  // errors stay with their streams
  }
}

void StreamScheduler::fail(int id, std::uint64_t sequence, Status error) {
  StreamSlot& failed = slot(id);
  const MutexLock lock(failed.mutex);
  if (!failed.error.is_ok()) return;
  failed.error = std::move(error);
  failed.error_at = sequence;
}

StreamSlot& StreamScheduler::slot(int id) {
  STRATA_ASSERT(id >= 0 && static_cast<std::size_t>(id) < kMaxStreams &&
                    slots_[static_cast<std::size_t>(id)] != nullptr,
                "no stream ", id, " on this backend");
  return *slots_[static_cast<std::size_t>(id)];
}

std::size_t StreamScheduler::open_streams() {
  std::size_t n = 0;
  const MutexLock table(table_mutex_);
  for (const auto& slot : slots_) {
    if (slot == nullptr) break;
    const MutexLock lock(slot->mutex);
    n += slot->open ? 1 : 0;
  }
  return n;
}

std::uint64_t StreamScheduler::streams_created() {
  const MutexLock table(table_mutex_);
  return created_;
}

StreamScheduler::Head StreamScheduler::head(StreamSlot& slot) {
  const StreamEntry& entry = slot.ring[slot.completed % depth_];
  return {&entry, !slot.error.is_ok(), std::max(slot.free_ns, entry.queued_ns)};
}

StreamEntry& StreamScheduler::next_entry(StreamSlot& slot) const {
  StreamEntry& entry = slot.ring[slot.queued % depth_];
  entry.own = {slot.id, slot.queued + 1};
  entry.track = slot.track;
  return entry;
}

void StreamScheduler::finish(StreamSlot& slot, StreamExecutor::Outcome outcome) {
  slot.ends_ns[slot.completed % depth_] = outcome.end_ns;
  slot.free_ns = outcome.end_ns;
  ++slot.completed;
  if (!outcome.status.is_ok() && slot.error.is_ok()) {
    slot.error = std::move(outcome.status);
    slot.error_at = slot.completed;
  }
  if (slot.completed < slot.wake_at) return;
  slot.wake_at = StreamSlot::kNoWaiter;
  slot.progress.notify_all();
}

void StreamScheduler::wait_until(StreamSlot& slot, std::uint64_t completed) {
  while (slot.completed < completed) {
    slot.wake_at = std::min(slot.wake_at, completed);
    slot.progress.wait(slot.mutex);
  }
}

StreamExecutor::Outcome StreamScheduler::inherit(const Event& event, std::int64_t ready_ns) {
  StreamSlot& from = slot(event.stream);
  const MutexLock lock(from.mutex);
  StreamExecutor::Outcome outcome{{}, ready_ns};
  if (!from.error.is_ok() && from.error_at <= event.sequence) outcome.status = from.error;
  // An entry that has left the ring ended at least a whole ring ago and delays no other stream.
  if (event.sequence > 0 && from.completed - event.sequence < depth_)
    outcome.end_ns = std::max(ready_ns, from.ends_ns[(event.sequence - 1) % depth_]);
  return outcome;
}

namespace {

/// Each stream is a worker thread. Lock order: never two slots at the same time, a slot before the meter. No
/// lock is held while an entry runs.
class ThreadedScheduler final : public StreamScheduler {
 public:
  using StreamScheduler::StreamScheduler;

  StreamEntry& claim(int id) override {
    StreamSlot& to = slot(id);
    const MutexLock lock(to.mutex);
    if (to.queued - to.completed == depth_) wait_until(to, to.queued - depth_ / 2);
    return next_entry(to);
  }
  void publish(int id) override {
    StreamSlot& to = slot(id);
    const MutexLock lock(to.mutex);
    ++to.queued;
    to.work_ready.notify_one();
  }
  Status await(const Event& event) override {
    if (event.stream < 0) return {};
    StreamSlot& on = slot(event.stream);
    const MutexLock lock(on.mutex);
    STRATA_ASSERT(event.sequence <= on.queued, "an event of stream ", event.stream,
                  " that was never recorded");
    wait_until(on, event.sequence);
    return !on.error.is_ok() && on.error_at <= event.sequence ? on.error : Status();
  }
  bool poll(const Event& event) override {
    if (event.stream < 0) return true;
    StreamSlot& on = slot(event.stream);
    const MutexLock lock(on.mutex);
    return on.completed >= event.sequence;
  }

 protected:
  Status start(StreamSlot& slot) override {
    try {
      slot.worker = std::jthread([this, &slot] { run(slot); });
    } catch (const std::exception& e) {
      return thread_refused(str("the thread of a ", to_string(slot.role), " stream"), e);
    }
    std::array<char, 16> name{};  // the thread runs: nothing may fail from here on
    fmt::format_to_n(name.data(), name.size() - 1, "st-{}-{}", to_string(slot.role), slot.id);
    (void)::pthread_setname_np(slot.worker.native_handle(), name.data());
    return {};
  }
  void stop(StreamSlot& slot) override {
    {
      const MutexLock lock(slot.mutex);
      slot.stopping = true;
      slot.work_ready.notify_one();
    }
    slot.worker.join();
  }

 private:
  void run(StreamSlot& slot) noexcept {
    for (;;) {
      Head next{};
      {
        const MutexLock lock(slot.mutex);
        if (slot.completed == slot.queued && stalls_ != nullptr) stalls_->stream_is_idle(slot.role);
        while (slot.completed == slot.queued && !slot.stopping) slot.work_ready.wait(slot.mutex);
        if (slot.completed == slot.queued) return;
        next = head(slot);
      }
      StreamExecutor::Outcome outcome{{}, next.ready_ns};
      if (!next.skip && next.entry->kind == StreamEntry::Kind::wait) {
        if (stalls_ != nullptr) stalls_->stream_waits(slot.role, this->slot(next.entry->event.stream).role);
        (void)await(next.entry->event);  // inherit() returns its error
        outcome = inherit(next.entry->event, next.ready_ns);
      } else if (!next.skip) {
        if (stalls_ != nullptr) stalls_->stream_is_busy(slot.role);
        outcome = executor_.run(*next.entry, slot.role, next.ready_ns);
      }
      const MutexLock lock(slot.mutex);
      finish(slot, std::move(outcome));
    }
  }
};

/// No threads: a waiting caller runs what its event needs, and nothing else runs. One mutex protects
/// everything and is held while work runs, deliberately admitting one caller at a time, because the order
/// must be the same in every run.
class LatestLegalScheduler final : public StreamScheduler {
 public:
  using StreamScheduler::StreamScheduler;

  StreamEntry& claim(int id) override {
    StreamSlot& to = slot(id);
    const MutexLock run_lock(run_mutex_);
    const MutexLock lock(to.mutex);
    while (to.queued - to.completed == depth_) {
      const std::uint64_t oldest = to.completed + 1;
      to.mutex.unlock();
      advance_to({to.id, oldest});
      to.mutex.lock();
    }
    return next_entry(to);
  }
  void publish(int id) override {
    StreamSlot& to = slot(id);
    const MutexLock lock(to.mutex);
    ++to.queued;
  }
  Status await(const Event& event) override {
    if (event.stream < 0) return {};
    StreamSlot& on = slot(event.stream);
    const MutexLock run_lock(run_mutex_);
    advance_to(event);
    const MutexLock lock(on.mutex);
    return !on.error.is_ok() && on.error_at <= event.sequence ? on.error : Status();
  }
  bool poll(const Event& event) override {
    if (event.stream < 0) return true;
    const MutexLock run_lock(run_mutex_);
    if (done(event)) return true;
    step_towards(event);
    return false;
  }

 protected:
  Status start(StreamSlot& slot) override {
    (void)slot;
    return {};
  }
  void stop(StreamSlot& slot) override { (void)slot; }

 private:
  bool done(const Event& event) STRATA_REQUIRES(run_mutex_) {
    StreamSlot& on = slot(event.stream);
    const MutexLock lock(on.mutex);
    STRATA_ASSERT(event.sequence <= on.queued, "an event of stream ", event.stream,
                  " that was never recorded");
    return on.completed >= event.sequence;
  }
  void advance_to(const Event& event) STRATA_REQUIRES(run_mutex_) {
    while (!done(event)) step_towards(event);
  }
  // Follows waits at the head of queues to an entry that can run, and runs it. Terminates because events only
  // refer to earlier work.
  void step_towards(const Event& event) STRATA_REQUIRES(run_mutex_) {
    StreamSlot* at = &slot(event.stream);
    for (;;) {
      Head next{};
      {
        const MutexLock lock(at->mutex);
        next = head(*at);
      }
      const bool waits = !next.skip && next.entry->kind == StreamEntry::Kind::wait;
      if (waits && !done(next.entry->event)) {
        at = &slot(next.entry->event.stream);
        continue;
      }
      StreamExecutor::Outcome outcome{{}, next.ready_ns};
      if (waits)
        outcome = inherit(next.entry->event, next.ready_ns);
      else if (!next.skip)
        outcome = executor_.run(*next.entry, at->role, next.ready_ns);
      const MutexLock lock(at->mutex);
      finish(*at, std::move(outcome));
      return;
    }
  }

  Mutex run_mutex_;  // taken before any slot's mutex
};

}  // namespace

std::unique_ptr<StreamScheduler> make_threaded_scheduler(StreamExecutor& executor, std::size_t depth,
                                                         StallMeter* stalls) {
  return std::make_unique<ThreadedScheduler>(executor, depth, stalls);
}
std::unique_ptr<StreamScheduler> make_latest_legal_scheduler(StreamExecutor& executor, std::size_t depth) {
  return std::make_unique<LatestLegalScheduler>(executor, depth, nullptr);  // no meter: it has no time
}

}  // namespace strata::detail
