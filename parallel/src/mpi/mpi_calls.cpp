#include "mpi/mpi_calls.h"

#include <cstring>

namespace strata::detail {
namespace {

void copy_own(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// The ranks after this one, in turn, so that not all ranks send to the same one first.
template <class Visit>
void for_each_other(const Peers& peers, const Visit& visit) {
  for (int i = 1; i < peers.size(); ++i) visit((peers.rank() + i) % peers.size());
}

}  // namespace

MpiCalls::MpiCalls(MpiThread& thread, Peers& peers) : thread_(thread), peers_(peers) {
  give_back(std::make_unique<Scratch>());
}

ReductionPieces MpiCalls::pieces_of(const Collective& call) const {
  return reduction_pieces(call, peers_.rank(), peers_.size(), thread_.options().max_piece_bytes);
}

std::unique_ptr<MpiCalls::Scratch> MpiCalls::take_scratch() {
  const MutexLock lock(mutex_);
  if (free_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> taken = std::move(free_.back());
  free_.pop_back();
  return taken;
}

void MpiCalls::give_back(std::unique_ptr<Scratch> scratch) {
  const MutexLock lock(mutex_);
  free_.push_back(std::move(scratch));
}

Status MpiCalls::run(const Collective& call, int tag, ThreadPool& pool) {
  std::unique_ptr<Scratch> scratch = take_scratch();
  Status status = run(call, tag, pool, *scratch);
  give_back(std::move(scratch));
  return status;
}

Status MpiCalls::run(const Collective& call, int tag, ThreadPool& pool, Scratch& scratch) {
  Exchange& exchange = scratch.exchanges[0];
  exchange.start_over(peers_, tag);
  switch (call.kind) {
    case CollectiveKind::all_gather:
      return all_gather(call, exchange);
    case CollectiveKind::all_to_all:
      return all_to_all(call, exchange);
    case CollectiveKind::reduce_scatter:
      return reduce(pieces_of(call), tag, pool, scratch);
    case CollectiveKind::all_reduce:
      return all_reduce(call, tag, pool, scratch);
    case CollectiveKind::broadcast:
      if (peers_.rank() != call.peer)
        exchange.receive(call.peer, call.receive.data, call.receive.bytes);
      else
        for_each_other(peers_, [&](int q) { exchange.send(q, call.receive.data, call.receive.bytes); });
      return finish(exchange);
    case CollectiveKind::shift:
      return shift(call, exchange);
    case CollectiveKind::send:
      exchange.send(call.peer, call.send.data, call.send.bytes);
      return finish(exchange);
    case CollectiveKind::receive:
      exchange.receive(call.peer, call.receive.data, call.receive.bytes);
      return finish(exchange);
  }
  return {};
}

Status MpiCalls::finish(Exchange& exchange) {
  thread_.begin(exchange);
  return thread_.wait(exchange);
}

Status MpiCalls::all_gather(const Collective& call, Exchange& exchange) {
  const std::size_t bytes = call.send.bytes;
  const auto part = [&](int q) { return call.receive.data + static_cast<std::size_t>(q) * bytes; };
  for_each_other(peers_, [&](int q) {
    exchange.send(q, call.send.data, bytes);
    exchange.receive(q, part(q), bytes);
  });
  thread_.begin(exchange);
  copy_own(part(peers_.rank()), call.send.data, bytes);
  return thread_.wait(exchange);
}

Status MpiCalls::all_to_all(const Collective& call, Exchange& exchange) {
  const std::size_t bytes = call.send.bytes / static_cast<std::size_t>(peers_.size());
  const auto offset = [&](int q) { return static_cast<std::size_t>(q) * bytes; };
  for_each_other(peers_, [&](int q) {
    exchange.send(q, call.send.data + offset(q), bytes);
    exchange.receive(q, call.receive.data + offset(q), bytes);
  });
  thread_.begin(exchange);
  copy_own(call.receive.data + offset(peers_.rank()), call.send.data + offset(peers_.rank()), bytes);
  return thread_.wait(exchange);
}

Status MpiCalls::shift(const Collective& call, Exchange& exchange) {
  const int n = peers_.size(), me = peers_.rank();
  if (call.peer == 0)
    copy_own(call.receive.data, call.send.data, call.send.bytes);
  else {
    exchange.send((me - call.peer + n) % n, call.send.data, call.send.bytes);
    exchange.receive((me + call.peer) % n, call.receive.data, call.receive.bytes);
  }
  return finish(exchange);
}

// Each rank reduces one part in place, which nobody else reads, and then sends it to all others.
Status MpiCalls::all_reduce(const Collective& call, int tag, ThreadPool& pool, Scratch& scratch) {
  const auto part = [&](int q) {
    const std::size_t begin = part_begin(call.receive.bytes, call.dtype, q, peers_.size());
    return call.receive.part(begin, part_begin(call.receive.bytes, call.dtype, q + 1, peers_.size()) - begin);
  };
  const BufferView mine = part(peers_.rank());
  STRATA_TRY(reduce(pieces_of(call), tag, pool, scratch));
  Exchange& exchange = scratch.exchanges[0];
  exchange.start_over(peers_, tag);
  for_each_other(peers_, [&](int q) {
    exchange.send(q, mine.data, mine.bytes);
    exchange.receive(q, part(q).data, part(q).bytes);
  });
  return finish(exchange);
}

Status MpiCalls::reduce(const ReductionPieces& reduction, int tag, ThreadPool& pool, Scratch& scratch) {
  const std::size_t n = static_cast<std::size_t>(peers_.size()), pieces = reduction.n_pieces();
  const std::size_t needed = 2 * (n - 1) * reduction.slot_bytes();
  if (scratch.inbox.size() < needed) {
    thread_.count_memory(needed - scratch.inbox.size());
    scratch.inbox.resize(needed);
  }
  scratch.parts.resize(n);
  Status status;
  if (pieces > 0) begin_piece(reduction, 0, tag, scratch);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const bool more = piece + 1 < pieces && status.is_ok();
    if (more) begin_piece(reduction, piece + 1, tag, scratch);
    status = thread_.wait(scratch.exchanges[piece % 2]);
    if (!status.is_ok() && more) (void)thread_.wait(scratch.exchanges[(piece + 1) % 2]);
    if (!status.is_ok()) return status;
    add_piece(reduction, piece, pool, scratch);
  }
  return status;
}

void MpiCalls::begin_piece(const ReductionPieces& reduction, std::size_t piece, int tag, Scratch& scratch) {
  Exchange& exchange = scratch.exchanges[piece % 2];
  exchange.start_over(peers_, tag);
  const std::size_t mine = reduction.bytes(peers_.rank(), piece);
  const std::size_t slot = reduction.slot_bytes();
  std::byte* inbox = scratch.inbox.data() + (piece % 2) * (scratch.parts.size() - 1) * slot;
  for (int q = 0; q < peers_.size(); ++q) {
    if (q == peers_.rank()) continue;
    exchange.receive(q, inbox, mine);
    inbox += slot;
  }
  for_each_other(peers_,
                 [&](int q) { exchange.send(q, reduction.piece(q, piece), reduction.bytes(q, piece)); });
  thread_.begin(exchange);
}

void MpiCalls::add_piece(const ReductionPieces& reduction, std::size_t piece, ThreadPool& pool,
                         Scratch& scratch) {
  const std::size_t mine = reduction.bytes(peers_.rank(), piece), at = piece * reduction.piece_bytes;
  if (mine == 0) return;
  const std::size_t slot = reduction.slot_bytes();
  const std::byte* inbox = scratch.inbox.data() + (piece % 2) * (scratch.parts.size() - 1) * slot;
  for (int q = 0; q < peers_.size(); ++q) {
    const bool own = q == peers_.rank();
    scratch.parts[static_cast<std::size_t>(q)] = own ? reduction.piece(q, piece) : inbox;
    if (!own) inbox += slot;
  }
  detail::reduce({scratch.parts, reduction.into.data + at, mine, reduction.dtype, reduction.reduction}, pool);
}

}  // namespace strata::detail
