#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <strata/parallel/collective.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>

namespace strata {

struct GroupCounters {
  std::uint64_t calls = 0;
  std::uint64_t sent_bytes = 0, received_bytes = 0;
};

/// The ranks that exchange data with each other, as seen by one of them. Every rank queues the same
/// collectives in the same order. Not thread-safe: one thread of a rank at a time.
///
/// Reductions add in ascending rank, in f32 for 16-bit dtypes with one rounding at the end, so their bits
/// depend on the size of the group and on nothing else.
///
/// A rank that destroys its object has left the group, and its work that is still queued may fail.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// Queues a collective on `stream`, in stream order: it reads and writes its buffers after the work queued
  /// before it, and work queued after it sees the result and may overwrite `send`. The call may wait until
  /// the other ranks have queued theirs, never until the data has moved.
  ///
  /// Errors, of the call or, where a transport notices only when the work runs, of the stream: `invalid` if
  /// the calls of the ranks do not match; `lost_peer` if a rank has left the group; those of check(), before
  /// anything is queued. A failure of queued work of one rank fails the streams of all that wait for it. The
  /// README says what each transport detects, and when.
  virtual Status queue(const Collective& collective, Stream& stream) = 0;

  /// Divides the group: `members` are the ranks of this rank's new group, in their new order. Every rank
  /// calls it, with the same list as the other members of its new group; one thread of a rank at a time, also
  /// for different groups. Errors: `invalid`, on every rank, naming what is wrong with a list; `lost_peer` if
  /// a rank has left.
  virtual Result<std::unique_ptr<ProcessGroup>> split(std::span<const int> members) = 0;

  /// Counts of everything that this rank has queued so far.
  virtual GroupCounters counters() const noexcept = 0;

  Status all_gather(ConstBufferView send, BufferView receive, Stream& stream) {
    return queue({.kind = CollectiveKind::all_gather, .send = send, .receive = receive}, stream);
  }
  Status reduce_scatter(ConstBufferView send, BufferView receive, DType dtype, Reduction reduction,
                        Stream& stream) {
    return queue({CollectiveKind::reduce_scatter, send, receive, dtype, reduction, 0}, stream);
  }
  Status all_reduce(BufferView data, DType dtype, Reduction reduction, Stream& stream) {
    return queue({CollectiveKind::all_reduce, {}, data, dtype, reduction, 0}, stream);
  }
  Status broadcast(BufferView data, int root, Stream& stream) {
    return queue({.kind = CollectiveKind::broadcast, .receive = data, .peer = root}, stream);
  }
  Status all_to_all(ConstBufferView send, BufferView receive, Stream& stream) {
    return queue({.kind = CollectiveKind::all_to_all, .send = send, .receive = receive}, stream);
  }
  /// `receive` gets what rank (rank + step) mod size sends, for a step of 0 to size - 1.
  Status shift(ConstBufferView send, BufferView receive, int step, Stream& stream) {
    return queue({.kind = CollectiveKind::shift, .send = send, .receive = receive, .peer = step}, stream);
  }
  /// Waits for the receiver's call: two ranks that both send first wait for each other for ever.
  Status send(ConstBufferView data, int to, Stream& stream) {
    return queue({.kind = CollectiveKind::send, .send = data, .peer = to}, stream);
  }
  Status receive(BufferView data, int from, Stream& stream) {
    return queue({.kind = CollectiveKind::receive, .receive = data, .peer = from}, stream);
  }
};

}  // namespace strata
