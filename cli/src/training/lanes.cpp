#include "training/lanes.h"

#include <fmt/format.h>

#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

double gb_per_s(std::uint64_t bytes, double busy_s) {
  return busy_s > 0 ? static_cast<double>(bytes) / busy_s * 1e-9 : 0;
}

}  // namespace

std::string lanes_json(const MovedBytes& moved, const LaneSeconds& busy) {
  std::string text;
  for (const LaneMembers& lane : kLanes) {
    text += fmt::format("{}\"{}\": {{\"busy_s\": {:.6f}", text.empty() ? "" : ", ", lane.name,
                        busy.*lane.seconds);
    if (lane.bytes != nullptr)
      text += fmt::format(", \"bytes\": {}, \"gb_per_s\": {:.3f}", moved.*lane.bytes,
                          gb_per_s(moved.*lane.bytes, busy.*lane.seconds));
    text += "}";
  }
  return "{" + text + "}";
}

std::string lanes_text(const MovedBytes& moved, const LaneSeconds& busy) {
  std::string text = fmt::format("\n  {:<11} {:>12} {:>10} {:>10}\n", "lane", "carried", "worked", "at");
  for (const LaneMembers& lane : kLanes) {
    const std::uint64_t bytes = lane.bytes != nullptr ? moved.*lane.bytes : 0;
    text += fmt::format("  {:<11} {:>12} {:>8.2f} s", lane.name,
                        lane.bytes != nullptr ? format_bytes(bytes) : "", busy.*lane.seconds);
    if (lane.bytes != nullptr) text += fmt::format(" {:>6.2f} GB/s", gb_per_s(bytes, busy.*lane.seconds));
    text += "\n";
  }
  return text;
}

}  // namespace strata::cli
