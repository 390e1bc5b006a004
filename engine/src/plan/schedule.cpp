#include "plan/schedule.h"

#include <algorithm>

namespace strata {
namespace {

void add_micro_batch(const LoweredProgram& program, const Placement& placement, std::int32_t first,
                     bool accumulates, ProgramSchedule& out) {
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const auto at = first + static_cast<std::int32_t>(i);
    for (const ChunkId chunk : program.code[i].params) {
      const PayloadKey key{chunk, Payload::param};
      out.uses.push_back({at, key, Tier::device});
      if (placement.home(key) == Tier::nvme) out.uses.push_back({at, key, Tier::pinned});
      if (out.params.empty() || out.params.back().second != chunk) out.params.emplace_back(at, chunk);
    }
    for (const GradWrite& touch : program.code[i].grads) {
      out.uses.push_back({at, {touch.chunk, Payload::grad}, Tier::device});
      if (touch.last && accumulates) out.uses.push_back({at, {touch.chunk, Payload::accum}, Tier::pinned});
    }
  }
}

// A chunk is committed at the parameter access that is `depth`, the prefetch distance, before its own first
// access. Chunks that no forward reads come last.
std::vector<ChunkPosition> commits_before_use(const ProgramSchedule& schedule, const ChunkLayout& layout,
                                              std::size_t depth) {
  std::vector<ChunkPosition> commits;
  std::vector<bool> listed(layout.n_chunks());
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    listed[chunk] = !layout.group_of(chunk).trainable;
  const auto list = [&](std::int32_t position, ChunkId chunk) {
    if (!listed[chunk]) commits.emplace_back(position, chunk);
    listed[chunk] = true;
  };
  for (std::size_t i = 0; i < schedule.params.size(); ++i)
    list(i < depth ? 0 : schedule.params[i - depth].first, schedule.params[i].second);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) list(schedule.cycle, chunk);
  return commits;
}

}  // namespace

std::vector<ChunkPosition> last_uses(const LoweredProgram& program, const ChunkLayout& layout) {
  std::vector<ChunkPosition> last;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) last.emplace_back(-1, chunk);
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    for (const ChunkId chunk : program.code[i].params) last[chunk].first = static_cast<std::int32_t>(i);
    for (const GradWrite& touch : program.code[i].grads)
      last[touch.chunk].first = static_cast<std::int32_t>(i);
  }
  std::erase_if(last, [&](const ChunkPosition& at) { return !layout.group_of(at.second).trainable; });
  std::sort(last.begin(), last.end());
  return last;
}

ProgramSchedule make_schedule(const LoweredProgram& program, const RunPlan& plan, std::int32_t micro_batches,
                              CommitTiming when) {
  ProgramSchedule out;
  const auto length = static_cast<std::int32_t>(program.code.size());
  for (std::int32_t k = 0; k < micro_batches; ++k)
    add_micro_batch(program, plan.placement, k * length, k > 0, out);
  out.cycle = micro_batches * length;
  if (when == CommitTiming::never) return out;
  out.ready = last_uses(program, plan.layout);
  out.commits = commits_before_use(out, plan.layout, *plan.options.prefetch);
  if (when == CommitTiming::at_end)
    for (auto& [position, chunk] : out.commits) position = out.cycle++;
  const auto updated = [&](std::int32_t position, ChunkId chunk) {
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      out.uses.push_back({position, {chunk, payload}, Tier::pinned});
  };
  for (const auto& [position, chunk] : out.commits) updated(position, chunk);
  for (const auto& [position, chunk] : out.ready)
    if (plan.undo.covers(chunk)) updated((micro_batches - 1) * length + position, chunk);
  std::stable_sort(out.uses.begin(), out.uses.end(),
                   [](const Use& a, const Use& b) { return a.position < b.position; });
  return out;
}

}  // namespace strata
