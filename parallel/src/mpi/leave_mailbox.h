#pragma once

#include <memory>
#include <vector>

#include <strata/runtime/status.h>

#include "mpi/mpi_api.h"
#include "mpi/peers.h"

namespace strata::detail {

/// Sends and receives the messages of ranks that leave a group. Of the MPI thread.
class LeaveMailbox {
 public:
  explicit LeaveMailbox(const MpiApi& api) : api_(api) {}

  Status open();
  /// Progresses what has been sent. Errors: those of MPI.
  Status send(const LeaveMessage& message, int to_world_rank);
  struct Arrived {
    bool any = false;
    int from_world_rank = 0;
    LeaveMessage message = {};
  };
  Result<Arrived> poll();
  /// Whether all messages have been handed to MPI.
  bool sent_all() const noexcept { return sends_.empty(); }
  void close();

 private:
  struct Send {
    LeaveMessage message;
    MpiRequest request;
  };
  Status post();
  Status error(int error) const;

  const MpiApi& api_;
  std::vector<std::unique_ptr<Send>> sends_;  // MPI reads them until their requests are done
  LeaveMessage incoming_;
  MpiRequest receive_;
  bool open_ = false;
};

}  // namespace strata::detail
