#pragma once

#include <span>

#include <strata/engine/forecast.h>

namespace strata {

/// Options that the search may change: those that only say how a step is run.
struct SearchSpace {
  bool step_mode = true;  ///< auto, with a log
  bool chunk = true, gradients = true, prefetch = true;
  bool device_first = true;  ///< as many whole chunks on the device as fit, also where others would move less
};

/// Ways to run the same step: the same bits, other times.
struct PlanSearchRequest {
  /// Of one model, as without and with recomputation. The first `compared` are judged by time; of the others
  /// the first that fits is taken, where none of those does.
  std::span<const ProgramSet> programs;
  std::size_t compared = 1;
  SearchSpace open;
  bool explains = true;  ///< a refusal has its table, which takes many plans
};

struct FoundPlan {
  std::size_t programs = 0;
  std::unique_ptr<const RunPlan> plan;
  EngineOptions options;  ///< those asked for, and what was changed of what is open
  Forecast forecast;
  std::size_t candidates = 0;  ///< that fitted and were compared
};

/// The plan whose step takes least by the forecast: the programs first, with every selection of the changes
/// that hang on them, then each change of what is open on what is best so far, kept where it gains one
/// percent or more; all once more where that helped. Deterministic. Errors: `does_not_fit` as Engine::plan;
/// `unsupported` as forecast().
Result<FoundPlan> search_plan(const PlanSearchRequest& choices, const EngineOptions& options,
                              const MachineProfile& machine);

}  // namespace strata
