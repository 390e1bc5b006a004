#pragma once

#include "nccl/nccl_device.h"

namespace strata::detail {

class CudaNcclDevice : public NcclDevice {
 public:
  Result<void*> stream_handle(Stream& stream) const override;
  Status reduce_async(const PieceArgs& piece, Stream& stream) const override;
  Result<GpuIdentity> identity(Stream& stream) const override;
};

/// Launches the kernel.
Status reduce_on_gpu(const PieceArgs& piece, Stream& stream);

}  // namespace strata::detail
