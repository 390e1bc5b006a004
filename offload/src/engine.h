#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <strata/runtime/backend.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// One contiguous move between memory and a file.
struct Transfer {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;  // only read when `write`
  std::size_t bytes = 0;
};

/// Who started a transfer. Called by engine threads that hold no lock; may start transfers.
class TransferSink {
 public:
  virtual ~TransferSink() = default;
  /// Bytes [at, at + bytes) of a writing transfer are about to be written; once for each of its blocks.
  virtual void departing(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept = 0;
  /// Bytes [at, at + bytes) of a reading transfer are in memory; a transfer's blocks come in any order, each
  /// once.
  virtual void arrived(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept = 0;
  /// Nothing of it is in flight any more. `outcome` is the first failure of any of its blocks.
  virtual void finished(std::uint32_t index, Status outcome) noexcept = 0;
};

struct EngineCounters {
  std::uint64_t resubmissions = 0;
  std::uint64_t stray_completions = 0;
};

/// Moves the blocks of transfers. Thread-safe. Destroyed only when nothing is in flight; owns its threads.
class Engine {
 public:
  virtual ~Engine() = default;
  /// `index` is below the table size the engine was made with, and not in flight. Never waits.
  virtual void start(std::uint32_t index, const Transfer& transfer) noexcept = 0;
  virtual void register_memory(BufferView slab) = 0;
  virtual std::string note() const = 0;         ///< "io_uring"
  virtual std::string memory_note() const = 0;  ///< "registered buffers"
  virtual EngineCounters counters() const = 0;
};

/// One block of a transfer.
struct Piece {
  std::uint32_t index = 0;
  std::size_t at = 0;  // within the transfer
  Transfer part;
};

/// Splits transfers into blocks and joins their outcomes. Within a direction first come, first served; the
/// directions take turns, and neither has more than `share` blocks out, so that a device which does the one
/// slower than the other cannot fill the queue with it. Fixed size; guarded by its engine.
class TransferBoard {
 public:
  TransferBoard(std::uint32_t table_size, std::size_t block_bytes, std::uint32_t share);
  void push(std::uint32_t index, const Transfer& transfer);
  bool has_piece() const noexcept { return ready(false) || ready(true); }  ///< that may be out now
  Piece take();
  void returned(const Piece& piece) { --lane(piece.part.write).out; }  ///< another may take its place
  /// After returned(): the outcome of the whole transfer, if that was the last block of it in flight.
  std::optional<Status> complete(const Piece& piece, Status outcome);

 private:
  struct Entry {
    Transfer transfer;
    std::size_t issued = 0;
    std::uint32_t in_flight = 0;
    Status failure;
  };
  struct Lane {
    std::vector<std::uint32_t> queue;  // ring of indices with blocks not yet issued
    std::size_t head = 0;
    std::size_t waiting = 0;
    std::uint32_t out = 0;  // blocks taken and not returned
  };
  Lane& lane(bool write) noexcept { return lanes_[write ? 1 : 0]; }
  bool ready(bool write) const noexcept {
    const Lane& of = lanes_[write ? 1 : 0];
    return of.waiting > 0 && of.out < share_;
  }
  static void pop(Lane& from);
  const std::size_t block_bytes_;
  const std::uint32_t share_;
  std::vector<Entry> entries_;
  std::array<Lane, 2> lanes_;
  bool write_next_ = false;
};

/// Blocks by `threads` workers over File::read_at and write_at. The files outlive it.
Result<std::unique_ptr<Engine>> make_thread_engine(std::vector<File*> files, TransferSink& sink,
                                                   std::uint32_t table_size, std::size_t block_bytes,
                                                   int threads);

}  // namespace strata::detail
