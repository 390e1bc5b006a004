#include <strata/session/pass_schedule.h>

#include <algorithm>

#include "plan/last_uses.h"

namespace strata {
namespace {

void add_pass(const UseTrace& pass, const Placement& placement, std::int32_t first, bool adds_to_sum,
              PassSchedule& out) {
  for (std::size_t i = 0; i < pass.positions.size(); ++i) {
    const auto at = first + static_cast<std::int32_t>(i);
    for (const ChunkId chunk : pass.positions[i].params) {
      const PayloadKey key{chunk, Payload::param};
      out.uses.push_back({at, key, Tier::device});
      if (placement.home(key) == Tier::nvme) out.uses.push_back({at, key, Tier::pinned});
      if (out.params.empty() || out.params.back().second != chunk) out.params.emplace_back(at, chunk);
    }
    for (const GradWrite& write : pass.positions[i].grads) {
      out.uses.push_back({at, {write.chunk, Payload::grad}, Tier::device});
      if (write.last && adds_to_sum) out.uses.push_back({at, {write.chunk, Payload::accum}, Tier::pinned});
    }
  }
}

// A chunk is committed at the parameter access that is `depth`, the prefetch distance, before its own first
// access. Chunks that no forward reads come last.
std::vector<ChunkPosition> commits_before_use(const PassSchedule& schedule, const ChunkLayout& layout,
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

CommitTiming commit_timing(const StatePlan& plan) noexcept {
  if (!plan.trains()) return CommitTiming::never;
  return plan.options.step_mode == StepMode::serial ? CommitTiming::at_end : CommitTiming::before_use;
}

PassSchedule make_schedule(const UseTrace& uses, const StatePlan& plan, std::int32_t passes,
                           CommitTiming when) {
  PassSchedule out;
  out.length = static_cast<std::int32_t>(uses.positions.size());
  for (std::int32_t k = 0; k < passes; ++k) add_pass(uses, plan.placement, k * out.length, k > 0, out);
  out.cycle = passes * out.length;
  if (when == CommitTiming::never) return out;
  out.ready = detail::last_uses(uses, plan.layout);
  out.commits = commits_before_use(out, plan.layout, *plan.options.prefetch);
  if (when == CommitTiming::at_end)
    for (auto& [position, chunk] : out.commits) position = out.cycle++;
  const auto updated = [&](std::int32_t position, ChunkId chunk) {
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      out.uses.push_back({position, {chunk, payload}, Tier::pinned});
  };
  for (const auto& [position, chunk] : out.commits) updated(position, chunk);
  for (const auto& [position, chunk] : out.ready)
    if (plan.undo.covers(chunk)) updated((passes - 1) * out.length + position, chunk);
  std::stable_sort(out.uses.begin(), out.uses.end(),
                   [](const Use& a, const Use& b) { return a.position < b.position; });
  return out;
}

}  // namespace strata
