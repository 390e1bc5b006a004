#include "schedule.h"

namespace strata {
namespace {

void add_micro_batch(const LoweredProgram& program, const Placement& placement, std::int32_t first,
                     bool accumulates, PassSchedule& out) {
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const auto at = first + static_cast<std::int32_t>(i);
    for (const ChunkId chunk : program.code[i].params) {
      const CopyKey key{chunk, Payload::param};
      out.uses.push_back({at, key, Tier::device});
      if (placement.home(key) == Tier::nvme) out.uses.push_back({at, key, Tier::pinned});
      if (out.params.empty() || out.params.back().second != chunk) out.params.emplace_back(at, chunk);
    }
    for (const GradTouch& touch : program.code[i].grads) {
      out.uses.push_back({at, {touch.chunk, Payload::grad}, Tier::device});
      if (touch.last && accumulates) out.uses.push_back({at, {touch.chunk, Payload::accum}, Tier::pinned});
    }
  }
}

}  // namespace

PassSchedule schedule_of(const LoweredProgram& program, const ChunkLayout& layout, const Placement& placement,
                         std::int32_t micro_batches, bool with_commit) {
  PassSchedule out;
  const auto length = static_cast<std::int32_t>(program.code.size());
  for (std::int32_t k = 0; k < micro_batches; ++k)
    add_micro_batch(program, placement, k * length, k > 0, out);
  out.cycle = micro_batches * length;
  if (!with_commit) return out;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      out.uses.push_back({out.cycle + static_cast<std::int32_t>(chunk), {chunk, payload}, Tier::pinned});
  out.cycle += static_cast<std::int32_t>(layout.n_chunks());
  return out;
}

}  // namespace strata
