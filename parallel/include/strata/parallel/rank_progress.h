#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace strata {

/// Where a rank is in its work.
struct RankPosition {
  enum class Activity : std::uint8_t {
    outside,   ///< not in a training step
    step,      ///< in a training step
    user_code  ///< in code of the caller, such as a batch source that a training step has called
  };
  std::uint64_t changes = 0;  ///< grows whenever anything below changes
  std::int64_t step = 0;      ///< counted from 1; 0: outside of a step
  std::int32_t micro_batch = 0, instruction = 0, n_instructions = 0;
  Activity activity = Activity::outside;
  char name[39] = {};  ///< the name of the instruction, or of what else the rank does
};

/// "in step 12, micro-batch 3, instruction 45 of 112 (linear)", for messages.
std::string to_string(const RankPosition& position);

/// Where this rank is in its work: written by the one thread that drives it, read by the watch of its world,
/// so that the others can say of a lost rank what it did last. Costs a few stores an instruction.
class RankProgress {
 public:
  RankProgress() noexcept = default;
  /// The rank is outside of a step and does `what`, a string that is never freed.
  void outside(const char* what) noexcept;
  void begin_step(std::int64_t step) noexcept;
  /// Micro-batches are counted from 1.
  void begin_micro_batch(std::int32_t micro_batch, std::int32_t n_instructions) noexcept;
  /// The rank comes to an instruction, counted from 1; `name` is never freed.
  void at(std::int32_t instruction, const char* name) noexcept;
  RankPosition position() const noexcept;

  /// While it lives, the rank is in code of the caller.
  class UserCode {
   public:
    /// `progress` may be null; `what` is never freed.
    UserCode(RankProgress* progress, const char* what) noexcept;
    ~UserCode();
    UserCode(const UserCode&) = delete;
    UserCode& operator=(const UserCode&) = delete;

   private:
    RankProgress* const progress_;
    RankPosition::Activity before_ = RankPosition::Activity::outside;
    const char* name_before_ = "";
  };

 private:
  void set(RankPosition::Activity activity, const char* name) noexcept;

  // Each field is read by itself: a position may mix two that follow each other.
  std::atomic<std::uint64_t> changes_{0};
  std::atomic<std::int64_t> step_{0};
  std::atomic<std::int32_t> micro_batch_{0}, instruction_{0}, n_instructions_{0};
  std::atomic<RankPosition::Activity> activity_{RankPosition::Activity::outside};
  std::atomic<const char*> name_{"starting"};
};

}  // namespace strata
