#include "machine/forecast_text.h"

#include <array>

#include <fmt/format.h>

#include <strata/runtime/json.h>
#include <strata/runtime/units.h>

#include "training/stalls.h"

namespace strata::cli {
namespace {

struct Lane {
  const char* name;
  double seconds;
  std::uint64_t bytes;
};
std::array<Lane, 6> lanes_of(const Forecast& f) {
  return {{{"compute", f.lanes.compute, 0},
           {"h2d", f.lanes.h2d, f.moved.h2d},
           {"d2h", f.lanes.d2h, f.moved.d2h},
           {"cpu", f.lanes.cpu, 0},
           {"nvme_read", f.lanes.nvme_read, f.moved.nvme_read},
           {"nvme_write", f.lanes.nvme_write, f.moved.nvme_write}}};
}

}  // namespace

std::string forecast_text(const Forecast& f, const MachineProfile& machine, double tokens) {
  std::string text = fmt::format("forecast for {} ({})\n", machine.name, machine.source);
  text += fmt::format("  {:<11} {:>10} {:>8} {:>12}\n", "lane", "works", "of step", "carries");
  for (const Lane& lane : lanes_of(f)) {
    if (lane.seconds <= 0) continue;
    text += fmt::format("  {:<11} {:>8.4g} s {:>6.1f} % {:>12}\n", lane.name, lane.seconds,
                        100 * lane.seconds / f.step_s, lane.bytes > 0 ? format_bytes(lane.bytes) : "");
  }
  text += fmt::format("  {:<11} {:>8.4g} s, {:.4g} tokens/s\n", "step", f.step_s, tokens / f.step_s);
  return text + bottleneck_text(f.times) + "\n";
}

std::string forecast_json(const Forecast& f, const MachineProfile& machine, double tokens) {
  std::string lanes;
  for (const Lane& lane : lanes_of(f))
    lanes += fmt::format("{}\"{}\": {{\"busy_s\": {:.9g}, \"bytes\": {}}}", lanes.empty() ? "" : ", ",
                         lane.name, lane.seconds, lane.bytes);
  return fmt::format(
      "{{\"machine\": {}, \"step_s\": {:.9g}, \"tokens_per_s\": {:.6g}, \"speculated_share\": {:.4f}, {}, "
      "\"lanes\": {{{}}}}}",
      json_string(machine.name), f.step_s, tokens / f.step_s, f.speculated_share, stalls_json(f.times),
      lanes);
}

}  // namespace strata::cli
