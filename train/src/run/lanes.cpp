#include "run/lanes.h"

#include <fmt/format.h>

#include <strata/runtime/units.h>

namespace strata {
namespace {

double gb_per_s(std::uint64_t bytes, double busy_s) {
  return busy_s > 0 ? static_cast<double>(bytes) / busy_s * 1e-9 : 0;
}

// False for a lane that did work whose time was not measured, for example if GPU event timing is unavailable.
bool is_timed(const LaneFields& lane, const MovedBytes& moved, const LaneBusySeconds& busy) {
  const bool worked =
      lane.bytes != nullptr ? moved.*lane.bytes > 0 : lane.seconds == &LaneBusySeconds::compute;
  return busy.*lane.seconds > 0 || !worked;
}

}  // namespace

std::string lanes_json(const MovedBytes& moved, const LaneBusySeconds& busy) {
  std::string text;
  for (const LaneFields& lane : kLaneFields) {
    const bool timed = is_timed(lane, moved, busy);
    text += fmt::format("{}\"{}\": {{\"busy_s\": {}", text.empty() ? "" : ", ", lane.name,
                        timed ? fmt::format("{:.6f}", busy.*lane.seconds) : "null");
    if (lane.bytes != nullptr)
      text += fmt::format(
          ", \"bytes\": {}, \"gb_per_s\": {}", moved.*lane.bytes,
          timed ? fmt::format("{:.3f}", gb_per_s(moved.*lane.bytes, busy.*lane.seconds)) : "null");
    text += "}";
  }
  return "{" + text + "}";
}

std::string lanes_text(const MovedBytes& moved, const LaneBusySeconds& busy) {
  std::string text = fmt::format("\n  {:<11} {:>12} {:>10} {:>10}\n", "lane", "bytes", "busy", "rate");
  for (const LaneFields& lane : kLaneFields) {
    const std::uint64_t bytes = lane.bytes != nullptr ? moved.*lane.bytes : 0;
    if (lane.seconds == &LaneBusySeconds::collective && bytes == 0) continue;  // there is one rank
    text += fmt::format("  {:<11} {:>12}", lane.name, lane.bytes != nullptr ? format_bytes(bytes) : "");
    const bool timed = is_timed(lane, moved, busy);
    text += timed ? fmt::format(" {:>8.2f} s", busy.*lane.seconds) : fmt::format(" {:>10}", "not timed");
    if (lane.bytes != nullptr && timed)
      text += fmt::format(" {:>6.2f} GB/s", gb_per_s(bytes, busy.*lane.seconds));
    text += "\n";
  }
  return text;
}

}  // namespace strata
