#include "transfer_board.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/assert.h>

namespace strata::detail {

TransferBoard::TransferBoard(std::uint32_t table_size, std::uint32_t files, std::size_t block_bytes,
                             BoardShares shares)
    : files_(files),
      block_bytes_(block_bytes),
      shares_(shares),
      entries_(table_size),
      parts_(std::size_t{table_size} * files),
      lanes_(std::size_t{2} * files) {
  for (Lane& each : lanes_) each.queue.resize(table_size);
}

void TransferBoard::push(std::uint32_t index, const Transfer& transfer) {
  Entry& entry = entries_[index];
  STRATA_ASSERT(entry.in_flight == 0 && entry.unissued == 0, "transfer ", index, " is still in flight");
  entry = {transfer.write, transfer.data, static_cast<std::uint32_t>(transfer.extents.size()), 0,
           Status::ok()};
  std::size_t at = 0;
  for (const Extent& extent : transfer.extents) {
    part_of(index, extent.file) = {extent, at, 0};
    at += extent.bytes;
    Lane& to = lane_of(extent.file, transfer.write);
    to.place(to.waiting++) = index;
  }
}

bool TransferBoard::ready(std::size_t lane) const noexcept {
  const Lane& of = lanes_[lane];
  return of.waiting > 0 && of.out < shares_.lane && of.out + lanes_[lane ^ 1].out < shares_.file;
}

bool TransferBoard::has_piece() const noexcept {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    if (ready(lane)) return true;
  return false;
}

Piece TransferBoard::take() {
  while (!ready(next_lane_)) next_lane_ = (next_lane_ + 1) % lanes_.size();
  Lane& from = lanes_[next_lane_];
  const auto file = static_cast<std::uint32_t>(next_lane_ / 2);
  next_lane_ = (next_lane_ + 1) % lanes_.size();
  const std::uint32_t index = from.place(0);
  Entry& entry = entries_[index];
  Part& part = part_of(index, file);
  const std::size_t bytes = std::min(block_bytes_, part.extent.bytes - part.issued);
  const std::size_t at = part.at + part.issued;
  const Piece piece{index, at, {entry.write, file, part.extent.offset + part.issued, entry.data + at, bytes}};
  part.issued += bytes;
  ++entry.in_flight;
  ++from.out;
  if (part.issued == part.extent.bytes) {
    --entry.unissued;
    from.head = (from.head + 1) % from.queue.size();
    --from.waiting;
  }
  return piece;
}

std::optional<Status> TransferBoard::complete(const Piece& piece, Status outcome) {
  Entry& entry = entries_[piece.index];
  STRATA_ASSERT(entry.in_flight > 0, "transfer ", piece.index, " has nothing in flight");
  --entry.in_flight;
  if (!outcome.is_ok() && entry.failure.is_ok()) {
    entry.failure = std::move(outcome);
    drop_rest(piece.index);
  }
  if (entry.in_flight > 0 || entry.unissued > 0) return std::nullopt;
  return std::exchange(entry.failure, Status::ok());
}

// Blocks not yet taken wait in the lanes of several files, at the head of some and behind others' in the
// rest.
void TransferBoard::drop_rest(std::uint32_t index) {
  Entry& entry = entries_[index];
  for (std::uint32_t file = 0; file < files_ && entry.unissued > 0; ++file) {
    Lane& lane = lane_of(file, entry.write);
    for (std::size_t i = 0; i < lane.waiting; ++i) {
      if (lane.place(i) != index) continue;
      for (std::size_t later = i + 1; later < lane.waiting; ++later)
        lane.place(later - 1) = lane.place(later);
      --lane.waiting;
      --entry.unissued;
      break;
    }
  }
}

}  // namespace strata::detail
