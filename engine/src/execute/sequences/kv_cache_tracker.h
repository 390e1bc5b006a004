#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/engine/batch_source.h>
#include <strata/engine/run_plan.h>

namespace strata::detail {

/// Tracks which tokens of each sequence are in the KV cache that prefill and decode share, and checks the
/// tokens to be added, since the kernels cannot. Allocates nothing after construction.
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
  /// Records that the tokens checked last are in the cache.
  void advance() noexcept {
    lengths_.swap(next_);
    adapters_.swap(next_adapters_);
  }

  /// Whether layers have a state of all tokens of a sequence, which then cannot go on from fewer of them.
  bool has_states() const noexcept { return has_states_; }
  /// Forgets all sequences, since the cache's memory is used otherwise.
  void forget() noexcept;

  /// Returns as many tokens as a run of `program` accepts, one slot after the other.
  std::vector<SequenceToken> fill(const LoweredProgram& program) const;

 private:
  struct Limits {
    std::size_t rows = 0, logit_rows = 0;
  };
  static Limits limits_of(const LoweredProgram& program);
  Status check_token(const SequenceToken& token);

  Limits prefill_, decode_;
  bool has_states_ = false;
  std::int32_t capacity_ = 0, vocab_ = 0, n_adapters_ = 0;
  std::vector<std::int32_t> lengths_, next_;            // indexed by slot
  std::vector<std::int32_t> adapters_, next_adapters_;  // indexed by slot
  std::vector<std::uint8_t> begun_;                     // whether each slot has a token in this call
};

}  // namespace strata::detail
