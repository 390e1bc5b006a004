#include <algorithm>
#include <utility>

#include <strata/runtime/assert.h>

#include "engine.h"

namespace strata::detail {

TransferBoard::TransferBoard(std::uint32_t table_size, std::size_t block_bytes, std::uint32_t share)
    : block_bytes_(block_bytes), share_(share), entries_(table_size) {
  for (Lane& each : lanes_) each.queue.resize(table_size);
}

void TransferBoard::push(std::uint32_t index, const Transfer& transfer) {
  Entry& entry = entries_[index];
  STRATA_ASSERT(entry.in_flight == 0 && entry.issued == entry.transfer.bytes, "transfer ", index,
                " is still in flight");
  entry = {transfer, 0, 0, Status::ok()};
  Lane& to = lane(transfer.write);
  to.queue[(to.head + to.waiting) % to.queue.size()] = index;
  ++to.waiting;
}

void TransferBoard::pop(Lane& from) {
  from.head = (from.head + 1) % from.queue.size();
  --from.waiting;
}

Piece TransferBoard::take() {
  const bool write = ready(write_next_) ? write_next_ : !write_next_;
  write_next_ = !write;
  Lane& from = lane(write);
  const std::uint32_t index = from.queue[from.head];
  Entry& entry = entries_[index];
  const std::size_t bytes = std::min(block_bytes_, entry.transfer.bytes - entry.issued);
  const Piece piece{index,
                    entry.issued,
                    {entry.transfer.write, entry.transfer.file, entry.transfer.offset + entry.issued,
                     entry.transfer.data + entry.issued, bytes}};
  entry.issued += bytes;
  ++entry.in_flight;
  ++from.out;
  if (entry.issued == entry.transfer.bytes) pop(from);
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
      pop(lane(entry.transfer.write));
    }
  }
  if (entry.in_flight > 0 || entry.issued < entry.transfer.bytes) return std::nullopt;
  return std::exchange(entry.failure, Status::ok());
}

}  // namespace strata::detail
