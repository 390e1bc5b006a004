#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/backend/backend.h>

#include "nccl/nccl_comm.h"
#include "nccl/nccl_device.h"
#include "nccl/nccl_work.h"

namespace strata::detail {

/// Exchanges texts between the ranks of a communicator over NCCL, through two small buffers. Used by one
/// thread.
class NcclTexts {
 public:
  NcclTexts(Backend& backend, const NcclDevice& device, NcclComm& comm, NcclWork& work)
      : backend_(backend), device_(device), comm_(comm), work_(work) {}
  /// Every rank's text, by rank. Waits until all ranks have called it, and for what they have queued before.
  Result<std::vector<std::string>> all_gather(std::string_view text);

 private:
  Status reserve(std::size_t bytes);
  Status exchange(std::string_view text, std::size_t block);

  Backend& backend_;
  const NcclDevice& device_;
  NcclComm& comm_;
  NcclWork& work_;
  std::unique_ptr<Stream> stream_;
  Buffer on_gpu_, on_host_;  // this rank's block, then those of all
};

}  // namespace strata::detail
