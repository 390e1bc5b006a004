#include "step/chunk_update.h"

#include <algorithm>
#include <cstring>

#include <strata/cpuopt/copy.h>
#include <strata/simd/norm.h>

namespace strata::detail {
const cpuopt::UpdateStep& step_of(const ChunkUpdate& u, const TensorBlock& block) {
  const auto rule = static_cast<std::size_t>(u.plan->rule_of_tensor[static_cast<std::size_t>(block.tensor)]);
  return u.step->by_rule[rule];
}

// Random numbers depend on the parameter's place in the program, so layouts do not change them.
BlockUpdate block_update(const ChunkUpdate& u, const TensorBlock& block) {
  const auto tensor = static_cast<std::size_t>(block.tensor);
  BlockUpdate part{step_of(u, block), u.chunk.at(block.offset), {}};
  part.block.index = static_cast<std::uint32_t>(block.at);
  if (u.chunk.states != StateFormat::fp32)
    part.noise = cpuopt::rounding_noise(u.step->rounding_seed,
                                        static_cast<std::uint64_t>(u.plan->tensors.param_of_tensor[tensor]),
                                        u.step->step, block.at);
  if (u.of_trainer != nullptr) {
    const TrainerTensor& there = u.of_trainer[tensor];
    const auto at = static_cast<std::size_t>(block.at);
    if (there.param != nullptr) part.block.param = there.param + at * cpuopt::param_bytes(part.block.layout);
    if (there.grad != nullptr) {
      part.block.g = there.grad + at * size_of(there.grad_dtype);
      part.block.grad = there.grad_dtype;
    }
  }
  return part;
}

namespace {

using Copy = void (*)(void* to, const void* from, std::size_t bytes);
void copy_cached(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void copy_moment(StateFormat format, const cpuopt::Moment& from, const cpuopt::Moment& into, std::int64_t n,
                 Copy copy) {
  if (from.values == nullptr || into.values == nullptr) return;
  copy(into.values, from.values, static_cast<std::size_t>(n) * moment_value_bytes(format));
  if (from.scales != nullptr)
    std::memcpy(into.scales, from.scales,
                static_cast<std::size_t>((n + kMomentBlock - 1) / kMomentBlock) * sizeof(float));
}

// Copies all that an update changes and that exists on both sides: the undo log does not contain states on
// nvme.
void copy_states(const cpuopt::UpdateBlock& from, const cpuopt::UpdateBlock& into, std::int64_t n,
                 Copy copy) {
  const auto elems = static_cast<std::size_t>(n);
  if (from.param != nullptr && into.param != nullptr)
    copy(into.param, from.param, elems * cpuopt::param_bytes(from.layout));
  if (from.master != nullptr && into.master != nullptr)
    copy(into.master, from.master, elems * cpuopt::master_bytes(from.layout));
  copy_moment(from.states, from.m, into.m, n, copy);
  copy_moment(from.states, from.v, into.v, n, copy);
  if (from.ema != nullptr && into.ema != nullptr) copy(into.ema, from.ema, elems * sizeof(float));
}

// Runs right before the update of the same elements, so that they are read from memory only once.
void apply_undo(const ChunkUpdate& u, const TensorBlock& block) {
  if (u.undo == UndoAction::none) return;
  const cpuopt::UpdateBlock here = u.chunk.at(block.offset), there = u.old.at(block.offset);
  if (u.undo == UndoAction::save)
    copy_states(here, there, block.n, &cpuopt::copy_streaming);
  else
    copy_states(there, here, block.n, &copy_cached);
}

}  // namespace

// A tensor is whole in its chunk, as LAMB lays out no blocks, and a rank may hold a part of the chunk.
void compute_trust_ratios(const ChunkUpdate& u) {
  std::int32_t last = -1;
  for (const TensorBlock& block : u.blocks) {
    if (block.tensor == last) continue;
    last = block.tensor;
    const auto tensor = static_cast<std::size_t>(block.tensor);
    const auto n = static_cast<std::size_t>(simd::norm_partial_count(u.plan->tensors.specs[tensor].n_elems));
    const auto sum = [&](const double* partials) {
      return simd::tree_sum(std::span<const double>(partials + u.norms.first_in_chunk[tensor], n));
    };
    u.norms.trust[tensor] =
        cpuopt::lamb_trust_ratio(sum(u.norms.master_partials), sum(u.norms.direction_partials));
  }
}

void clear_norm_partials(const ChunkUpdate& u) {
  std::fill_n(u.norms.master_partials, u.norms.n, 0.0);
  std::fill_n(u.norms.direction_partials, u.norms.n, 0.0);
}

void run_lamb_moments(const ChunkUpdate& u, ThreadPool& pool) {
  clear_norm_partials(u);
  pool.parallel_for(std::ssize(u.blocks), [&](std::int64_t i) {
    const TensorBlock& b = u.blocks[static_cast<std::size_t>(i)];
    if (!u.updates(b)) return;
    apply_undo(u, b);
    const BlockUpdate part = block_update(u, b);
    cpuopt::lamb_moments_block(part.step, part.block, b.n, part.noise,
                               u.norms.master_partials + u.norms.index(b),
                               u.norms.direction_partials + u.norms.index(b));
  });
}

void run_lamb_apply(const ChunkUpdate& u, ThreadPool& pool) {
  compute_trust_ratios(u);
  pool.parallel_for(std::ssize(u.blocks), [&](std::int64_t i) {
    const TensorBlock& b = u.blocks[static_cast<std::size_t>(i)];
    if (!u.updates(b)) return;
    const BlockUpdate part = block_update(u, b);
    cpuopt::lamb_apply_block(part.step, u.norms.trust[b.tensor], part.block, b.n);
    if (part.block.ema != nullptr) cpuopt::update_ema_block(part.step.ema_weight, part.block, b.n);
  });
}

void run_ema_start(const ChunkUpdate& u, ThreadPool& pool) {
  pool.parallel_for(std::ssize(u.blocks), [&](std::int64_t i) {
    const TensorBlock& b = u.blocks[static_cast<std::size_t>(i)];
    cpuopt::update_ema_block(1, u.chunk.at(b.offset), b.n);
  });
}

void run_chunk_update(const ChunkUpdate& u, ThreadPool& pool) {
  const bool updates = u.undo != UndoAction::rollback;
  if (updates && u.plan->options.optimizer.optimizer == cpuopt::Optimizer::lamb) {
    run_lamb_moments(u, pool);
    return run_lamb_apply(u, pool);
  }
  // Pieces are small enough to stay in cache between copy and update if there is an undo log; otherwise
  // blocks are whole.
  const std::int64_t piece =
      u.undo == UndoAction::none ? TensorBlock::kBlockElems : 4 * simd::kNormPartialElems;
  pool.parallel_for(std::ssize(u.blocks), [&](std::int64_t i) {
    const TensorBlock& whole = u.blocks[static_cast<std::size_t>(i)];
    if (!u.updates(whole)) return;
    for (std::int64_t done = 0; done < whole.n; done += piece) {
      TensorBlock b = whole;
      b.offset += done;
      b.at += done;
      b.n = std::min(piece, whole.n - done);
      apply_undo(u, b);
      if (!updates) continue;
      const BlockUpdate part = block_update(u, b);
      cpuopt::update_block(part.step, part.block, b.n, part.noise);
      if (part.block.ema != nullptr) cpuopt::update_ema_block(part.step.ema_weight, part.block, b.n);
    }
  });
}

}  // namespace strata::detail
