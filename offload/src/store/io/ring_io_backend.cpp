#include "store/io/ring_io_backend.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/io/errno_status.h>
#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>
#include <strata/runtime/units.h>

#include "store/io/transfer_scheduler.h"

namespace strata::detail {
namespace {

constexpr int kMaxRetries = 500;  // retries of one block in a row: a second with the longest backoff
constexpr int kMaxStalls = 64;    // short transfers in a row of less than one aligned unit
constexpr std::size_t kMaxRegistered = kGiB;  // kernel limit of one registered buffer
constexpr std::uint64_t kOpBits = 16;

std::chrono::microseconds backoff(int tries) noexcept {
  return std::min(std::chrono::microseconds(20) * (1 << std::min(tries, 7)), std::chrono::microseconds(2000));
}

/// Equal shares of the ring, so that no direction of a file can occupy the entries of the others.
InFlightLimits in_flight_limits(std::uint32_t capacity, std::uint32_t files) noexcept {
  return {(capacity + 2 * files - 1) / (2 * files), capacity};
}

class RingIoBackend final : public IoBackend {
 public:
  RingIoBackend(std::unique_ptr<RingOps> ring, std::vector<RingFile> files, TransferSink& sink,
                std::uint32_t table_size, std::size_t block_bytes)
      : ring_(std::move(ring)),
        files_(std::move(files)),
        sink_(sink),
        ops_(ring_->capacity()),
        scheduler_(table_size, static_cast<std::uint32_t>(files_.size()), block_bytes,
                   in_flight_limits(ring_->capacity(), static_cast<std::uint32_t>(files_.size()))) {
    idle_.reserve(ops_.size());
    completed_.reserve(ops_.size());
    retries_.reserve(ops_.size());
    registered_.reserve(RingOps::kMaxBuffers);
    for (std::uint32_t i = 0; i < ops_.size(); ++i) idle_.push_back(i);
    worker_ = std::jthread([this] { run(); });
  }

  ~RingIoBackend() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    ring_->wake();
  }

  void start(std::uint32_t index, const Transfer& transfer) noexcept override {
    bool wake = false;
    {
      const MutexLock lock(mutex_);
      scheduler_.push(index, transfer);
      wake = std::exchange(sleeping_, false);
    }
    if (wake) ring_->wake();
  }

  void abandon() noexcept override {
    const MutexLock lock(mutex_);
    scheduler_.abandon();
  }

  void register_memory(BufferView slab) override;
  std::string note() const override { return "io_uring"; }
  std::string memory_note() const override {
    const MutexLock lock(mutex_);
    return memory_note_;
  }
  IoBackendCounters counters() const override { return {resubmissions_.load(), stray_completions_.load()}; }

 private:
  // One block in flight. Only the worker accesses it.
  struct Op {
    BlockTask task;
    std::size_t done = 0;
    int buffer = -1;
    int retries = 0;
    int stalls = 0;
    std::uint64_t tag =
        0;  // 0: not in the ring; each push has its own, so that a repeated completion matches nothing
  };
  struct RegisteredBuffer {
    BufferView view;
    int index;
  };

  // A block that has left the ring and whose checksum and report are still due.
  struct CompletedBlock {
    BlockTask task;
    Status outcome;
  };

  void run() noexcept;
  int enter(bool block);
  void push_retries() STRATA_EXCLUDES(mutex_);
  void push_new() STRATA_EXCLUDES(mutex_);
  bool may_sleep(bool& stop) STRATA_EXCLUDES(mutex_);
  bool is_abandoned() STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return scheduler_.is_abandoned();
  }
  void push(std::uint32_t index);
  void handle(const RingCompletion& completion);
  void progress(std::uint32_t index, std::size_t bytes);
  void retry(std::uint32_t index, int error);
  void finish(std::uint32_t index, Status outcome) STRATA_EXCLUDES(mutex_);
  void report_completed() STRATA_EXCLUDES(mutex_);
  Status failure(const Op& op, int error) const;
  int find_buffer(const IoBlock& part) const STRATA_REQUIRES(mutex_);

  const std::unique_ptr<RingOps> ring_;
  const std::vector<RingFile> files_;
  TransferSink& sink_;
  // Accessed only by run() after construction:
  std::vector<Op> ops_;
  std::vector<std::uint32_t> idle_;
  std::vector<std::uint32_t> retries_;  // pushed before new blocks
  std::vector<CompletedBlock> completed_;
  bool unsubmitted_ = false;  // operations were pushed since the last enter()
  int backoff_tries_ = 0;     // > 0: an operation returned EAGAIN
  std::uint64_t serial_ = 0;
  std::atomic<std::uint64_t> resubmissions_{0};
  std::atomic<std::uint64_t> stray_completions_{0};

  Mutex register_mutex_;  // taken before mutex_; one registration at a time
  mutable Mutex mutex_;
  TransferScheduler scheduler_ STRATA_GUARDED_BY(mutex_);
  std::vector<RegisteredBuffer> registered_ STRATA_GUARDED_BY(mutex_);
  std::string memory_note_ STRATA_GUARDED_BY(mutex_) = "unregistered buffers";
  bool sleeping_ STRATA_GUARDED_BY(mutex_) = false;
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::jthread worker_;
};

void RingIoBackend::run() noexcept {
  pthread_setname_np(pthread_self(), "strata-io-ring");
  for (int refusals = 0;;) {
    push_retries();
    push_new();
    bool stop = false;
    const bool block = may_sleep(stop);
    if (stop) return;
    const int error = enter(block);
    if (error == 0 || error == -EINTR) {
      refusals = 0;
    } else {  // the kernel is short of memory, or completions must be reaped first; nothing may be in flight
              // to wait for
      std::this_thread::sleep_for(backoff(refusals++));
    }
    report_completed();
    for (RingCompletion completion; ring_->pop(completion);) handle(completion);
  }
}

int RingIoBackend::enter(bool block) {
  const int error = ring_->enter(block);
  STRATA_ASSERT(error == 0 || error == -EAGAIN || error == -EBUSY || error == -EINTR,
                "io_uring_enter: errno ", -error);
  unsubmitted_ = error != 0;
  return error;
}

// Pushes the rests of short transfers and the refused blocks. After a refusal the worker backs off first,
// whether or not anything else is in flight: a refusal returns at once, so the loop would spin. Abandoned
// blocks end here, since the kernel must not access their memory again.
void RingIoBackend::push_retries() {
  if (backoff_tries_ > 0) std::this_thread::sleep_for(backoff(std::exchange(backoff_tries_, 0)));
  if (retries_.empty()) return;
  const bool abandoned = is_abandoned();
  for (const std::uint32_t index : retries_)
    if (abandoned)
      finish(index, Status::error(Code::cancelled, "the transfer was abandoned"));
    else
      push(index);
  retries_.clear();
}

void RingIoBackend::push_new() {
  for (;;) {
    std::uint32_t index = 0;
    {
      const MutexLock lock(mutex_);
      sleeping_ = false;
      if (idle_.empty() || !scheduler_.has_task()) return;
      index = idle_.back();
      idle_.pop_back();
      Op& op = ops_[index];
      op = {};
      op.task = scheduler_.next_task();
      op.buffer = find_buffer(op.task.block);
    }
    const BlockTask& task = ops_[index].task;
    if (task.block.write) {
      // Submit what was pushed so far, so that the device does not wait for the checksum. If the kernel
      // refuses, run() submits it later.
      if (unsubmitted_) static_cast<void>(enter(false));
      sink_.on_submit(task.index, task.at, task.block.bytes);
    }
    push(index);
  }
}

// Returns true if there is nothing to push or to report: the next work comes from a completion or from
// start(), which wakes the worker if the ring has a free entry.
bool RingIoBackend::may_sleep(bool& stop) {
  const MutexLock lock(mutex_);
  const bool all_idle = idle_.size() == ops_.size() && completed_.empty();
  stop = stopping_ && all_idle && !scheduler_.has_task();
  if (!completed_.empty() || (!idle_.empty() && (scheduler_.has_task() || stopping_))) return false;
  sleeping_ = !idle_.empty();
  return true;
}

void RingIoBackend::push(std::uint32_t index) {
  Op& op = ops_[index];
  op.tag = (++serial_ << kOpBits) | index;
  unsubmitted_ = true;
  const IoBlock& part = op.task.block;
  ring_->push({part.write, part.file, part.offset + op.done, part.data + op.done,
               static_cast<std::uint32_t>(part.bytes - op.done), op.buffer, op.tag});
}

void RingIoBackend::handle(const RingCompletion& completion) {
  const auto index = static_cast<std::uint32_t>(completion.tag & ((1u << kOpBits) - 1));
  if (index >= ops_.size() || ops_[index].tag != completion.tag || completion.tag == 0) {
    stray_completions_.fetch_add(1);
    return;
  }
  ops_[index].tag = 0;
  if (completion.result > 0) {
    sink_.on_progress();
    return progress(index, static_cast<std::size_t>(completion.result));
  }
  switch (completion.result) {
    case -EAGAIN:
    case -EBUSY:
    case -EINTR:
    case -ECANCELED:
      return retry(index, -completion.result);
    case 0: {
      const Op& op = ops_[index];
      return finish(
          index, Status::error(op.task.block.write ? Code::io_error : Code::corrupt,
                               str(failure(op, 0).message(), ": the file ended after ", op.done, " bytes")));
    }
    default:
      return finish(index, failure(ops_[index], -completion.result));
  }
}

// After a short transfer the count is rounded down to the file's alignment and the rest is transferred from
// there, directly from or to the caller's memory. The partial unit is moved again, so no bounce buffer is
// needed.
void RingIoBackend::progress(std::uint32_t index, std::size_t bytes) {
  Op& op = ops_[index];
  const std::size_t left = op.task.block.bytes - op.done;
  if (bytes > left)
    return finish(index, Status::error(Code::internal, str(failure(op, 0).message(), ": the kernel reports ",
                                                           bytes, " bytes, but only ", left, " were left")));
  if (bytes == left) return finish(index, Status::ok());
  const std::size_t align = files_[op.task.block.file].alignment;
  const std::size_t kept = bytes / align * align;
  op.done += kept;
  op.retries = 0;
  op.stalls = kept == 0 ? op.stalls + 1 : 0;
  if (op.stalls == kMaxStalls)
    return finish(index,
                  Status::error(Code::io_error, str(failure(op, 0).message(), ": no progress in ", kMaxStalls,
                                                    " short transfers after ", op.done, " bytes")));
  resubmissions_.fetch_add(1);
  retries_.push_back(index);
}

void RingIoBackend::retry(std::uint32_t index, int error) {
  Op& op = ops_[index];
  if (++op.retries == kMaxRetries) return finish(index, failure(op, error));
  resubmissions_.fetch_add(1);
  backoff_tries_ = std::max(backoff_tries_, op.retries);
  retries_.push_back(index);
}

void RingIoBackend::finish(std::uint32_t index, Status outcome) {
  const BlockTask& task = ops_[index].task;
  completed_.push_back({task, std::move(outcome)});
  idle_.push_back(index);
  const MutexLock lock(mutex_);
  scheduler_.release(task);
}

// Called after the ring entries of these blocks were reused and submitted, so that the device works while
// this thread computes checksums. completed_ never holds more blocks than the ring has entries.
void RingIoBackend::report_completed() {
  for (CompletedBlock& block : completed_) {
    const BlockTask& task = block.task;
    if (block.outcome.is_ok() && !task.block.write)
      sink_.on_block_read(task.index, task.at, task.block.bytes);
    std::optional<Status> whole;
    {
      const MutexLock lock(mutex_);
      whole = scheduler_.complete(task, std::move(block.outcome));
    }
    if (whole.has_value()) sink_.on_complete(task.index, *std::move(whole));
  }
  completed_.clear();
}

Status RingIoBackend::failure(const Op& op, int error) const {
  const IoBlock& part = op.task.block;
  const std::string doing =
      str(part.write ? "writing " : "reading ", part.bytes, " bytes at ", part.offset, " of");
  const std::string& path = files_[part.file].path;
  return error == 0 ? Status::error(Code::io_error, str(doing, " ", path)) : errno_status(doing, path, error);
}

int RingIoBackend::find_buffer(const IoBlock& part) const {
  for (const RegisteredBuffer& known : registered_)
    if (part.data >= known.view.data && part.data + part.bytes <= known.view.data + known.view.bytes)
      return known.index;
  return -1;
}

void RingIoBackend::register_memory(BufferView slab) {
  const MutexLock one_at_a_time(register_mutex_);
  for (std::size_t at = 0; at < slab.bytes; at += kMaxRegistered) {
    const BufferView part = slab.part(at, std::min(kMaxRegistered, slab.bytes - at));
    std::size_t index = 0;
    {
      const MutexLock lock(mutex_);
      index = registered_.size();
    }
    const int error = index < RingOps::kMaxBuffers
                          ? ring_->register_buffer(static_cast<std::uint32_t>(index), part)
                          : -EMFILE;
    const MutexLock lock(mutex_);
    if (error == 0) {
      registered_.push_back({part, static_cast<int>(index)});
      memory_note_ = "registered buffers";
      continue;
    }
    rlimit limit{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    memory_note_ = str(index == 0 ? "unregistered" : "partly unregistered", " buffers (",
                       errno_status("registering", str(part.bytes, " bytes"), -error).message(),
                       ", RLIMIT_MEMLOCK ", limit.rlim_cur, " bytes)");
    return;
  }
}

}  // namespace

Result<std::unique_ptr<IoBackend>> make_ring_io_backend(std::unique_ptr<RingOps> ring,
                                                        std::vector<RingFile> files, TransferSink& sink,
                                                        std::uint32_t table_size, std::size_t block_bytes) {
  try {
    return std::unique_ptr<IoBackend>(
        std::make_unique<RingIoBackend>(std::move(ring), std::move(files), sink, table_size, block_bytes));
  } catch (const std::exception& error) {  // the thread could not be created
    return Status::error(Code::out_of_memory, str("starting the I/O thread of the ring: ", error.what()));
  }
}

}  // namespace strata::detail
