#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/engine/engine.h>

namespace strata {

/// What is in the cache that prefill and decode share, by sequence; checks what joins it, since the kernels
/// cannot. Nothing here allocates after construction.
class KvCacheTracker {
 public:
  /// Of a plan without these programs there are none.
  explicit KvCacheTracker(const RunPlan& plan);

  /// Errors: `invalid`, as Engine::extend says.
  Status check(std::span<const SequenceToken> tokens, std::span<const std::int32_t> wanted);
  bool fits_decode(std::span<const SequenceToken> tokens,
                   std::span<const std::int32_t> wanted) const noexcept;
  /// The inputs of `program` as upload() takes them, with rows of no token where there are fewer.
  static void write(const LoweredProgram& program, std::span<const SequenceToken> tokens,
                    std::span<const std::int32_t> wanted, std::int32_t* into);
  static std::size_t input_bytes(const LoweredProgram& program) noexcept;
  /// What was checked last is in the cache.
  void advance() noexcept { lengths_.swap(next_); }

  /// As many tokens as a run of `program` takes, for one slot after the other.
  std::vector<SequenceToken> fill(const LoweredProgram& program) const;

 private:
  struct Limits {
    std::size_t rows = 0, logit_rows = 0;
  };
  static Limits limits_of(const LoweredProgram& program);
  Status check_token(const SequenceToken& token);

  Limits prefill_, decode_;
  std::int32_t capacity_ = 0, vocab_ = 0;
  std::vector<std::int32_t> lengths_, next_;  // by slot
  std::vector<std::uint8_t> begun_;           // by slot: has a token in this call
};

}  // namespace strata
