#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "loop/hooks/step_hook.h"
#include "loop/hooks/subspace_renewal.h"
#include "loop/run_loop.h"

namespace strata::detail {

/// The checkpoints of a run: every checkpoint.every steps, every checkpoint.interval, and what the trainer
/// asks for.
class Saves final : public StepHook {
 public:
  Saves(RunLoop& loop, SubspaceRenewal& subspaces);
  /// The states of the present step are those that the run began with.
  void begin();
  /// Whether checkpoint.interval ends before `steps` more steps have, each of which takes as long as the last
  /// one.
  bool interval_ends(int steps) const noexcept;
  /// A full disk costs one save, not the run: the next save is tried when it is due.
  Status after_step(MetricsLine& line) override;
  /// Saves the states if they changed since the last save. Errors: those of save_checkpoint().
  Status save_changes();
  /// As save_changes(), if there is no checkpoint of this process yet, too. Returns the newest checkpoint.
  Result<std::string> checkpoint();
  /// Returns the error that ended training, with what happened to the states. Saving fails if they are
  /// inconsistent, since the engine then refuses to read them.
  Status after_error(const Status& why);

 private:
  bool is_due(std::int64_t step) const noexcept;
  Status save();
  Status save_in(const std::string& run);
  std::string newest(const char* prefix, const char* none) const;

  RunLoop& loop_;
  SubspaceRenewal& subspaces_;
  const std::map<std::string, std::string> identity_;  // computed once because it digests all data
  std::int64_t saved_step_ = -1;
  std::int64_t saved_ns_ = 0;  // start of the last save, successful or not
  std::string path_;           // the newest checkpoint of this process; empty: none
};

}  // namespace strata::detail
