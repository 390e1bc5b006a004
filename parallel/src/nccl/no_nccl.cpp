// Defines the symbols of open_nccl.cpp in builds without NCCL.
#include <strata/parallel/nccl_group.h>

namespace strata {

bool built_with_nccl() noexcept { return false; }

Result<std::unique_ptr<ProcessGroup>> create_nccl_group(World&, Backend&, const NcclOptions&) {
  return Status::error(Code::unsupported,
                       "this build has no NCCL: build it with CUDA, and without STRATA_WITH_NCCL=OFF");
}

}  // namespace strata
