#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/forecast.h>

namespace strata {

/// Ways to run the same step: the same bits, other times.
struct PlanChoices {
  /// Of one model, as without and with recomputation. The first `compared` are judged by time; of the others
  /// the first that fits is taken, where none of those does.
  std::span<const ProgramSet> programs;
  std::size_t compared = 1;
  /// Changes of the options that may be tried, one after the other, in groups of which one is kept at most.
  struct Change {
    std::string what;  ///< "offload.step_mode=speculative"
    /// To options whose plan is the best so far.
    std::function<void(EngineOptions&, const RunPlan&)> apply;
    /// Whether what it gains hangs on the programs: with each of these it is tried first, and with others of
    /// its kind together.
    bool with_programs = false;
  };
  std::vector<std::vector<Change>> changes;
  bool explains = true;  ///< a refusal has its table, which takes many plans
};

/// What is left open to the search beside the programs.
struct OpenChoices {
  bool step_mode = true, chunk = true, gradients = true, prefetch = true;
  bool device_first = true;  ///< as many whole chunks on the device as fit, also where others would move less
};
inline constexpr std::string_view kUndoLog = "offload.undo";  ///< step mode auto, with a log
inline constexpr std::string_view kOtherChunk = "offload.chunk";
inline constexpr std::string_view kOtherPrefetch = "offload.prefetch";
inline constexpr std::string_view kDeviceFirst = "offload.policy=device";
/// Changes to try: `what` is one of these, or says itself.
std::vector<std::vector<PlanChoices::Change>> changes_of(const OpenChoices& open);

struct FoundPlan {
  std::size_t programs = 0;
  std::unique_ptr<const RunPlan> plan;
  Forecast forecast;
  std::vector<std::string> kept;  ///< of the changes, what they are
  /// What was tried and how long its step takes, in order; 0: it does not fit.
  struct Tried {
    std::string what;
    double step_s = 0;
  };
  std::vector<Tried> tried;
};

/// The plan whose step takes least by the forecast: the programs first, with every selection of the changes
/// that hang on them, then each group of changes on what is best so far, kept where it gains one percent or
/// more; all once more where that helped. Deterministic. Errors: `does_not_fit` as Engine::plan;
/// `unsupported` for programs that do not train.
Result<FoundPlan> search_plan(const PlanChoices& choices, const EngineOptions& options,
                              const MachineProfile& machine);

}  // namespace strata
