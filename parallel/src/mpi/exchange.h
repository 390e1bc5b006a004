#pragma once

#include <cstddef>
#include <vector>

#include <strata/runtime/status.h>

#include "mpi/mpi_api.h"
#include "mpi/peers.h"

namespace strata::detail {

/// Bytes that go to or come from one rank of a group, in one message or in several that follow each other.
struct Transfer {
  int peer = 0;
  bool sends = false;
  std::byte* data = nullptr;  ///< not written if `sends`
  std::size_t bytes = 0;

  std::size_t moved = 0;
  std::size_t message_bytes = 0;  ///< the size of the message in flight
  bool in_flight = false;
  MpiRequest request = {};
};

/// Transfers that are to happen together, and how far they are. Filled by the thread that wants them, then
/// advanced by the MPI thread until it is finished. Keeps its memory when it is used again.
class Exchange {
 public:
  void start_over(Peers& peers, int tag);
  /// Nothing is sent for no bytes.
  void send(int peer, const std::byte* data, std::size_t bytes);
  void receive(int peer, std::byte* data, std::size_t bytes);
  Peers& peers() const noexcept { return *peers_; }
  bool empty() const noexcept { return transfers_.empty(); }
  bool finished = true;  ///< guarded by the mutex of the MPI thread

  // --- the MPI thread ---

  /// Posts and tests messages. Sets `progressed` if one of them has changed. Returns whether all are complete
  /// or one has failed.
  bool advance(const MpiApi& api, std::size_t max_message_bytes, bool& progressed);
  /// Ends what is in flight: the memory may be used again once it returns true. Returns false while a message
  /// cannot be ended; see abandon().
  void cancel(const MpiApi& api);
  bool settle(const MpiApi& api);
  /// Gives up messages that neither end nor can be cancelled. Returns whether there were any.
  bool abandon(const MpiApi& api);
  void fail(Status status, LeaveCause why);  ///< also called where the MPI thread has ended
  const Status& status() const noexcept { return status_; }
  const LeaveCause& cause() const noexcept { return cause_; }

 private:
  bool advance(Transfer& transfer, const MpiApi& api, std::size_t max_message_bytes, bool& progressed);
  bool post(Transfer& transfer, const MpiApi& api, std::size_t max_message_bytes);
  bool test(Transfer& transfer, const MpiApi& api, bool& progressed);
  void lose(const Transfer& transfer);
  void fail_locally(Status status);
  void fail_by_mpi(const Transfer& transfer, const MpiApi& api, int error);

  Peers* peers_ = nullptr;
  int tag_ = 0;
  std::vector<Transfer> transfers_;
  Status status_;
  LeaveCause cause_;
};

}  // namespace strata::detail
