#include <strata/parallel/nccl_group.h>

#include "nccl/cuda/cuda_nccl_device.h"
#include "nccl/nccl_group.h"

namespace strata {

bool built_with_nccl() noexcept { return true; }

Result<std::unique_ptr<ProcessGroup>> create_nccl_group(World& world, Backend& backend,
                                                        const NcclOptions& options) {
  if (backend.info().kind != DeviceKind::cuda)
    return Status::error(Code::unsupported, "NCCL moves the memory of GPUs, and this backend has none");
  static const detail::CudaNcclDevice device;
  return detail::create_nccl_group({device, backend, options}, world.rank(), world.size(),
                                   [&](std::string_view text) { return world.all_gather(text); });
}

}  // namespace strata
