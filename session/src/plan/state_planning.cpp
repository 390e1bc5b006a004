#include <strata/session/state_planning.h>

#include <algorithm>
#include <bit>

#include <strata/cpuopt/master.h>
#include <strata/offload/placement_planner.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/session/pinned_layout.h>

#include "plan/chunk_tables.h"
#include "plan/update_rules.h"

namespace strata {
namespace {

// A working window of a few chunks should take a small part of the device memory that activations leave.
std::int64_t largest_sensible_chunk(std::size_t arena, const SessionOptions& options) {
  if (options.budgets[0] == kUnlimited) return 0;
  const std::uint64_t left = options.budgets[0] > arena ? options.budgets[0] - arena : 0;
  constexpr std::uint64_t kWidest = sizeof(float);  // largest size of an element of any payload
  const std::uint64_t elems = left / 16 / kWidest;
  // Rounded to three significant bits, so that nearly equal budgets give the same layout.
  const int dropped = std::max(0, static_cast<int>(std::bit_width(elems)) - 3);
  return std::max<std::int64_t>(ChunkLayout::kSliceAlign,
                                static_cast<std::int64_t>(elems >> dropped << dropped));
}

// Prefetching a few chunks balances long instructions against chunks that need little computation. Their
// window, and that of gradients on their way out, should be a small part of the device.
std::uint32_t choose_prefetch_depth(const ChunkLayout& layout, std::uint64_t device) {
  constexpr std::uint64_t kMinChunks = 2, kMaxChunks = 6, kSmallPart = 8;
  std::size_t largest = 1;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    largest = std::max(
        largest, layout.payload_bytes(chunk, Payload::param) + layout.payload_bytes(chunk, Payload::grad));
  return static_cast<std::uint32_t>(std::clamp(device / kSmallPart / largest, kMinChunks, kMaxChunks));
}

std::uint64_t frozen_bytes(const StatePlan& plan) {
  std::uint64_t bytes = 0;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    if (!plan.layout.group_of(chunk).trainable)
      for (const Payload payload : kPersistentPayloads) bytes += plan.layout.payload_bytes(chunk, payload);
  return bytes;
}

// The gradients of several micro-batches are accumulated in f32; a single one is used unchanged.
void set_formats(StatePlan& plan) {
  const cpuopt::MomentSet moments = cpuopt::moments_of(plan.options.optimizer);
  const bool has_ema = plan.options.optimizer.ema_decay > 0;
  for (LayoutTensor& tensor : plan.tensors.specs) {
    if (plan.micro_batches(tensor.group.trainee) > 1) tensor.group.accum = DType::f32;
    tensor.group.format = plan.options.states;
    tensor.group.first_moment = moments.first;
    tensor.group.second_moment = moments.second;
    tensor.group.ema = tensor.group.trainable && has_ema;
    tensor.group.frozen_masters = tensor.group.trainable || plan.options.frozen_masters;
    tensor.group.saved = tensor.group.saved || plan.options.saves_frozen;
    // Its trust ratio is that of a whole tensor, which is known when one chunk's gradient is.
    if (plan.options.optimizer.optimizer == cpuopt::Optimizer::lamb) tensor.block_elems = 0;
  }
  plan.held_states = {Payload::param};
  if (moments.first) plan.held_states.push_back(Payload::m);
  if (moments.second) plan.held_states.push_back(Payload::v);
  if (has_ema) plan.held_states.push_back(Payload::ema);
}

}  // namespace

Status check_options(const SessionOptions& options) {
  if (options.grad_accum < 1)
    return Status::error(Code::invalid,
                         str("train.grad_accum is ", options.grad_accum, "; it must be at least 1"));
  STRATA_TRY(check(options.ranks, options.grad_accum));
  STRATA_TRY(check(options.model));
  if (options.model.ranks() > 1 && options.optimizer.optimizer == cpuopt::Optimizer::lamb)
    return Status::error(Code::unsupported,
                         str("optim.name=lamb needs norms of whole tensors, but parallel.cp * parallel.tp = ",
                             options.model.ranks(), " ranks share them; use adamw"));
  if (exchanges_norms(options) &&
      (options.step_mode == StepMode::speculative || options.step_mode == StepMode::hybrid))
    return Status::error(Code::unsupported,
                         str("optim.name=lamb with parallel.zero=", options.ranks.zero,
                             " exchanges norms of tensors, so it cannot update speculatively; use "
                             "offload.step_mode=two_phase"));
  if (!(options.clip >= 0))
    return Status::error(Code::invalid,
                         str("optim.clip is ", options.clip, "; it must be at least 0 (0: no clipping)"));
  if (options.prefetch.value_or(0) > 64)
    return Status::error(Code::invalid,
                         str("offload.prefetch is ", *options.prefetch, "; it must be at most 64"));
  return Status::ok();
}

bool states_may_fit(const TensorTable& tensors, bool trains, const SessionOptions& options) {
  double room = 0, need = 0;
  for (const std::uint64_t bytes : options.budgets) room += static_cast<double>(bytes);
  const cpuopt::MomentSet moments = cpuopt::moments_of(options.optimizer);
  for (const LayoutTensor& tensor : tensors.specs) {
    const DType compute = tensor.group.compute;
    std::size_t bytes = size_of(compute);
    if (trains && tensor.group.trainable)
      bytes +=
          cpuopt::master_bytes(cpuopt::master_layout(compute)) +
          moment_value_bytes(options.states) * (std::size_t{moments.first} + std::size_t{moments.second}) +
          (options.optimizer.ema_decay > 0 ? sizeof(float) : 0);
    need += static_cast<double>(bytes) * static_cast<double>(tensor.n_elems);
  }
  return need <= room;
}

bool searches_chunk_size(const SessionOptions& options) {
  return options.chunk_elems == 0 && options.budgets[0] != kUnlimited;
}
std::vector<std::int64_t> chunk_bounds(std::size_t arena, const SessionOptions& options) {
  if (!searches_chunk_size(options)) return {0};
  const std::int64_t largest = largest_sensible_chunk(arena, options);
  return {largest, largest / 2, largest / 4};
}

void choose_prefetch(StatePlan& plan) {
  plan.options.prefetch = choose_prefetch_depth(plan.layout, plan.options.budgets[0]);
}

Status lay_out_states(StatePlan& plan, std::int64_t max_chunk_elems) {
  set_formats(plan);
  if (plan.trains()) STRATA_TRY(detail::make_update_rules(plan));
  LayoutOptions layout;
  layout.chunk_elems = plan.options.chunk_elems;
  layout.max_chunk_elems = max_chunk_elems;
  layout.sharding = sharding_of(plan.options.ranks);
  if (const double ranks = plan.options.ranks.ranks; ranks > 1)  // the own part of a chunk is not sent
    layout.half_rate_bytes =
        std::max(layout.half_rate_bytes, plan.options.network_half_rate_bytes * ranks / (ranks - 1));
  STRATA_TRY_ASSIGN(plan.layout, ChunkLayout::create(plan.tensors.specs, layout));
  plan.notes.push_back("layout: " + plan.layout.explanation());
  if (!plan.options.prefetch) choose_prefetch(plan);
  if (const std::int64_t frozen = plan.n_params(false); frozen > 0)
    plan.notes.push_back(str("frozen: ", frozen, " parameters in ", format_bytes(frozen_bytes(plan)),
                             ", which are only read; ", plan.n_params(true), " are trained"));
  return {};
}

void add_fixed_bytes(StatePlan& plan) {
  STRATA_ASSERT(plan.driver.arena % kPageBytes == 0 && plan.driver.device_states % kPageBytes == 0 &&
                    plan.driver.pinned % kPageBytes == 0,
                "the driver's memory is not in whole pages");
  plan.trace.device_fixed_bytes = plan.driver.arena + plan.driver.device_states;
  plan.trace.nvme_fixed_bytes = plan.driver.nvme_bytes();
  plan.trace.pinned_fixed_bytes =
      plan.driver.pinned + plan_pinned_layout(plan, detail::count_norm_partials(plan.tensors)).total();
}

PlacementRequest placement_request(const SessionOptions& options) {
  return {options.budgets, options.policy, *options.prefetch, options.gradients, options.capacity};
}

std::optional<Placement> place_states(const StatePlan& plan, LastPasses last_passes) {
  const PlacementRequest request = placement_request(plan.options);
  PlacementRequest beside_log = request;
  std::uint64_t& pinned = beside_log.budgets[static_cast<std::size_t>(Tier::pinned)];
  const std::uint64_t reserve = undo_reserve(plan, last_passes);
  if (reserve > 0 && pinned != kUnlimited && pinned > reserve) {
    pinned -= reserve;
    if (std::optional<Placement> placement = find_placement(plan.layout, plan.trace, beside_log))
      return placement;
  }
  return find_placement(plan.layout, plan.trace, request);
}

}  // namespace strata
