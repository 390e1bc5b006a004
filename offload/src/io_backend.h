#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/runtime/backend.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// A contiguous part of one file.
struct Extent {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

/// One move between contiguous memory and extents that hold it one after the other, of a file at most one.
struct Transfer {
  bool write = false;
  std::byte* data = nullptr;          // only read when `write`
  std::span<const Extent> extents{};  // none is empty
};

/// Who started a transfer. Called by engine threads that hold no lock; may start transfers.
class TransferSink {
 public:
  virtual ~TransferSink() = default;
  /// Bytes [at, at + bytes) of a writing transfer are about to be written; once for each of its blocks.
  virtual void on_submit(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept = 0;
  /// Bytes [at, at + bytes) of a reading transfer are in memory; a transfer's blocks come in any order, each
  /// once.
  virtual void on_block_read(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept = 0;
  /// The device has moved bytes of some transfer: nothing is stuck.
  virtual void on_progress() noexcept = 0;
  /// Nothing of it is in flight any more. `outcome` is the first failure of any of its blocks.
  virtual void on_complete(std::uint32_t index, Status outcome) noexcept = 0;
};

struct IoBackendCounters {
  std::uint64_t resubmissions = 0;
  std::uint64_t stray_completions = 0;
};

/// Moves the blocks of transfers. Thread-safe. Destroyed only when nothing is in flight; owns its threads.
class IoBackend {
 public:
  virtual ~IoBackend() = default;
  /// `index` is below the table size the engine was made with, and not in flight. Never waits.
  virtual void start(std::uint32_t index, const Transfer& transfer) noexcept = 0;
  virtual void register_memory(BufferView slab) = 0;
  virtual std::string note() const = 0;         ///< "io_uring"
  virtual std::string memory_note() const = 0;  ///< "registered buffers"
  virtual IoBackendCounters counters() const = 0;
};

/// Blocks by `threads` workers a file over File::read_at and write_at. The files outlive it.
Result<std::unique_ptr<IoBackend>> make_thread_io_backend(std::vector<File*> files, TransferSink& sink,
                                                          std::uint32_t table_size, std::size_t block_bytes,
                                                          int threads);

}  // namespace strata::detail
