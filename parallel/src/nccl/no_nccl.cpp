// Defines the symbols of open_nccl.cpp in builds without NCCL.
#include <strata/parallel/nccl_group.h>
#include <strata/parallel/nccl_world.h>

namespace strata {

namespace {

Status no_nccl() {
  return Status::error(Code::unsupported,
                       "this build has no NCCL: build it with CUDA, and without STRATA_WITH_NCCL=OFF");
}

}  // namespace

bool built_with_nccl() noexcept { return false; }

Result<std::unique_ptr<ProcessGroup>> create_nccl_group(World&, Backend&, const NcclOptions&) {
  return no_nccl();
}

Result<std::unique_ptr<World>> open_nccl_world(std::span<const std::string>, const NcclOptions&) {
  return no_nccl();
}

}  // namespace strata
