#include "training/lanes.h"

#include <array>

#include <fmt/format.h>

#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

struct Lane {
  const char* name;
  std::uint64_t bytes;
  double busy_s;
  double gb_per_s() const { return busy_s > 0 ? static_cast<double>(bytes) / busy_s * 1e-9 : 0; }
};
std::array<Lane, 4> carrying_lanes(const MovedBytes& moved, const LaneSeconds& busy) {
  return {{{"h2d", moved.h2d, busy.h2d},
           {"d2h", moved.d2h, busy.d2h},
           {"nvme_read", moved.nvme_read, busy.nvme_read},
           {"nvme_write", moved.nvme_write, busy.nvme_write}}};
}

}  // namespace

std::string lanes_json(const Engine& engine) {
  const LaneSeconds busy = engine.lane_seconds();
  std::string text = "{";
  for (const Lane& lane : carrying_lanes(engine.moved(), busy))
    text += fmt::format("\"{}\": {{\"bytes\": {}, \"busy_s\": {:.6f}, \"gb_per_s\": {:.3f}}}, ", lane.name,
                        lane.bytes, lane.busy_s, lane.gb_per_s());
  return text + fmt::format("\"compute\": {{\"busy_s\": {:.6f}}}, \"cpu\": {{\"busy_s\": {:.6f}}}}}",
                            busy.compute, busy.cpu);
}

std::string lanes_text(const Engine& engine) {
  const LaneSeconds busy = engine.lane_seconds();
  std::string text = fmt::format("\n  {:<11} {:>12} {:>10} {:>10}\n", "lane", "carried", "worked", "at");
  for (const Lane& lane : carrying_lanes(engine.moved(), busy))
    text += fmt::format("  {:<11} {:>12} {:>8.2f} s {:>6.2f} GB/s\n", lane.name, format_bytes(lane.bytes),
                        lane.busy_s, lane.gb_per_s());
  text += fmt::format("  {:<11} {:>12} {:>8.2f} s\n", "compute", "", busy.compute);
  return text + fmt::format("  {:<11} {:>12} {:>8.2f} s\n", "cpu", "", busy.cpu);
}

}  // namespace strata::cli
