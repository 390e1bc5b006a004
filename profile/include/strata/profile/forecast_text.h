#pragma once

#include <optional>
#include <string>

#include <strata/engine/forecast.h>

namespace strata {

/// A table of the forecast step on `machine`: its lanes, the one that binds, and the largest wait.
/// `tokens`: tokens per step. `clipped_step_s`: the step time if the gradient of every step is clipped, if it
/// differs.
std::string forecast_text(const Forecast& forecast, const MachineProfile& machine, double tokens,
                          std::optional<double> clipped_step_s);
/// One line per kind of kernel in `program` for which the profile has no rate, with the kernel whose rate is
/// used instead. Usually empty.
std::string unmodeled_text(const LoweredProgram& program, const MachineProfile& machine);
/// The rates by which collectives were priced, or that they are taken as free; empty for one rank.
std::string network_text(const SessionOptions& options, const MachineProfile& machine);
/// {"machine": ..., "step_s": ..., "clipped_step_s": ..., "tokens_per_s": ..., "lanes": {...},
/// "exposed_wait_s": {...}}
std::string forecast_json(const Forecast& forecast, const MachineProfile& machine, double tokens,
                          std::optional<double> clipped_step_s);

}  // namespace strata
