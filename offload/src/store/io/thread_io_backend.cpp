#include <pthread.h>

#include <optional>
#include <thread>
#include <utility>

#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

#include "store/io/io_backend.h"
#include "store/io/transfer_scheduler.h"

namespace strata::detail {
namespace {

/// All threads of a file may work on one direction, but on no other file.
InFlightLimits in_flight_limits(int threads) noexcept {
  return {static_cast<std::uint32_t>(threads), static_cast<std::uint32_t>(threads)};
}

class ThreadIoBackend final : public IoBackend {
 public:
  ThreadIoBackend(std::vector<File*> files, TransferSink& sink, std::uint32_t table_size,
                  std::size_t block_bytes, int threads)
      : files_(std::move(files)),
        sink_(sink),
        scheduler_(table_size, static_cast<std::uint32_t>(files_.size()), block_bytes,
                   in_flight_limits(threads)) {
    const std::size_t workers = static_cast<std::size_t>(threads) * files_.size();
    workers_.reserve(workers);
    try {
      for (std::size_t i = 0; i < workers; ++i) workers_.emplace_back([this] { run(); });
    } catch (...) {  // the threads that were started are joined before the caller learns of it
      stop();
      throw;
    }
  }

  ~ThreadIoBackend() override { stop(); }

  void start(std::uint32_t index, const Transfer& transfer) noexcept override {
    const MutexLock lock(mutex_);
    scheduler_.push(index, transfer);
    work_.notify_all();  // one request may hold work for every worker
  }

  void abandon() noexcept override {
    const MutexLock lock(mutex_);
    scheduler_.abandon();
  }

  void register_memory(BufferView) override {}
  std::string note() const override {
    return str(workers_.size(), workers_.size() == 1 ? " thread" : " threads");
  }
  std::string memory_note() const override { return ""; }
  IoBackendCounters counters() const override { return {}; }

 private:
  void stop() noexcept {
    const MutexLock lock(mutex_);
    stopping_ = true;
    work_.notify_all();
  }
  void run() noexcept {
    pthread_setname_np(pthread_self(), "strata-io");
    BlockTask task;
    while (next(task)) {
      if (task.block.write) sink_.on_submit(task.index, task.at, task.block.bytes);
      const Status outcome = move(task.block);
      if (outcome.is_ok()) sink_.on_progress();
      if (outcome.is_ok() && !task.block.write) sink_.on_block_read(task.index, task.at, task.block.bytes);
      if (std::optional<Status> whole = complete(task, outcome))
        sink_.on_complete(task.index, *std::move(whole));
    }
  }

  bool next(BlockTask& task) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!scheduler_.has_task() && !stopping_) work_.wait(mutex_);
    if (!scheduler_.has_task()) return false;
    task = scheduler_.next_task();
    return true;
  }

  std::optional<Status> complete(const BlockTask& task, const Status& outcome) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    scheduler_.release(task);
    return scheduler_.complete(task, outcome);
  }

  Status move(const IoBlock& part) {
    File& file = *files_[part.file];
    return part.write ? write_all(file, part.offset, {part.data, part.bytes})
                      : read_exact(file, part.offset, {part.data, part.bytes});
  }

  const std::vector<File*> files_;
  TransferSink& sink_;
  Mutex mutex_;
  Condition work_;
  TransferScheduler scheduler_ STRATA_GUARDED_BY(mutex_);
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> workers_;
};

}  // namespace

Result<std::unique_ptr<IoBackend>> make_thread_io_backend(std::vector<File*> files, TransferSink& sink,
                                                          std::uint32_t table_size, std::size_t block_bytes,
                                                          int threads) {
  try {
    return std::unique_ptr<IoBackend>(
        std::make_unique<ThreadIoBackend>(std::move(files), sink, table_size, block_bytes, threads));
  } catch (const std::exception& error) {  // a thread could not be created
    return Status::error(Code::out_of_memory,
                         str("starting ", threads, " I/O threads per file: ", error.what()));
  }
}

}  // namespace strata::detail
