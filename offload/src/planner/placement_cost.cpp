#include "planner/placement_cost.h"

#include "planner/placement_windows.h"

namespace strata::detail {

double step_cost(const ChunkLayout& layout, const AccessTrace& trace, const Placement& p) {
  constexpr double kLink = 20e9, kDisk = 2e9, kRam = 60e9,
                   kUsesInPass = 3;  // forward, recomputation, backward
  const double passes = trace.micro_batches;
  Counts cached = cached_params(layout, trace, p);
  double cost = 0;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
    if (p.home({chunk, Payload::param}) == Tier::device) continue;
    const auto bytes = [&](Payload payload) {
      return static_cast<double>(layout.payload_bytes(chunk, payload));
    };
    const auto disk = [&](Payload payload) {
      return p.home({chunk, payload}) == Tier::nvme ? bytes(payload) / kDisk : 0.0;
    };
    const Payload read = read_payload(layout, trace, chunk);
    double uploads = kUsesInPass * passes;
    if (layout.has(chunk, read))
      if (std::uint32_t& left = cached[p.window_class(p.class_of(layout, {chunk, read}), Tier::device)];
          left > 0) {
        uploads = 1;
        --left;
      }
    const bool updated = layout.group_of(chunk).trainable;
    cost += disk(read) * (uploads + (updated ? 2 : 0)) + uploads * bytes(read) / kLink;
    if (read != Payload::param)
      cost += disk(Payload::param) * 3 + (bytes(Payload::param) + bytes(read)) / kLink;
    if (!updated) continue;
    cost += disk(Payload::accum) * 2 * passes;
    cost += (p.home({chunk, Payload::accum}) == Tier::device ? 1 : passes) * bytes(Payload::accum) / kLink;
    cost += 2 * (disk(Payload::master) + disk(Payload::m) + disk(Payload::v) + disk(Payload::ema));
    if (!trace.training) continue;
    for (const Payload payload : kPersistentPayloads) cost += 2 * bytes(payload) / kRam;
  }
  return cost;
}

}  // namespace strata::detail
