#pragma once

#include <string>

#include <strata/engine/forecast.h>

namespace strata::cli {

/// A table of the step that is expected on a machine: its lanes, and in one sentence what holds it up.
std::string forecast_text(const Forecast& forecast, const MachineProfile& machine, double tokens);
/// {"machine": ..., "step_s": ..., "tokens_per_s": ..., "lanes": {...}, "exposed_wait_s": {...}}
std::string forecast_json(const Forecast& forecast, const MachineProfile& machine, double tokens);

}  // namespace strata::cli
