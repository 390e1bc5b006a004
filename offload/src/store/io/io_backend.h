#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// A contiguous part of one file.
struct Extent {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

/// A transfer between contiguous memory and the extents that hold its bytes in order; at most one per file.
struct Transfer {
  bool write = false;
  std::byte* data = nullptr;          // not modified if `write`
  std::span<const Extent> extents{};  // none is empty
};

/// Receives the events of transfers. Called by I/O threads that hold no lock; may start transfers.
class TransferSink {
 public:
  virtual ~TransferSink() = default;
  /// Bytes [at, at + bytes) of a write are about to be written. Called once for each block.
  virtual void on_submit(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept = 0;
  /// Bytes [at, at + bytes) of a read are in memory. Called once for each block, in any order.
  virtual void on_block_read(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept = 0;
  /// The device has moved bytes of some transfer, so it is not stuck.
  virtual void on_progress() noexcept = 0;
  /// No block of the transfer is in flight any more. `outcome` is the first failure of any of its blocks.
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
  /// `index` is below `table_size` and not in flight. Never blocks.
  virtual void start(std::uint32_t index, const Transfer& transfer) noexcept = 0;
  /// Gives up on all transfers, whose memory may be freed: from now on no block is issued, and no outcome is
  /// reported, except one whose report has begun. Blocks in flight stay so. Never blocks.
  virtual void abandon() noexcept = 0;
  virtual void register_memory(BufferView slab) = 0;
  virtual std::string note() const = 0;         ///< "io_uring"
  virtual std::string memory_note() const = 0;  ///< "registered buffers"
  virtual IoBackendCounters counters() const = 0;
};

/// Moves blocks with `threads` workers per file, by File::read_at and write_at. The files outlive it.
Result<std::unique_ptr<IoBackend>> make_thread_io_backend(std::vector<File*> files, TransferSink& sink,
                                                          std::uint32_t table_size, std::size_t block_bytes,
                                                          int threads);

}  // namespace strata::detail
