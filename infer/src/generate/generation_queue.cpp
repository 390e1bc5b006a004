#include <strata/infer/generation_queue.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

#include <strata/runtime/str.h>

namespace strata {

GenerationQueue::GenerationQueue(Batcher& batcher, std::size_t max_waiting)
    : batcher_(batcher), max_waiting_(max_waiting), n_places_(batcher.n_places()) {}

// A receiver is told of its end by the thread of turn(), also if that thread gives up.
GenerationQueue::~GenerationQueue() {
  const Status given_up = Status::error(Code::cancelled, "the queue was given up");
  for (const Entry& entry : take(n_waiting())) entry.receiver->on_end(given_up);
  batcher_.end_all(given_up);
}

GenerationQueue::Admission GenerationQueue::submit(std::vector<Entry> entries) {
  const MutexLock lock(mutex_);
  if (closed_) return Admission::closed;
  if (load_.active + waiting_.size() + entries.size() > capacity()) return Admission::full;
  std::move(entries.begin(), entries.end(), std::back_inserter(waiting_));
  arrived_.notify_one();
  return Admission::accepted;
}

void GenerationQueue::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  arrived_.notify_one();
}

GenerationQueue::Load GenerationQueue::load() const {
  const MutexLock lock(mutex_);
  Load load = load_;
  load.waiting = waiting_.size();
  return load;
}

std::size_t GenerationQueue::n_waiting() const {
  const MutexLock lock(mutex_);
  return waiting_.size();
}

Result<bool> GenerationQueue::turn(std::chrono::milliseconds patience) {
  {
    const MutexLock lock(mutex_);
    if (waiting_.empty() && batcher_.n_active() == 0 && !closed_) arrived_.wait_for(mutex_, patience);
  }
  Status status;
  try {
    status = pass();
  } catch (const std::bad_alloc&) {
    status = Status::heap_exhausted();
  } catch (const std::exception& e) {
    status = Status::error(Code::internal, e.what());
  }
  if (!status.is_ok()) {
    close();
    for (const Entry& entry : take(n_waiting())) entry.receiver->on_end(status);
    batcher_.end_all(status);
  }
  publish();
  if (!status.is_ok()) return status;
  return n_waiting() > 0 || batcher_.n_active() > 0;
}

std::size_t GenerationQueue::end_active(const Status& why) {
  const std::size_t n = batcher_.n_active();
  batcher_.end_all(why);
  publish();
  return n;
}

Status GenerationQueue::pass() {
  drop_cancelled();
  fill_places();
  return batcher_.step();
}

// They would make others wait.
void GenerationQueue::drop_cancelled() {
  std::vector<Entry> dropped;
  Status why = Status::error(Code::cancelled, "the text was cancelled");
  {
    const MutexLock lock(mutex_);
    const bool keeps = !closed_;
    if (!keeps) why = Status::error(Code::cancelled, "no more texts are begun");
    const auto kept = std::stable_partition(waiting_.begin(), waiting_.end(), [keeps](const Entry& entry) {
      return keeps && !entry.receiver->is_cancelled();
    });
    std::move(kept, waiting_.end(), std::back_inserter(dropped));
    waiting_.erase(kept, waiting_.end());
  }
  for (const Entry& entry : dropped) entry.receiver->on_end(why);
}

std::vector<GenerationQueue::Entry> GenerationQueue::take(std::size_t n) {
  const MutexLock lock(mutex_);
  std::vector<Entry> taken;
  for (; taken.size() < n && !waiting_.empty(); waiting_.pop_front())
    taken.push_back(std::move(waiting_.front()));
  load_.active += taken.size();  // they count until publish()
  return taken;
}

void GenerationQueue::fill_places() {
  for (Entry& entry : take(n_places_ - batcher_.n_active())) {
    const std::shared_ptr<SequenceReceiver> receiver = entry.receiver;
    const Status status = batcher_.add(std::move(entry.sequence), receiver);
    if (!status.is_ok()) receiver->on_end(status);
  }
}

void GenerationQueue::publish() {
  const MutexLock lock(mutex_);
  load_.active = batcher_.n_active();
  load_.done = batcher_.stats();
}

}  // namespace strata
