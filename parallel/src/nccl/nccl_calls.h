#pragma once

#include <cstddef>
#include <optional>

#include <strata/parallel/collective.h>
#include <strata/runtime/backend/backend.h>

#include "nccl/nccl_comm.h"
#include "nccl/nccl_device.h"
#include "reduction_pieces.h"

namespace strata::detail {

/// Queues the collectives of one group as operations of NCCL and kernels of ours. Used by one thread at a
/// time.
class NcclCalls {
 public:
  /// Allocates the inbox for reductions, in device memory: a piece of `piece_bytes` of every other rank.
  static Result<NcclCalls> create(const NcclDevice& device, Backend& backend, int size,
                                  std::size_t piece_bytes);
  /// The collective must be valid.
  Status queue(NcclComm& comm, const Collective& call, Stream& stream);

 private:
  NcclCalls(const NcclDevice& device, Backend& backend, Buffer inbox, std::size_t piece_bytes)
      : device_(&device), backend_(&backend), inbox_(std::move(inbox)), piece_bytes_(piece_bytes) {}
  Status reduce(NcclComm& comm, const Collective& call, Stream& stream);
  Status exchange_piece(NcclComm& comm, const ReductionPieces& pieces, std::size_t piece, Stream& stream);
  Status reduce_piece(const ReductionPieces& pieces, std::size_t piece, Stream& stream);
  Status gather_parts(NcclComm& comm, const Collective& call, Stream& stream);
  Status all_to_all(NcclComm& comm, const Collective& call, Stream& stream);

  const NcclDevice* device_;
  Backend* backend_;
  Buffer inbox_;
  std::size_t piece_bytes_;
  Event inbox_free_;  // the last use of the inbox
};

}  // namespace strata::detail
