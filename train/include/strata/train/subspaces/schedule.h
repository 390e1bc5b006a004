#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>

namespace strata {

struct TrainConfig;

/// When the subspaces of a run change (subspaces.h): before the steps 1, 1 + gap, 1 + 2 gap ..., by the
/// gradient of that step (GaLore; Zhao et al. 2024, arXiv 2403.03507, algorithm 2). Moments stay as they are.
/// The bits of a step do not depend on where a run was saved and resumed, nor on how often a step was tried:
/// bases that were renewed for a step which then failed are those of its next try.
class SubspaceSchedule {
 public:
  struct Renewal {
    /// The share of the gradients' squares that the new bases capture, as the mean of all modules; 0: they
    /// were not due.
    double energy = 0;
    std::string note;  ///< for people, if bases stayed as they were; else empty
  };
  /// The schedule of a planned run, whose configuration is known to have valid subspaces; in a run without
  /// any, it does nothing.
  explicit SubspaceSchedule(const TrainConfig& config);

  /// Whether the step that follows `steps` done ones begins with new bases.
  bool is_due(std::int64_t steps) const noexcept {
    return !groups_.empty() && steps % gap_ == 0 && renewed_ != steps;
  }
  /// Renews the bases, if they are due, from the micro-batches of the engine's next step. Errors: those of
  /// Engine::renew_bases().
  Result<Renewal> before_step(Engine& engine, BatchSource& source);

  /// The entries of a checkpoint after `steps` steps about the run: that bases were already renewed for the
  /// next one, or nothing.
  std::map<std::string, std::string> state(std::int64_t steps) const;
  /// Continues from a checkpoint after `steps` steps that says this.
  void resume(std::int64_t steps, const std::map<std::string, std::string>& run);

 private:
  std::vector<LoraGroup> groups_;
  std::int64_t gap_ = 1;
  std::int64_t renewed_ = -1;  // steps done when the bases were last renewed
};

}  // namespace strata
