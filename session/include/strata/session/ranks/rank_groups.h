#pragma once

#include <memory>

#include <strata/parallel/process_group.h>
#include <strata/session/ranks/data_parallel.h>

namespace strata {

/// The groups in which a rank's session exchanges data.
class RankGroups {
 public:
  /// A collective call. `world` outlives the object. Errors: `invalid` if its size or rank is not that of
  /// `ranks`; those of ProcessGroup::split().
  static Result<RankGroups> create(ProcessGroup& world, const DataParallel& ranks);

  /// The counters of all groups together.
  GroupCounters counters() const noexcept;
  ProcessGroup& world() const noexcept { return *world_; }
  /// All ranks, in the order of the parts of the gradient that they sum.
  ProcessGroup& sums() const noexcept { return sums_ ? *sums_ : *world_; }
  /// The ranks that hold one copy of the states together, in the order of their shards.
  ProcessGroup& shards() const noexcept { return shards_ ? *shards_ : *world_; }
  /// The ranks that hold the same shard, in the order of their parts.
  ProcessGroup& replicas() const noexcept { return replicas_ ? *replicas_ : *world_; }
  /// All ranks, for what a program adds up (GradientReduce::in_program); its collectives are queued on
  /// another stream than those of the other groups.
  ProcessGroup& in_program() const noexcept { return *in_program_; }

 private:
  explicit RankGroups(ProcessGroup& world) : world_(&world) {}
  ProcessGroup* world_;
  std::unique_ptr<ProcessGroup> sums_, shards_, replicas_;  // null: the world
  std::unique_ptr<ProcessGroup> in_program_;                // null: programs add nothing up
};

}  // namespace strata
