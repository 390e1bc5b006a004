#include <algorithm>
#include <utility>

#include <strata/runtime/assert.h>

#include "engine.h"

namespace strata::detail {

TransferBoard::TransferBoard(std::uint32_t table_size, std::size_t block_bytes)
    : block_bytes_(block_bytes), entries_(table_size), queue_(table_size) {}

void TransferBoard::push(std::uint32_t index, const Transfer& transfer) {
  Entry& entry = entries_[index];
  STRATA_ASSERT(entry.in_flight == 0 && entry.issued == entry.transfer.bytes, "transfer ", index,
                " is still in flight");
  entry = {transfer, 0, 0, Status::ok()};
  queue_[(head_ + waiting_) % queue_.size()] = index;
  ++waiting_;
}

void TransferBoard::pop() {
  head_ = (head_ + 1) % queue_.size();
  --waiting_;
}

Piece TransferBoard::take() {
  const std::uint32_t index = queue_[head_];
  Entry& entry = entries_[index];
  const std::size_t bytes = std::min(block_bytes_, entry.transfer.bytes - entry.issued);
  const Piece piece{index,
                    entry.issued,
                    {entry.transfer.write, entry.transfer.file, entry.transfer.offset + entry.issued,
                     entry.transfer.data + entry.issued, bytes}};
  entry.issued += bytes;
  ++entry.in_flight;
  if (entry.issued == entry.transfer.bytes) pop();
  return piece;
}

std::optional<Status> TransferBoard::complete(const Piece& piece, Status outcome) {
  Entry& entry = entries_[piece.index];
  STRATA_ASSERT(entry.in_flight > 0, "transfer ", piece.index, " has nothing in flight");
  --entry.in_flight;
  if (!outcome.is_ok() && entry.failure.is_ok()) {
    entry.failure = std::move(outcome);
    if (entry.issued < entry.transfer.bytes) {
      entry.issued =
          entry.transfer.bytes;  // only the head is partly issued, so its rest is dropped by popping
      pop();
    }
  }
  if (entry.in_flight > 0 || entry.issued < entry.transfer.bytes) return std::nullopt;
  return std::exchange(entry.failure, Status::ok());
}

}  // namespace strata::detail
