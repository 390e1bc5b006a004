#include "plan/plan_changes.h"

#include <algorithm>
#include <map>

#include <strata/runtime/units.h>

namespace strata::detail {
namespace {

constexpr std::uint32_t kFarAhead = 6;  // chunks; the maximum that planning chooses by itself

// The size of a tensor, or of a block of one, that accounts for most parameters: chunks of this size, or of a
// fraction of it, waste little.
std::int64_t most_common_tensor_size(const RunPlan& plan) {
  std::map<std::int64_t, std::int64_t> params_of_size;
  for (const LayoutTensor& tensor : plan.tensors.specs)
    params_of_size[tensor.block_elems > 0 ? tensor.block_elems : tensor.n_elems] += tensor.n_elems;
  return std::max_element(params_of_size.begin(), params_of_size.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// In whole parts of every rank.
std::int64_t fraction_of(std::int64_t elems, std::int64_t part, const SessionOptions& options) {
  const std::int64_t unit = ChunkLayout::kSliceAlign * options.ranks.ranks;
  return std::max(unit, round_up(elems / part, unit));
}

PlanChange chunk_of_tensor(std::int64_t part, bool with_programs) {
  return {[part](SessionOptions& o, const RunPlan& best) {
            o.chunk_elems = fraction_of(most_common_tensor_size(best), part, o);
          },
          with_programs};
}
PlanChange smaller_chunk(std::int64_t part) {
  return {[part](SessionOptions& o, const RunPlan& best) {
    o.chunk_elems = fraction_of(best.layout.chunk_elems(), part, o);
  }};
}
PlanChange gradients_in(GradientPolicy where) {
  return {[where](SessionOptions& o, const RunPlan&) { o.gradients = where; },
          where == GradientPolicy::device};
}
PlanChange ahead(std::uint32_t chunks) {
  return {[chunks](SessionOptions& o, const RunPlan&) { o.prefetch = chunks; }};
}
// How often a run will be clipped is not known in advance. With a log, auto speculates as long as that pays.
PlanChange with_undo_log(bool far_ahead) {
  return {[far_ahead](SessionOptions& o, const RunPlan&) {
    o.step_mode = StepMode::automatic;
    o.undo_bytes = kUnlimited;
    if (far_ahead) o.prefetch = kFarAhead;
  }};
}

}  // namespace

std::vector<std::vector<PlanChange>> list_plan_changes(const SearchSpace& open) {
  std::vector<std::vector<PlanChange>> changes;
  if (open.chunk)
    changes.push_back({chunk_of_tensor(1, false), chunk_of_tensor(2, false), chunk_of_tensor(4, true),
                       smaller_chunk(2), smaller_chunk(4)});
  if (open.gradients)
    changes.push_back({gradients_in(GradientPolicy::device), gradients_in(GradientPolicy::pinned)});
  if (open.prefetch) changes.push_back({ahead(kFarAhead), ahead(2)});
  if (open.step_mode) changes.push_back({with_undo_log(false), with_undo_log(open.prefetch)});
  if (open.device_first)
    changes.push_back({{[](SessionOptions& o, const RunPlan&) { o.policy = PlacementPolicy::device; }}});
  return changes;
}

}  // namespace strata::detail
