#pragma once

#include <span>
#include <string>

#include <strata/engine/forecast.h>

namespace strata {

/// A table of the stages of a pipeline, in their order: what each of them has in the tiers and sends in a
/// step and, if there are forecasts, how long it computes and waits for other ranks.
std::string stages_text(std::span<const RunPlan* const> stages, std::span<const Forecast> forecasts);
/// The same as a list: [{"planned_bytes": {"device": ...}, "sent_bytes_per_step": ..., "step_s": ...,
/// "compute_s": ..., "waits_for_ranks_s": ...}, ...], the seconds if there are forecasts.
std::string stages_json(std::span<const RunPlan* const> stages, std::span<const Forecast> forecasts);

}  // namespace strata
