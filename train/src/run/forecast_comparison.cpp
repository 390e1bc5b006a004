#include <strata/train/forecast_comparison.h>

#include <cmath>

#include <fmt/format.h>

namespace strata {
namespace {

double error_of(double expected, double measured) { return measured > 0 ? expected / measured - 1 : 0; }

bool has_both(const ForecastComparison& expected, const TrainOutcome& outcome) {
  return expected.forecast && outcome.warm_steps > 0 && outcome.warm_seconds > 0;
}

}  // namespace

ForecastComparison compare_forecast(const RunPlan& plan, const std::optional<Forecast>& forecast,
                                    const CachedProfile& machine, const TrainOutcome& outcome) {
  ForecastComparison expected{.warning = machine.warning};
  expected.forecast = forecast;
  if (!has_both(expected, outcome) || outcome.warm_clipped == 0 || !plan.undo.covers_any() ||
      outcome.stop_reason != StopReason::finished)
    return expected;
  const double clipped = static_cast<double>(outcome.warm_clipped) / static_cast<double>(outcome.warm_steps);
  auto with_clipped = strata::forecast(plan, *machine.profile, {.clipped = clipped});
  if (with_clipped.has_value()) expected.forecast = *with_clipped;
  return expected;
}

std::string forecast_comparison_text(const ForecastComparison& expected, const TrainOutcome& outcome) {
  if (!has_both(expected, outcome)) return "";
  // Steps of a few milliseconds, or only a few steps, are no basis for the remark below.
  constexpr double kFar = 0.25, kTellingStep = 20e-3;
  constexpr std::int64_t kTellingSteps = 10;
  const double measured = outcome.warm_seconds / static_cast<double>(outcome.warm_steps);
  const double error = error_of(expected.forecast->step_s, measured);
  std::string text = fmt::format("\n  {:<11} {:>12} {:>12}\n", "per step", "forecast", "measured");
  const LaneBusySeconds worked = outcome.warm_lanes / static_cast<double>(outcome.warm_steps);
  for (const LaneFields& lane : kLaneFields)
    if (const double forecast_s = expected.forecast->lanes.*lane.seconds, measured_s = worked.*lane.seconds;
        forecast_s > 0 || measured_s > 0)
      text += fmt::format("  {:<11} {:>10.2f} ms {:>13}\n", lane.name, 1e3 * forecast_s,
                          measured_s > 0 ? fmt::format("{:.2f} ms", 1e3 * measured_s) : "-");
  text += fmt::format("  {:<11} {:>10.2f} ms {:>10.2f} ms   {:+.1f} %\n", "step",
                      1e3 * expected.forecast->step_s, 1e3 * measured, 100 * error);
  if (!expected.warning.empty()) text += expected.warning + "\n";
  if (expected.warning.empty() && std::abs(error) > kFar && outcome.warm_steps >= kTellingSteps &&
      measured >= kTellingStep)
    text +=
        "the forecast was far off: other programs ran, this machine's profile is outdated (strata bench), or "
        "tensors are so small that overheads dominate\n";
  return text;
}

std::string forecast_comparison_json(const ForecastComparison& expected, const TrainOutcome& outcome) {
  if (!has_both(expected, outcome)) return "null";
  const double measured = outcome.warm_seconds / static_cast<double>(outcome.warm_steps);
  std::string lanes;
  const LaneBusySeconds worked = outcome.warm_lanes / static_cast<double>(outcome.warm_steps);
  for (const LaneFields& lane : kLaneFields)
    lanes += fmt::format("{}\"{}\": {{\"expected_s\": {:.6g}, \"measured_s\": {}}}",
                         lanes.empty() ? "" : ", ", lane.name, expected.forecast->lanes.*lane.seconds,
                         worked.*lane.seconds > 0 ? fmt::format("{:.6g}", worked.*lane.seconds) : "null");
  return fmt::format(
      "{{\"step_s\": {:.6g}, \"measured_step_s\": {:.6g}, \"error\": {:.4f}, \"lanes\": {{{}}}}}",
      expected.forecast->step_s, measured, error_of(expected.forecast->step_s, measured), lanes);
}

}  // namespace strata
