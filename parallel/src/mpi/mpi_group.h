#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <strata/parallel/process_group.h>

#include "mpi/mpi_calls.h"
#include "mpi/mpi_thread.h"

namespace strata::detail {

/// A group of `members`, ranks of `parent`, whose ranks all call this with the same tag. Blocks until they
/// have. Errors: `invalid`, on every rank of the parent, naming what is wrong with a list; `lost_peer`.
Result<Peers*> create_peers(MpiThread& thread, Peers& parent, int tag, std::span<const int> members);

class MpiGroup final : public ProcessGroup {
 public:
  MpiGroup(std::shared_ptr<MpiThread> thread, Peers& peers, Backend& backend);
  /// Work that is still queued fails.
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  int rank() const noexcept override { return peers_.rank(); }
  int size() const noexcept override { return peers_.size(); }
  Status queue(const Collective& collective, Stream& stream) override;
  Result<std::unique_ptr<ProcessGroup>> split(std::span<const int> members) override;
  GroupCounters counters() const noexcept override { return counters_; }

 private:
  int next_tag(const Collective& call);

  const std::shared_ptr<MpiThread> thread_;
  Peers& peers_;
  Backend& backend_;
  const std::shared_ptr<MpiCalls> calls_;  // queued work refers to it
  GroupCounters counters_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sends_, receives_;  // indexed by peer
};

}  // namespace strata::detail
