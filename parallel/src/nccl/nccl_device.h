#pragma once

#include <string>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>

#include "nccl/reduce_piece.h"

namespace strata::detail {

/// Facts that tell GPUs apart.
struct GpuIdentity {
  std::string bus_id;  ///< "0000:3B:00.0", unique on its machine
  int visible_gpus = 0;
};

/// The functions of CUDA that the transport needs besides a Backend; tests replace them. Without state and
/// thread-safe.
class NcclDevice {
 public:
  virtual ~NcclDevice() = default;
  /// The cudaStream_t of a stream, whose device becomes that of the calling thread. Once for each operation.
  virtual Result<void*> stream_handle(Stream& stream) const = 0;
  /// Queues the reduction of a piece that is not empty.
  virtual Status reduce_async(const PieceArgs& piece, Stream& stream) const = 0;
  /// The GPU of the backend of `stream`.
  virtual Result<GpuIdentity> identity(Stream& stream) const = 0;
};

}  // namespace strata::detail
