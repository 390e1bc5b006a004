#include "store/request_table.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {

RequestTable::RequestTable(std::uint32_t max_requests, std::size_t n_files) : requests_(max_requests) {
  idle_.reserve(max_requests);
  for (std::uint32_t i = max_requests; i > 0; --i) idle_.push_back(i - 1);
  for (StoreRequest& request : requests_) request.extents.reserve(n_files);
}

IoTicket RequestTable::begin(bool write, std::uint64_t id, std::byte* data, std::size_t bytes,
                             std::int64_t now_ns) {
  const std::uint32_t index = idle_.back();
  idle_.pop_back();
  StoreRequest& request = requests_[index];
  request.sequence = ++last_sequence_;
  request.active = true;
  request.write = write;
  request.starved = request.reread = false;
  request.id = id;
  request.data = data;
  request.bytes = bytes;
  request.begin_ns = now_ns;
  request.first_failure = Status::ok();
  return {index, request.sequence};
}

void RequestTable::end(std::uint32_t index, const Status& outcome) {
  StoreRequest& request = requests_[index];
  request.active = false;
  ++n_ended_;
  if (!outcome.is_ok()) failures_.emplace(request.sequence, outcome);
  idle_.push_back(index);
}

bool RequestTable::is_in_flight(IoTicket ticket) const noexcept {
  if (ticket.index >= requests_.size()) return false;
  const StoreRequest& request = requests_[ticket.index];
  return request.active && request.sequence == ticket.sequence;
}

Status RequestTable::outcome(IoTicket ticket) const {
  if (ticket.index >= requests_.size() || ticket.sequence > last_sequence_)
    return Status::error(Code::invalid,
                         str("waiting for request ", ticket.sequence, " at index ", ticket.index, ": only ",
                             last_sequence_, " were submitted, in a table of ", requests_.size()));
  const auto failure = failures_.find(ticket.sequence);
  return failure == failures_.end() ? Status::ok() : failure->second;
}

const StoreRequest& RequestTable::oldest() const noexcept {
  return *std::min_element(requests_.begin(), requests_.end(),
                           [](const StoreRequest& a, const StoreRequest& b) {
                             return std::pair(!a.active, a.sequence) < std::pair(!b.active, b.sequence);
                           });
}

}  // namespace strata::detail
