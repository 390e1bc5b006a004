#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/thread_annotations.h>

#include "store/io/ring_ops.h"
#include "support/fault_io.h"

namespace strata::test {

/// How a FakeRing misbehaves, in addition to its files. Call and operation numbers start at 1.
struct RingFaults {
  std::uint64_t seed = 1;
  std::uint32_t capacity = 8;
  bool shuffle = false;    ///< completions come in random order, some only in a later call
  bool duplicate = false;  ///< each completion is reported twice, the second time later
  std::function<int(std::uint64_t number)>
      on_enter;  ///< returns 0, or the -errno with which this call refuses to submit
  /// Returns the result to report instead of executing the n-th operation, or kExecute, or kDrop.
  std::function<int(const detail::RingOp& op, std::uint64_t number)> on_op;
  static constexpr int kExecute = 1 << 30;
  static constexpr int kDrop = kExecute + 1;  ///< the operation is never executed and never completes
};

/// Statistics that a test can read after the ring has been moved into its store.
struct RingStats {
  std::atomic<std::uint32_t> max_in_flight{0};
  std::atomic<std::uint64_t> enters{0};
  std::atomic<std::uint64_t> ops{0};
};

/// A ring that executes its operations by positioned reads and writes on `files` inside enter(), on the
/// worker's thread. It is deterministic for a given seed and order of requests. Registering buffers succeeds.
class FakeRing final : public detail::RingOps {
 public:
  FakeRing(std::vector<std::unique_ptr<File>> files, RingFaults faults, std::shared_ptr<RingStats> stats)
      : files_(std::move(files)), faults_(std::move(faults)), stats_(std::move(stats)) {}

  std::uint32_t capacity() const noexcept override { return faults_.capacity; }

  void push(const detail::RingOp& op) override {
    pushed_.push_back(op);
    ++in_flight_;
    stats_->max_in_flight = std::max(stats_->max_in_flight.load(), in_flight_);
  }

  int enter(bool block) override {
    const std::uint64_t number = ++stats_->enters;
    if (faults_.on_enter)
      if (const int error = faults_.on_enter(number); error != 0) return error;
    for (const detail::RingOp& op : pushed_)
      if (const int result = run(op); result != RingFaults::kDrop) complete({op.tag, result});
    pushed_.clear();
    if (faults_.shuffle) shuffle();
    const MutexLock lock(mutex_);
    while (block && !woken_ && ready_.empty()) wake_.wait(mutex_);
    woken_ = false;
    return 0;
  }

  bool pop(detail::RingCompletion& completion) override {
    if (ready_.empty() || (faults_.shuffle && in_flight_ > 1 && random(4) == 0)) return false;
    completion = ready_.back();
    ready_.pop_back();
    --in_flight_;
    return true;
  }

  void wake() noexcept override {
    const MutexLock lock(mutex_);
    woken_ = true;
    wake_.notify_all();
  }

  int register_buffer(std::uint32_t, BufferView) override { return 0; }

 private:
  void complete(const detail::RingCompletion& completion) {
    ready_.insert(ready_.begin(), completion);  // pop() takes from the back, so oldest first
    if (!faults_.duplicate) return;
    ++in_flight_;
    ready_.insert(ready_.begin(), completion);
  }

  int run(const detail::RingOp& op) {
    const std::uint64_t number = ++stats_->ops;
    if (faults_.on_op)
      if (const int result = faults_.on_op(op, number); result != RingFaults::kExecute) return result;
    File& file = *files_[op.file];
    const Result<std::size_t> moved = op.write ? file.write_at(op.offset, {op.data, op.bytes})
                                               : file.read_at(op.offset, {op.data, op.bytes});
    if (moved.has_value()) return static_cast<int>(*moved);
    return moved.status().code() == Code::no_space ? -ENOSPC : -EIO;
  }

  void shuffle() {
    for (std::size_t i = ready_.size(); i > 1; --i) std::swap(ready_[i - 1], ready_[random(i)]);
  }
  std::uint64_t random(std::uint64_t bound) { return Rng(faults_.seed, 0).below(draws_++, bound); }

  std::vector<std::unique_ptr<File>> files_;
  const RingFaults faults_;
  const std::shared_ptr<RingStats> stats_;
  std::vector<detail::RingOp> pushed_;
  std::vector<detail::RingCompletion> ready_;
  std::uint32_t in_flight_ = 0;
  std::uint64_t draws_ = 0;
  Mutex mutex_;
  Condition wake_;
  bool woken_ STRATA_GUARDED_BY(mutex_) = false;
};

}  // namespace strata::test
