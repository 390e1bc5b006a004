#include "nccl/nccl_calls.h"

#include <algorithm>
#include <utility>

namespace strata::detail {
namespace {

/// Operations between two ranks, within a group of NCCL. The first error is kept, and nothing is queued after
/// it. Empty messages are not exchanged.
struct Messages {
  const NcclApi& api;
  void* comm;
  void* stream;
  NcclOutcome outcome = {};

  void send(int to, const std::byte* data, std::size_t bytes) {
    if (bytes > 0 && !outcome.is_error())
      outcome = {"ncclSend", api.send(data, bytes, kNcclInt8, to, comm, stream)};
  }
  void receive(int from, std::byte* data, std::size_t bytes) {
    if (bytes > 0 && !outcome.is_error())
      outcome = {"ncclRecv", api.receive(data, bytes, kNcclInt8, from, comm, stream)};
  }
};

template <class Body>
Status queue_messages(NcclComm& comm, void* stream, const Body& body) {
  return comm.queue_group([&](const NcclApi& api, void* handle) {
    Messages messages{api, handle, stream};
    body(messages);
    return messages.outcome;
  });
}

Status queue_all_gather(NcclComm& comm, ConstBufferView send, std::byte* receive, void* stream) {
  return comm.queue_group([&](const NcclApi& api, void* handle) {
    return NcclOutcome{"ncclAllGather",
                       api.all_gather(send.data, receive, send.bytes, kNcclInt8, handle, stream)};
  });
}

Status queue_broadcast(NcclComm& comm, const Collective& call, void* stream) {
  return comm.queue_group([&](const NcclApi& api, void* handle) {
    return NcclOutcome{"ncclBroadcast",
                       api.broadcast(call.receive.data, call.receive.data, call.receive.bytes, kNcclInt8,
                                     call.peer, handle, stream)};
  });
}

}  // namespace

Result<NcclCalls> NcclCalls::create(const NcclDevice& device, Backend& backend, int size,
                                    std::size_t piece_bytes) {
  // So that the pieces in the inbox are aligned for vectors.
  const std::size_t piece = std::max<std::size_t>(piece_bytes / kVectorBytes, 1) * kVectorBytes;
  if (size == 1) return NcclCalls(device, backend, Buffer(), piece);
  STRATA_TRY_ASSIGN(Buffer inbox,
                    backend.allocate(MemoryKind::device, static_cast<std::size_t>(size - 1) * piece));
  return NcclCalls(device, backend, std::move(inbox), piece);
}

Status NcclCalls::queue(NcclComm& comm, const Collective& call, Stream& stream) {
  if (call.send.bytes + call.receive.bytes == 0) return {};
  if (call.kind == CollectiveKind::reduce_scatter) return reduce(comm, call, stream);
  if (call.kind == CollectiveKind::all_reduce) {
    if (comm.size() == 1) return {};
    STRATA_TRY(reduce(comm, call, stream));
    return gather_parts(comm, call, stream);
  }
  STRATA_TRY_ASSIGN(void* const handle, device_->stream_handle(stream));
  switch (call.kind) {
    case CollectiveKind::all_gather:
      return queue_all_gather(comm, call.send, call.receive.data, handle);
    case CollectiveKind::broadcast:
      return queue_broadcast(comm, call, handle);
    case CollectiveKind::all_to_all:
      return all_to_all(comm, call, stream);
    case CollectiveKind::shift:
      return queue_messages(comm, handle, [&](Messages& messages) {
        messages.send((comm.rank() - call.peer + comm.size()) % comm.size(), call.send.data, call.send.bytes);
        messages.receive((comm.rank() + call.peer) % comm.size(), call.receive.data, call.receive.bytes);
      });
    default:
      return queue_messages(comm, handle, [&](Messages& messages) {
        messages.send(call.peer, call.send.data, call.send.bytes);
        messages.receive(call.peer, call.receive.data, call.receive.bytes);
      });
  }
}

Status NcclCalls::all_to_all(NcclComm& comm, const Collective& call, Stream& stream) {
  STRATA_TRY_ASSIGN(void* const handle, device_->stream_handle(stream));
  const std::size_t bytes = call.send.bytes / static_cast<std::size_t>(comm.size());
  return queue_messages(comm, handle, [&](Messages& messages) {
    for (int q = 0; q < comm.size(); ++q) {  // also to itself: NCCL copies
      const std::size_t offset = static_cast<std::size_t>(q) * bytes;
      messages.send(q, call.send.data + offset, bytes);
      messages.receive(q, call.receive.data + offset, bytes);
    }
  });
}

// The inbox has one user at a time: the stream waits for the one that used it last.
Status NcclCalls::reduce(NcclComm& comm, const Collective& call, Stream& stream) {
  const ReductionPieces pieces = reduction_pieces(call, comm.rank(), comm.size(), piece_bytes_);
  STRATA_TRY(backend_->wait_on_async(inbox_free_, stream));
  for (std::size_t piece = 0, n = pieces.n_pieces(); piece < n; ++piece) {
    STRATA_TRY(exchange_piece(comm, pieces, piece, stream));
    STRATA_TRY(reduce_piece(pieces, piece, stream));
  }
  STRATA_TRY_ASSIGN(inbox_free_, backend_->record(stream));
  return {};
}

Status NcclCalls::exchange_piece(NcclComm& comm, const ReductionPieces& pieces, std::size_t piece,
                                 Stream& stream) {
  if (comm.size() == 1) return {};
  STRATA_TRY_ASSIGN(void* const handle, device_->stream_handle(stream));
  const std::size_t mine = pieces.bytes(comm.rank(), piece);
  return queue_messages(comm, handle, [&](Messages& messages) {
    std::byte* slot = inbox_.view().data;
    for (int q = 0; q < comm.size(); ++q) {
      if (q == comm.rank()) continue;
      messages.send(q, pieces.piece(q, piece), pieces.bytes(q, piece));
      messages.receive(q, slot, mine);
      slot += pieces.piece_bytes;
    }
  });
}

Status NcclCalls::reduce_piece(const ReductionPieces& pieces, std::size_t piece, Stream& stream) {
  const std::size_t bytes = pieces.bytes(pieces.rank, piece);
  if (bytes == 0) return {};
  return device_->reduce_async(
      {pieces.piece(pieces.rank, piece), inbox_.view().data, pieces.piece_bytes, pieces.rank, pieces.size,
       pieces.into.data + piece * pieces.piece_bytes, bytes, pieces.dtype, pieces.reduction},
      stream);
}

// Every rank has its part of an all_reduce, and sends it to all others.
Status NcclCalls::gather_parts(NcclComm& comm, const Collective& call, Stream& stream) {
  STRATA_TRY_ASSIGN(void* const handle, device_->stream_handle(stream));
  const auto part = [&](int q) {
    const std::size_t begin = part_begin(call.receive.bytes, call.dtype, q, comm.size());
    return call.receive.part(begin, part_begin(call.receive.bytes, call.dtype, q + 1, comm.size()) - begin);
  };
  const BufferView mine = part(comm.rank());
  if (call.receive.bytes % (static_cast<std::size_t>(comm.size()) * size_of(call.dtype)) == 0)
    return queue_all_gather(comm, mine, call.receive.data, handle);
  return queue_messages(comm, handle, [&](Messages& messages) {
    for (int q = 0; q < comm.size(); ++q) {
      if (q == comm.rank()) continue;
      messages.send(q, mine.data, mine.bytes);
      messages.receive(q, part(q).data, part(q).bytes);
    }
  });
}

}  // namespace strata::detail
