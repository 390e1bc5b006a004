#include <stdlib.h>  // setenv

#include <strata/parallel/nccl_group.h>
#include <strata/parallel/nccl_world.h>
#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/str.h>

#include "nccl/cuda/cuda_nccl_device.h"
#include "nccl/nccl_group.h"
#include "nccl/nccl_world.h"

namespace strata {
namespace {

const detail::NcclDevice& device() {
  static const detail::CudaNcclDevice cuda;
  return cuda;
}

}  // namespace

bool built_with_nccl() noexcept { return true; }

Result<std::unique_ptr<ProcessGroup>> create_nccl_group(World& world, Backend& backend,
                                                        const NcclOptions& options) {
  if (backend.info().kind != DeviceKind::cuda)
    return Status::error(Code::unsupported, "NCCL moves the memory of GPUs, and this backend has none");
  return detail::create_nccl_group({device(), backend, options}, world.rank(), world.size(),
                                   [&](std::string_view text) { return world.all_gather(text); });
}

Result<std::unique_ptr<World>> open_nccl_world(std::span<const std::string> environment,
                                               const NcclOptions& options) {
  STRATA_TRY_ASSIGN(const detail::TorchrunRank rank, detail::read_torchrun(environment));
  STRATA_TRY_ASSIGN(std::unique_ptr<ThreadPool> pool, ThreadPool::create(1));
  auto backend = create_cuda_backend({.device = rank.local_rank, .timed = false}, *pool);
  if (!backend.has_value()) return backend.status().annotate(str("LOCAL_RANK=", rank.local_rank));
  // The only way to tell NCCL. NOLINTNEXTLINE(concurrency-mt-unsafe): documented
  if (::setenv("NCCL_COMM_ID", rank.comm_id.c_str(), 1) != 0)
    return Status::error(Code::out_of_memory, "NCCL_COMM_ID cannot be set");
  return detail::create_nccl_world(rank, device(), std::move(pool), *std::move(backend), options);
}

}  // namespace strata
