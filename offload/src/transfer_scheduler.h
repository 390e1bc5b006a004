#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <strata/runtime/status.h>

#include "io_backend.h"

namespace strata::detail {

/// One block of a transfer, in one file.
struct IoBlock {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;  // only read when `write`
  std::size_t bytes = 0;
};

struct BlockTask {
  std::uint32_t index = 0;
  std::size_t at = 0;  // within the transfer
  IoBlock block;
};

/// How many blocks may be out at once.
struct InFlightLimits {
  std::uint32_t per_direction = 1;  ///< of one direction of one file
  std::uint32_t per_file = 1;       ///< of one file
};

/// Splits transfers into blocks and joins their outcomes. Each direction of each file is a lane: within it
/// first come, first served; the lanes take turns, and each has its share, so that a device which does the
/// one slower than the other, or is slower than the others, cannot fill the queue. Fixed size; guarded by its
/// engine.
class TransferScheduler {
 public:
  TransferScheduler(std::uint32_t table_size, std::uint32_t files, std::size_t block_bytes,
                    InFlightLimits limits);
  void push(std::uint32_t index, const Transfer& transfer);
  bool has_task() const noexcept;  ///< that may be out now
  BlockTask next_task();
  void release(const BlockTask& task) {
    --queue_of(task.block.file, task.block.write).in_flight;
  }  ///< makes room
  /// After release(): the outcome of the whole transfer, if that was the last block of it in flight.
  std::optional<Status> complete(const BlockTask& task, Status outcome);

 private:
  struct Entry {
    bool write = false;
    std::byte* data = nullptr;
    std::uint32_t unissued = 0;  // extents of which blocks were not yet taken
    std::uint32_t in_flight = 0;
    Status failure;
  };
  struct ExtentProgress {  // what of an entry lies in one file
    Extent extent;
    std::size_t at = 0;  // within the transfer
    std::size_t issued = 0;
  };
  struct DirectionQueue {
    std::vector<std::uint32_t> indices;  // ring of indices with blocks not yet issued
    std::size_t head = 0;
    std::size_t waiting = 0;
    std::uint32_t in_flight = 0;  // blocks taken and not returned
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
  std::vector<ExtentProgress> progress_;  // `files` of each entry
  std::vector<DirectionQueue> queues_;    // by file, then direction
  std::size_t next_queue_ = 0;
};

}  // namespace strata::detail
