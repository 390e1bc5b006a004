#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/engine/batch_source.h>
#include <strata/engine/run_plan.h>

#include "execute/sequences/snapshot_ring.h"

namespace strata::detail {

/// Tracks which tokens of each sequence are in the KV cache that prefill and decode share, and of how many of
/// them the states of its layers and their snapshots are. Checks the tokens to be added, since the kernels
/// cannot. Allocates nothing after construction.
class KvCacheTracker {
 public:
  /// Empty if the plan has no such programs.
  explicit KvCacheTracker(const RunPlan& plan);

  /// Errors: `invalid`, as documented for Engine::extend.
  Status check(std::span<const SequenceToken> tokens, std::span<const std::int32_t> wanted);
  bool fits_decode(std::span<const SequenceToken> tokens,
                   std::span<const std::int32_t> wanted) const noexcept;
  /// Writes the inputs of a program; rows without a token are marked as unused.
  static void write(const BatchView& inputs, std::span<const SequenceToken> tokens,
                    std::span<const std::int32_t> wanted);
  /// The snapshots that have to become the states of their slots before the tokens checked last.
  struct Restore {
    std::int32_t slot = 0;
    std::int32_t place = 0;  ///< where the snapshot is among those of all slots
  };
  std::span<const Restore> restores() const noexcept { return restores_; }
  /// Records that the tokens checked last are in the cache.
  void advance() noexcept;
  /// Records that adding the tokens checked last failed: what their sequences had behind the first of them,
  /// and their states, are lost.
  void lose() noexcept;

  /// See Engine::continues_from().
  std::int32_t continues_from(std::int32_t slot, std::int32_t position) const noexcept;
  bool keeps_snapshots() const noexcept { return snapshots_.per_slot() > 0; }
  /// Whether a snapshot of the slot is to be taken now: its state has one, and none is kept of it yet.
  /// Errors: `invalid`, as documented for Engine::keep_snapshot.
  Result<bool> wants_snapshot(std::int32_t slot) const;
  SnapshotRing& snapshots() noexcept { return snapshots_; }
  /// The tokens in the cache of a sequence.
  std::int32_t length(std::int32_t slot) const noexcept { return lengths_[static_cast<std::size_t>(slot)]; }
  /// Forgets all sequences, since the cache's memory is used otherwise.
  void forget() noexcept;

  /// Returns as many tokens as a run of `program` accepts, one slot after the other.
  std::vector<SequenceToken> fill(const LoweredProgram& program) const;

 private:
  struct Limits {
    std::size_t rows = 0, logit_rows = 0;
  };
  static Limits limits_of(const LoweredProgram& program);
  Status check_slot(std::int32_t slot) const;
  Status check_token(const SequenceToken& token);
  Status begin_at(const SequenceToken& token);
  Status refuse_position(const SequenceToken& token) const;

  Limits prefill_, decode_;
  bool has_states_ = false;
  std::int32_t capacity_ = 0, vocab_ = 0, n_adapters_ = 0;
  std::vector<std::int32_t> lengths_, next_;            // indexed by slot
  std::vector<std::int32_t> adapters_, next_adapters_;  // indexed by slot
  std::vector<std::int32_t> first_;   // the position of each slot's first token in this call; -1: it has none
  std::vector<std::int32_t> states_;  // how many tokens have made each slot's states; -1: they are lost
  std::vector<Restore> restores_;
  SnapshotRing snapshots_{0, 0};
};

}  // namespace strata::detail
