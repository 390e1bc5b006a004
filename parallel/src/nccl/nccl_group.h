#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/parallel/nccl_group.h>
#include <strata/parallel/process_group.h>

#include "nccl/nccl_calls.h"
#include "nccl/nccl_comm.h"
#include "nccl/nccl_device.h"
#include "nccl/nccl_texts.h"
#include "nccl/nccl_watch.h"
#include "nccl/nccl_work.h"

namespace strata::detail {

/// The objects that all groups of a rank use.
struct NcclSetup {
  const NcclDevice& device;  ///< lives as long as the process
  Backend& backend;
  NcclOptions options;
};

class NcclGroup final : public ProcessGroup {
 public:
  /// A group of the ranks of a communicator that all of them have joined.
  NcclGroup(const NcclSetup& setup, std::unique_ptr<NcclComm> comm, NcclCalls calls);
  /// Ends the queued work and waits for that.
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const noexcept override { return comm_->rank(); }
  int size() const noexcept override { return comm_->size(); }
  Status queue(const Collective& collective, Stream& stream) override;
  Result<std::unique_ptr<ProcessGroup>> split(std::span<const int> members) override;
  GroupCounters counters() const noexcept override { return counters_; }

  /// This rank cannot go on: aborts the communicator.
  void fail(const Status& why) { (void)comm_->fail(why); }
  /// Every rank's text, by rank, over NCCL. All ranks call it.
  Result<std::vector<std::string>> all_gather(std::string_view text);
  /// A group of the same ranks for the work of another backend on the same GPU. All ranks call it.
  Result<std::unique_ptr<NcclGroup>> duplicate(const NcclSetup& setup);

 private:
  Status queue_all(const Collective& collective, Stream& stream);
  Result<std::unique_ptr<NcclGroup>> divide(const NcclSetup& setup, std::span<const int> members);

  const NcclSetup setup_;
  const std::unique_ptr<NcclComm> comm_;
  NcclCalls calls_;
  NcclWork work_;
  NcclTexts texts_;
  GroupCounters counters_;
  NcclWatch watch_;  // last: ends before anything above is destroyed
};

/// Creates the group of `size` ranks, of which `all_gather` exchanges texts: every rank learns what the
/// others lack before any of them waits in NCCL.
using GatherTexts = std::function<Result<std::vector<std::string>>(std::string_view)>;
Result<std::unique_ptr<ProcessGroup>> create_nccl_group(const NcclSetup& setup, int rank, int size,
                                                        const GatherTexts& all_gather);

}  // namespace strata::detail
