#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include <strata/model/adapter/adapter.h>
#include <strata/model/decoder.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>
#include <strata/session/state_piece.h>

namespace strata {

/// A reward model as another run uses it: a Hugging Face folder for sequence classification, or a run of
/// train.objective=reward.
struct RewardModel {
  std::string path;
  bool is_run = false;
  std::string checkpoints = {};  ///< of a run
  DecoderConfig decoder;
  /// Of a run with an adapter: it is over the base of the other run, with which it shares that.
  std::optional<AdapterSettings> adapter;
};

/// Before the names of a reward model's parameters, but for those that it shares.
inline constexpr std::string_view kRewardPrefix = "reward.";

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
