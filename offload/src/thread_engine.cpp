#include <pthread.h>

#include <optional>
#include <thread>
#include <utility>

#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

#include "engine.h"
#include "transfer_board.h"

namespace strata::detail {
namespace {

/// A file's threads may all do one direction, but none of another file's work.
BoardShares shares(int threads) noexcept {
  return {static_cast<std::uint32_t>(threads), static_cast<std::uint32_t>(threads)};
}

class ThreadEngine final : public Engine {
 public:
  ThreadEngine(std::vector<File*> files, TransferSink& sink, std::uint32_t table_size,
               std::size_t block_bytes, int threads)
      : files_(std::move(files)),
        sink_(sink),
        board_(table_size, static_cast<std::uint32_t>(files_.size()), block_bytes, shares(threads)) {
    const std::size_t workers = static_cast<std::size_t>(threads) * files_.size();
    workers_.reserve(workers);
    for (std::size_t i = 0; i < workers; ++i) workers_.emplace_back([this] { run(); });
  }

  ~ThreadEngine() override {
    const MutexLock lock(mutex_);
    stopping_ = true;
    work_.notify_all();
  }

  void start(std::uint32_t index, const Transfer& transfer) noexcept override {
    const MutexLock lock(mutex_);
    board_.push(index, transfer);
    work_.notify_all();  // one request may hold work for every worker
  }

  void register_memory(BufferView) override {}
  std::string note() const override {
    return str(workers_.size(), workers_.size() == 1 ? " thread" : " threads");
  }
  std::string memory_note() const override { return ""; }
  EngineCounters counters() const override { return {}; }

 private:
  void run() noexcept {
    pthread_setname_np(pthread_self(), "strata-io");
    Piece piece;
    while (next(piece)) {
      if (piece.part.write) sink_.departing(piece.index, piece.at, piece.part.bytes);
      const Status outcome = move(piece.part);
      if (outcome.is_ok()) sink_.progressed();
      if (outcome.is_ok() && !piece.part.write) sink_.arrived(piece.index, piece.at, piece.part.bytes);
      if (std::optional<Status> whole = complete(piece, outcome))
        sink_.finished(piece.index, *std::move(whole));
    }
  }

  bool next(Piece& piece) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!board_.has_piece() && !stopping_) work_.wait(mutex_);
    if (!board_.has_piece()) return false;
    piece = board_.take();
    return true;
  }

  std::optional<Status> complete(const Piece& piece, const Status& outcome) STRATA_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    board_.returned(piece);
    return board_.complete(piece, outcome);
  }

  Status move(const Block& part) {
    File& file = *files_[part.file];
    return part.write ? write_all(file, part.offset, {part.data, part.bytes})
                      : read_exact(file, part.offset, {part.data, part.bytes});
  }

  const std::vector<File*> files_;
  TransferSink& sink_;
  Mutex mutex_;
  Condition work_;
  TransferBoard board_ STRATA_GUARDED_BY(mutex_);
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> workers_;
};

}  // namespace

Result<std::unique_ptr<Engine>> make_thread_engine(std::vector<File*> files, TransferSink& sink,
                                                   std::uint32_t table_size, std::size_t block_bytes,
                                                   int threads) {
  try {
    return std::unique_ptr<Engine>(
        std::make_unique<ThreadEngine>(std::move(files), sink, table_size, block_bytes, threads));
  } catch (const std::exception& error) {  // no thread to be had
    return Status::error(Code::out_of_memory,
                         str("starting ", threads, " I/O threads a file: ", error.what()));
  }
}

}  // namespace strata::detail
