#pragma once

#include <memory>
#include <span>

#include <strata/config/reward_model.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>
#include <strata/session/state_piece.h>

namespace strata {

/// The values of a reward model's parameters.
class RewardModelValues {
 public:
  /// Errors: those of opening the folder, or the newest checkpoint of the run.
  static Result<std::unique_ptr<RewardModelValues>> open(Io& io, const RewardModel& model);
  virtual ~RewardModelValues() = default;
  /// Reads the values of a piece whose name has the prefix, and returns true; false if it has none.
  Result<bool> read(const StatePiece& piece, std::span<float> values) const;

 private:
  virtual Result<bool> read_own(const StatePiece& piece, std::span<float> values) const = 0;
};

}  // namespace strata
