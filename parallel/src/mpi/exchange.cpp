#include "mpi/exchange.h"

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata::detail {

void Exchange::start_over(Peers& peers, int tag) {
  peers_ = &peers;
  tag_ = tag;
  transfers_.clear();
  status_ = {};
}

void Exchange::send(int peer, const std::byte* data, std::size_t bytes) {
  if (bytes > 0)
    transfers_.push_back(
        {.peer = peer, .sends = true, .data = const_cast<std::byte*>(data), .bytes = bytes});  // NOLINT
}

void Exchange::receive(int peer, std::byte* data, std::size_t bytes) {
  if (bytes > 0) transfers_.push_back({.peer = peer, .data = data, .bytes = bytes});
}

bool Exchange::advance(const MpiApi& api, std::size_t max_message_bytes, bool& progressed) {
  bool complete = true;
  for (Transfer& transfer : transfers_) {
    complete &= advance(transfer, api, max_message_bytes, progressed);
    if (!status_.is_ok()) return true;
  }
  return complete;
}

// Returns whether the transfer is complete.
bool Exchange::advance(Transfer& transfer, const MpiApi& api, std::size_t max_message_bytes,
                       bool& progressed) {
  if (transfer.moved == transfer.bytes) return true;
  if (!transfer.in_flight) {
    progressed = true;
    if (!post(transfer, api, max_message_bytes)) return false;
  }
  return test(transfer, api, progressed) && transfer.moved == transfer.bytes;
}

bool Exchange::post(Transfer& transfer, const MpiApi& api, std::size_t max_message_bytes) {
  if (peers_->is_lost(transfer.peer, transfer.sends)) {
    lose(transfer);
    return false;
  }
  transfer.message_bytes = std::min(transfer.bytes - transfer.moved, max_message_bytes);
  std::byte* const data = transfer.data + transfer.moved;
  const int world_rank = peers_->world_rank(transfer.peer);
  const int error =
      transfer.sends
          ? api.isend(MpiChannel::data, data, transfer.message_bytes, world_rank, tag_, &transfer.request)
          : api.irecv(MpiChannel::data, data, transfer.message_bytes, world_rank, tag_, &transfer.request);
  transfer.in_flight = error == 0;
  if (error != 0) fail_by_mpi(transfer, api, error);
  return error == 0;
}

bool Exchange::test(Transfer& transfer, const MpiApi& api, bool& progressed) {
  int done = 0;
  MpiReceived received;
  const int error = api.test(&transfer.request, &done, &received);
  if (done == 0) {
    if (peers_->is_lost(transfer.peer, transfer.sends)) lose(transfer);
    return false;
  }
  progressed = true;
  transfer.in_flight = false;
  if (received.truncated || (error == 0 && !transfer.sends && received.bytes != transfer.message_bytes)) {
    fail_locally(
        Status::error(Code::invalid,
                      str("rank ", transfer.peer, " sent ",
                          received.truncated ? std::string("more") : str(received.bytes, " bytes"),
                          " where rank ", peers_->rank(), " expected ", transfer.message_bytes,
                          " bytes; all ranks of a group must queue the same collectives in the same order")));
    return false;
  }
  if (error != 0) {
    fail_by_mpi(transfer, api, error);
    return false;
  }
  transfer.moved += transfer.message_bytes;
  transfer.sends ? peers_->count_sent(transfer.peer) : peers_->count_received(transfer.peer);
  return true;
}

void Exchange::cancel(const MpiApi& api) {
  // A send to another process that has begun cannot be cancelled in current implementations.
  for (Transfer& transfer : transfers_)
    if (transfer.in_flight && (!transfer.sends || transfer.request.is_local))
      (void)api.cancel(&transfer.request);
}

bool Exchange::settle(const MpiApi& api) {
  bool settled = true;
  for (Transfer& transfer : transfers_) {
    if (!transfer.in_flight) continue;
    int done = 0;
    MpiReceived received;
    (void)api.test(&transfer.request, &done, &received);
    transfer.in_flight = done == 0;
    settled &= !transfer.in_flight;
  }
  return settled;
}

bool Exchange::abandon(const MpiApi& api) {
  bool any = false;
  for (Transfer& transfer : transfers_) {
    if (!transfer.in_flight) continue;
    any = true;
    transfer.in_flight = false;
    (void)api.abandon(&transfer.request);
  }
  return any;
}

void Exchange::fail(Status status, LeaveCause why) {
  status_ = std::move(status);
  cause_ = std::move(why);
}

void Exchange::fail_locally(Status status) {
  LeaveCause why{peers_->rank(), status.to_string()};
  fail(std::move(status), std::move(why));
}

void Exchange::lose(const Transfer& transfer) {
  const LeaveCause& cause = peers_->cause_of(transfer.peer);
  fail(lost_peer(cause, peers_->size()), cause);
}

void Exchange::fail_by_mpi(const Transfer& transfer, const MpiApi& api, int error) {
  char text[160] = {};
  api.describe(error, text, sizeof text);
  LeaveCause cause{transfer.peer, str(transfer.sends ? "a send of " : "a receive of ", transfer.message_bytes,
                                      " bytes failed: ", text)};
  Status status = lost_peer(cause, peers_->size());
  fail(std::move(status), std::move(cause));
}

}  // namespace strata::detail
