#include <strata/session/pinned_layout.h>

#include <algorithm>

#include <strata/runtime/units.h>

namespace strata {
namespace {

// Copies of a few MiB saturate the link if one is in flight while another is processed. A small model gets no
// more staging memory than one piece needs.
void lay_out_staging(const StatePlan& plan, PinnedLayout& pinned_layout) {
  constexpr std::int64_t kMaxElems = 16 * kMaxStatePieceElems, kShare = 4096;
  std::int64_t longest = 0, all = 0;
  for (const LayoutTensor& tensor : plan.tensors.specs) {
    longest = std::max(longest, tensor.n_elems);
    all += tensor.n_elems;
  }
  const std::int64_t share = plan.options.state_run > 0
                                 ? plan.options.state_run
                                 : all / kShare / kMaxStatePieceElems * kMaxStatePieceElems;
  pinned_layout.state_slots = share > 0 ? 2 : 1;
  pinned_layout.state_run =
      round_up(share > 0 ? std::min(share, kMaxElems) : std::min(longest, kMaxStatePieceElems), kMomentBlock);
  pinned_layout.states =
      pinned_layout.state_slots * 2 *
      round_up(static_cast<std::size_t>(pinned_layout.state_run) * sizeof(float), kPageBytes);
}

}  // namespace

std::size_t summed_value_count(const StatePlan& plan) noexcept {
  std::size_t n = 0;
  for (const StepSum& sum : plan.options.step_sums) n += static_cast<std::size_t>(sum.n);
  return n;
}

std::size_t step_value_count(const StatePlan& plan) noexcept {
  if (plan.options.ranks.ranks == 1 || !plan.trains()) return 0;
  return static_cast<std::size_t>(plan.options.grad_accum) + summed_value_count(plan) + kStepFlags;
}

std::size_t model_value_count(const StatePlan& plan) noexcept {
  return plan.options.model.ranks() == 1 || !plan.trains() ? 0 : 1 + kStepFlags;
}

PinnedLayout plan_pinned_layout(const StatePlan& plan, std::int64_t n_partials) {
  PinnedLayout pinned_layout;
  pinned_layout.norm_partials =
      round_up((static_cast<std::size_t>(n_partials) + step_value_count(plan) + model_value_count(plan)) *
                   sizeof(double),
               kPageBytes);
  if (plan.trains() && plan.options.optimizer.optimizer == cpuopt::Optimizer::lamb)
    pinned_layout.norms = round_up(
        static_cast<std::size_t>(n_partials) * 2 * sizeof(double) + plan.tensors.specs.size() * sizeof(float),
        kPageBytes);
  pinned_layout.undo = plan.undo.bytes;
  lay_out_staging(plan, pinned_layout);
  return pinned_layout;
}

std::size_t updated_state_bytes(const StatePlan& plan, ChunkId chunk, Tier tier) {
  std::size_t bytes = 0;
  for (const Payload payload : kPersistentPayloads)
    if (plan.placement.home({chunk, payload}) == tier) bytes += plan.layout.payload_bytes(chunk, payload);
  return bytes;
}

}  // namespace strata
