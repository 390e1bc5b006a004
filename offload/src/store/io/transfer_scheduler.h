#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <strata/runtime/status.h>

#include "store/io/io_backend.h"

namespace strata::detail {

/// One block of a transfer, in one file.
struct IoBlock {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;  // not modified if `write`
  std::size_t bytes = 0;
};

struct BlockTask {
  std::uint32_t index = 0;
  std::size_t at = 0;  // within the transfer
  IoBlock block;
};

/// Maximum numbers of blocks in flight.
struct InFlightLimits {
  std::uint32_t per_direction = 1;  ///< limits one direction of one file
  std::uint32_t per_file = 1;       ///< limits both directions of one file together
};

/// Splits transfers into blocks and joins their outcomes. Each direction of each file has its own FIFO queue
/// and its own limit; the queues are served round-robin. So a device that is slower in one direction, or
/// slower than the others, cannot fill the ring. Fixed size; guarded by its IoBackend.
class TransferScheduler {
 public:
  TransferScheduler(std::uint32_t table_size, std::uint32_t files, std::size_t block_bytes,
                    InFlightLimits limits);
  void push(std::uint32_t index, const Transfer& transfer);
  bool has_task() const noexcept;  ///< whether a block may be issued within the limits
  BlockTask next_task();
  void release(const BlockTask& task) {
    --queue_of(task.block.file, task.block.write).in_flight;
  }  ///< frees the block's share of the limits
  /// Called after release(). Returns the outcome of the whole transfer if this was its last block.
  std::optional<Status> complete(const BlockTask& task, Status outcome);
  /// From now on there is no task and no outcome; blocks that were issued may still be released and
  /// completed.
  void abandon() noexcept;
  bool is_abandoned() const noexcept { return is_abandoned_; }

 private:
  struct Entry {
    bool write = false;
    std::byte* data = nullptr;
    std::uint32_t unissued = 0;  // extents with blocks that were not issued yet
    std::uint32_t in_flight = 0;
    Status failure;
  };
  struct ExtentProgress {  // the progress of an entry in one file
    Extent extent;
    std::size_t at = 0;  // within the transfer
    std::size_t issued = 0;
  };
  struct DirectionQueue {
    std::vector<std::uint32_t> indices;  // ring buffer of transfers with blocks not yet issued
    std::size_t head = 0;
    std::size_t waiting = 0;
    std::uint32_t in_flight = 0;  // blocks issued and not released
    std::uint32_t& index_at(std::size_t i) { return indices[(head + i) % indices.size()]; }
  };
  DirectionQueue& queue_of(std::uint32_t file, bool write) noexcept {
    return queues_[2 * file + (write ? 1 : 0)];
  }
  ExtentProgress& progress_of(std::uint32_t index, std::uint32_t file) noexcept {
    return progress_[index * files_ + file];
  }
  bool ready(std::size_t queue) const noexcept;
  void drop_unissued(std::uint32_t index);

  const std::uint32_t files_;
  const std::size_t block_bytes_;
  const InFlightLimits limits_;
  std::vector<Entry> entries_;
  std::vector<ExtentProgress> progress_;  // one per file for each entry
  std::vector<DirectionQueue> queues_;    // ordered by file, then direction
  std::size_t next_queue_ = 0;
  bool is_abandoned_ = false;
};

}  // namespace strata::detail
