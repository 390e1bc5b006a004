#include <strata/profile/stages_text.h>

#include <fmt/format.h>

#include <strata/runtime/units.h>
#include <strata/session/ranks/rank_traffic.h>

namespace strata {
namespace {

std::uint64_t sent_bytes(const RunPlan& plan) {
  return rank_traffic(plan, plan.of(ProgramRole::train).uses).all();
}
double computes_s(const Forecast& forecast) {
  return static_cast<double>(forecast.times.computing_ns) * 1e-9;
}
double waits_s(const Forecast& forecast) {
  return static_cast<double>(forecast.times.of(StallCause::collective)) * 1e-9;
}

}  // namespace

std::string stages_text(std::span<const RunPlan* const> stages, std::span<const Forecast> forecasts) {
  std::string text = fmt::format("stages\n  {:<6} {:>10} {:>10} {:>10} {:>10}", "stage", "device", "pinned",
                                 "nvme", "sends");
  text += forecasts.empty() ? "\n" : fmt::format(" {:>10} {:>16}\n", "computes", "waits for ranks");
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const TierBytes& peak = stages[i]->planned_peak;
    text += fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>10}", i, format_bytes(peak[0]),
                        format_bytes(peak[1]), format_bytes(peak[2]), format_bytes(sent_bytes(*stages[i])));
    text += forecasts.empty() ? "\n"
                              : fmt::format(" {:>8.1f} % {:>14.1f} %\n",
                                            100 * computes_s(forecasts[i]) / forecasts[i].step_s,
                                            100 * waits_s(forecasts[i]) / forecasts[i].step_s);
  }
  return text;
}

std::string stages_json(std::span<const RunPlan* const> stages, std::span<const Forecast> forecasts) {
  std::string text;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const TierBytes& peak = stages[i]->planned_peak;
    text += fmt::format(
        "{}{{\"planned_bytes\": {{\"device\": {}, \"pinned\": {}, \"nvme\": {}}}, \"sent_bytes_per_step\": "
        "{}",
        text.empty() ? "" : ", ", peak[0], peak[1], peak[2], sent_bytes(*stages[i]));
    if (!forecasts.empty())
      text += fmt::format(", \"step_s\": {:.9g}, \"compute_s\": {:.9g}, \"waits_for_ranks_s\": {:.9g}",
                          forecasts[i].step_s, computes_s(forecasts[i]), waits_s(forecasts[i]));
    text += "}";
  }
  return "[" + text + "]";
}

}  // namespace strata
