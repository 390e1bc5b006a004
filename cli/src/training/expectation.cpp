#include "training/expectation.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace strata::cli {
namespace {

struct Compared {
  const char* name;
  double expected_s, measured_s;
};
std::array<Compared, 6> lanes_of(const Forecast& f, const TrainOutcome& o) {
  const auto steps = static_cast<double>(o.warm_steps);
  return {{{"compute", f.lanes.compute, o.warm_lanes.compute / steps},
           {"h2d", f.lanes.h2d, o.warm_lanes.h2d / steps},
           {"d2h", f.lanes.d2h, o.warm_lanes.d2h / steps},
           {"cpu", f.lanes.cpu, o.warm_lanes.cpu / steps},
           {"nvme_read", f.lanes.nvme_read, o.warm_lanes.nvme_read / steps},
           {"nvme_write", f.lanes.nvme_write, o.warm_lanes.nvme_write / steps}}};
}

double error_of(double expected, double measured) { return measured > 0 ? expected / measured - 1 : 0; }

bool has_both(const Expectation& expected, const TrainOutcome& outcome) {
  return expected.forecast && outcome.warm_steps > 0 && outcome.warm_seconds > 0;
}

}  // namespace

std::string expectation_text(const Expectation& expected, const TrainOutcome& outcome) {
  if (!has_both(expected, outcome)) return "";
  constexpr double kFar = 0.25;  // beyond which a profile is more likely wrong than a run unusual
  const double measured = outcome.warm_seconds / static_cast<double>(outcome.warm_steps);
  const double error = error_of(expected.forecast->step_s, measured);
  std::string text = fmt::format("\n  {:<11} {:>12} {:>12}\n", "a step", "expected", "measured");
  for (const Compared& lane : lanes_of(*expected.forecast, outcome))
    if (lane.expected_s > 0 || lane.measured_s > 0)
      text += fmt::format("  {:<11} {:>10.2f} ms {:>10.2f} ms\n", lane.name, 1e3 * lane.expected_s,
                          1e3 * lane.measured_s);
  text += fmt::format("  {:<11} {:>10.2f} ms {:>10.2f} ms   {:+.1f} %\n", "step",
                      1e3 * expected.forecast->step_s, 1e3 * measured, 100 * error);
  if (!expected.warning.empty()) text += expected.warning + "\n";
  if (expected.warning.empty() && std::abs(error) > kFar)
    text += "steps were far from what this machine's profile says: strata bench measures it anew\n";
  return text;
}

std::string expectation_json(const Expectation& expected, const TrainOutcome& outcome) {
  if (!has_both(expected, outcome)) return "null";
  const double measured = outcome.warm_seconds / static_cast<double>(outcome.warm_steps);
  std::string lanes;
  for (const Compared& lane : lanes_of(*expected.forecast, outcome))
    lanes += fmt::format("{}\"{}\": {{\"expected_s\": {:.6g}, \"measured_s\": {:.6g}}}",
                         lanes.empty() ? "" : ", ", lane.name, lane.expected_s, lane.measured_s);
  return fmt::format(
      "{{\"step_s\": {:.6g}, \"measured_step_s\": {:.6g}, \"error\": {:.4f}, \"lanes\": {{{}}}}}",
      expected.forecast->step_s, measured, error_of(expected.forecast->step_s, measured), lanes);
}

}  // namespace strata::cli
