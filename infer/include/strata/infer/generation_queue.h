#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include <strata/runtime/thread_annotations.h>
#include <strata/infer/batcher.h>

namespace strata {

/// Sequences from any thread, which wait in the order of their arrival for a place in a batcher. One thread,
/// which owns the batcher, works them off by calling turn().
class GenerationQueue {
 public:
  struct Entry {
    BatchSequence sequence;
    std::shared_ptr<SequenceReceiver> receiver;
  };
  enum class Admission : std::uint8_t { accepted, full, closed };
  struct Load {
    std::size_t waiting = 0, active = 0;
    BatchStats done;
  };

  /// `max_waiting`: sequences that may wait besides those that are being continued.
  GenerationQueue(Batcher& batcher, std::size_t max_waiting);
  ~GenerationQueue();
  GenerationQueue(const GenerationQueue&) = delete;
  GenerationQueue& operator=(const GenerationQueue&) = delete;

  /// Takes all of the entries or none; from any thread. What is wrong with a sequence is told to its receiver
  /// (Batcher::check() says it before).
  Admission submit(std::vector<Entry> entries);
  /// Refuses new entries from now on; those that wait end with `cancelled`, those in the batch go on. From
  /// any thread.
  void close();
  /// From any thread.
  Load load() const;
  /// The most sequences that submit() takes when there are no others.
  std::size_t capacity() const noexcept { return max_waiting_ + n_places_; }

  /// Does a pass if there is work, else waits for it, for `patience` at most. Returns whether there is work
  /// left. Errors: those of Batcher::step(), which all receivers have been told; then the queue is closed.
  Result<bool> turn(std::chrono::milliseconds patience);
  /// Ends the sequences that are being continued with `why`, and returns how many; from the thread of turn().
  std::size_t end_active(const Status& why);

 private:
  Status pass();
  void fill_places();
  void drop_cancelled();
  void publish();
  std::size_t n_waiting() const;
  std::vector<Entry> take(std::size_t n);

  Batcher& batcher_;
  const std::size_t max_waiting_, n_places_;
  mutable Mutex mutex_;
  Condition arrived_;
  std::deque<Entry> waiting_ STRATA_GUARDED_BY(mutex_);
  Load load_ STRATA_GUARDED_BY(mutex_);  // `waiting` is that of waiting_
  bool closed_ STRATA_GUARDED_BY(mutex_) = false;
};

}  // namespace strata
