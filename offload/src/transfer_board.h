#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <strata/runtime/status.h>

#include "engine.h"

namespace strata::detail {

/// One block of a transfer, in one file.
struct Block {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;  // only read when `write`
  std::size_t bytes = 0;
};

struct Piece {
  std::uint32_t index = 0;
  std::size_t at = 0;  // within the transfer
  Block part;
};

/// How many blocks may be out at once.
struct BoardShares {
  std::uint32_t lane = 1;  ///< of one direction of one file
  std::uint32_t file = 1;  ///< of one file
};

/// Splits transfers into blocks and joins their outcomes. Each direction of each file is a lane: within it
/// first come, first served; the lanes take turns, and each has its share, so that a device which does the
/// one slower than the other, or is slower than the others, cannot fill the queue. Fixed size; guarded by its
/// engine.
class TransferBoard {
 public:
  TransferBoard(std::uint32_t table_size, std::uint32_t files, std::size_t block_bytes, BoardShares shares);
  void push(std::uint32_t index, const Transfer& transfer);
  bool has_piece() const noexcept;  ///< that may be out now
  Piece take();
  void returned(const Piece& piece) { --lane_of(piece.part.file, piece.part.write).out; }  ///< makes room
  /// After returned(): the outcome of the whole transfer, if that was the last block of it in flight.
  std::optional<Status> complete(const Piece& piece, Status outcome);

 private:
  struct Entry {
    bool write = false;
    std::byte* data = nullptr;
    std::uint32_t unissued = 0;  // extents of which blocks were not yet taken
    std::uint32_t in_flight = 0;
    Status failure;
  };
  struct Part {  // what of an entry lies in one file
    Extent extent;
    std::size_t at = 0;  // within the transfer
    std::size_t issued = 0;
  };
  struct Lane {
    std::vector<std::uint32_t> queue;  // ring of indices with blocks not yet issued
    std::size_t head = 0;
    std::size_t waiting = 0;
    std::uint32_t out = 0;  // blocks taken and not returned
    std::uint32_t& place(std::size_t i) { return queue[(head + i) % queue.size()]; }
  };
  Lane& lane_of(std::uint32_t file, bool write) noexcept { return lanes_[2 * file + (write ? 1 : 0)]; }
  Part& part_of(std::uint32_t index, std::uint32_t file) noexcept { return parts_[index * files_ + file]; }
  bool ready(std::size_t lane) const noexcept;
  void drop_rest(std::uint32_t index);

  const std::uint32_t files_;
  const std::size_t block_bytes_;
  const BoardShares shares_;
  std::vector<Entry> entries_;
  std::vector<Part> parts_;  // `files` of each entry
  std::vector<Lane> lanes_;  // by file, then direction
  std::size_t next_lane_ = 0;
};

}  // namespace strata::detail
