#include <strata/session/pass_schedule.h>

#include <algorithm>

#include "plan/last_uses.h"

namespace strata {
namespace {

void add_param(const Placement& placement, std::int32_t at, PayloadKey key, PassSchedule& out) {
  out.uses.push_back({at, key, Tier::device});
  if (placement.home(key) == Tier::nvme) out.uses.push_back({at, key, Tier::pinned});
  const bool is_read = key.payload == Payload::param || placement.home(key).has_value();
  if (is_read && (out.params.empty() || out.params.back().key != key)) out.params.push_back({at, key});
}

void add_pass(const UseTrace& pass, const GatherSchedule& gathers, const StatePlan& plan, std::int32_t first,
              bool adds_to_sum, PassSchedule& out) {
  auto gather = gathers.gathers.begin();
  for (std::size_t i = 0; i < pass.positions.size(); ++i) {
    const auto at = first + static_cast<std::int32_t>(i);
    for (; gather != gathers.gathers.end() && gather->begin == static_cast<std::int32_t>(i); ++gather)
      add_param(plan.placement, at, {gather->chunk, Payload::param}, out);
    for (const ChunkId chunk : pass.positions[i].params)
      add_param(plan.placement, at, {chunk, plan.layout.read_payload(chunk)}, out);
    for (const GradWrite& write : pass.positions[i].grads) {
      out.uses.push_back({at, {write.chunk, Payload::grad}, Tier::device});
      if (write.last && plan.layout.has(write.chunk, Payload::received))
        for (const Tier tier : kMemoryTiers) out.uses.push_back({at, {write.chunk, Payload::received}, tier});
      if (write.last && adds_to_sum) out.uses.push_back({at, {write.chunk, Payload::accum}, Tier::pinned});
    }
  }
}

bool is_trained_by(const ChunkLayout& layout, ChunkId chunk, std::int32_t trainee) {
  return layout.group_of(chunk).trainable && layout.group_of(chunk).trainee == trainee;
}

// A chunk is committed at the parameter access that is `depth`, the prefetch distance, before its own first
// access. Chunks that no forward reads come last.
std::vector<ChunkPosition> commits_before_use(const PassSchedule& schedule, const ChunkLayout& layout,
                                              std::size_t depth) {
  std::vector<ChunkPosition> commits;
  std::vector<bool> listed(layout.n_chunks());
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    listed[chunk] = !is_trained_by(layout, chunk, schedule.trainee);
  const auto list = [&](std::int32_t position, ChunkId chunk) {
    if (!listed[chunk]) commits.emplace_back(position, chunk);
    listed[chunk] = true;
  };
  for (std::size_t i = 0; i < schedule.params.size(); ++i)
    list(i < depth ? 0 : schedule.params[i - depth].position, schedule.params[i].key.chunk);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) list(schedule.cycle, chunk);
  return commits;
}

}  // namespace

AccessTrace access_trace(const UseTrace& uses, const StatePlan& plan, std::int32_t passes, bool training) {
  const GatherSchedule schedule = gather_schedule(uses, plan.layout, plan.options.ranks);
  AccessTrace trace;
  trace.micro_batches = passes;
  trace.training = training;
  trace.keeps_gathered = plan.options.ranks.keeps_gathered();
  std::vector<ChunkId> open;
  for (std::size_t i = 0; i < uses.positions.size(); ++i) {
    const UseTrace::Position& position = uses.positions[i];
    const auto at = static_cast<std::int32_t>(i);
    AccessTrace::Access access;
    access.flops = position.flops;
    for (const GradWrite& write : position.grads)
      if (write.first) open.push_back(write.chunk);
    for (const ChunkId chunk : position.params)
      if (!plan.layout.has(chunk, Payload::gathered)) access.on_device.push_back({chunk, Payload::param});
    for (const GatherSchedule::Gather& gather : schedule.gathers) {
      const auto uses_it = [&](ChunkId chunk) { return chunk == gather.chunk; };
      const bool kept_at_home = trace.keeps_gathered && gather.begin != at;
      if (gather.begin == at) access.on_device.push_back({gather.chunk, Payload::param});
      if (kept_at_home ? std::any_of(position.params.begin(), position.params.end(), uses_it)
                       : gather.begin <= at && at <= gather.last)
        access.on_device.push_back({gather.chunk, Payload::gathered});
    }
    for (const ChunkId chunk : open) access.on_device.push_back({chunk, Payload::grad});
    for (const GradWrite& write : position.grads) {
      if (!write.last) continue;
      open.erase(std::find(open.begin(), open.end(), write.chunk));
      if (plan.layout.has(write.chunk, Payload::received))
        access.on_device.push_back({write.chunk, Payload::received});
    }
    trace.accesses.push_back(std::move(access));
  }
  return trace;
}

CommitTiming commit_timing(const StatePlan& plan) noexcept {
  if (!plan.trains()) return CommitTiming::never;
  return plan.options.step_mode == StepMode::serial ? CommitTiming::at_end : CommitTiming::before_use;
}

PassSchedule make_schedule(std::span<const PassRepeat> repeats, const StatePlan& plan, CommitTiming when,
                           std::int32_t trainee) {
  PassSchedule out;
  out.trainee = trainee;
  for (const PassRepeat& repeat : repeats) {
    PassSchedule::Part part{.first = out.cycle,
                            .length = static_cast<std::int32_t>(repeat.uses->positions.size()),
                            .passes = repeat.passes,
                            .gathers = gather_schedule(*repeat.uses, plan.layout, plan.options.ranks)};
    for (std::int32_t k = 0; k < part.passes; ++k, out.cycle += part.length)
      add_pass(*repeat.uses, part.gathers, plan, out.cycle, out.cycle > 0, out);
    out.parts.push_back(std::move(part));
  }
  if (when == CommitTiming::never) return out;
  const std::int32_t last_pass = out.cycle - out.parts.back().length;
  out.ready = detail::last_uses(*repeats.back().uses, plan.layout, trainee);
  out.commits = commits_before_use(out, plan.layout, *plan.options.prefetch);
  if (when == CommitTiming::at_end)
    for (auto& [position, chunk] : out.commits) position = out.cycle++;
  const auto updated = [&](std::int32_t position, ChunkId chunk) {
    for (const Payload payload : kPersistentPayloads)
      out.uses.push_back({position, {chunk, payload}, Tier::pinned});
    out.uses.push_back({position, {chunk, Payload::accum}, Tier::pinned});
  };
  for (const auto& [position, chunk] : out.commits) updated(position, chunk);
  for (const auto& [position, chunk] : out.ready)
    if (plan.undo.covers(chunk)) updated(last_pass + position, chunk);
  std::stable_sort(out.uses.begin(), out.uses.end(),
                   [](const Use& a, const Use& b) { return a.position < b.position; });
  return out;
}

}  // namespace strata
