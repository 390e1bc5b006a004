#pragma once

#include <optional>
#include <string>

#include <strata/engine/forecast.h>

namespace strata::cli {

/// A table of the step that is expected on a machine: its lanes, and in one sentence what holds it up.
/// `clipped_step_s`: where every step is clipped, if that is another time.
std::string forecast_text(const Forecast& forecast, const MachineProfile& machine, double tokens,
                          std::optional<double> clipped_step_s);
/// Lines of what a program has and the profile knows no rate of, and what it was priced as; mostly none.
std::string unmodeled_text(const LoweredProgram& program, const MachineProfile& machine);
/// {"machine": ..., "step_s": ..., "clipped_step_s": ..., "tokens_per_s": ..., "lanes": {...},
/// "exposed_wait_s": {...}}
std::string forecast_json(const Forecast& forecast, const MachineProfile& machine, double tokens,
                          std::optional<double> clipped_step_s);

}  // namespace strata::cli
