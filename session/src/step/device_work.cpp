#include "step/device_work.h"

#include <strata/simd/norm.h>
#include <strata/runtime/assert.h>
#include <strata/state_kernels/gradient.h>
#include <strata/state_kernels/update.h>

#include "plan/chunk_tables.h"

namespace strata::detail {
namespace {

// Number of elements that one RoundingNoise can index.
constexpr std::int64_t kIndexed = std::int64_t{1} << 32;

// Calls queue(run) for runs of consecutive `blocks` of one tensor, split where an element's index would
// exceed what one RoundingNoise can index, and after a partial that is not whole.
template <class Queue>
Status each_run(std::span<const TensorBlock> blocks, const Queue& queue) {
  for (std::size_t i = 0; i < blocks.size();) {
    TensorBlock run = blocks[i++];
    for (; i < blocks.size() && blocks[i].tensor == run.tensor &&
           blocks[i].at / kIndexed == run.at / kIndexed &&
           blocks[i].first_partial == run.first_partial + run.n / simd::kNormPartialElems;
         ++i)
      run.n += blocks[i].n;
    STRATA_TRY(queue(run));
  }
  return Status::ok();
}

TensorView values(BufferView chunk, DType dtype, const TensorBlock& run) {
  return {chunk.data + static_cast<std::size_t>(run.offset) * size_of(dtype), Shape{run.n}, dtype};
}

void run_trust_ratios(const ChunkUpdate& update, ThreadPool&) { compute_trust_ratios(update); }
void run_clear(const ChunkUpdate& update, ThreadPool&) { clear_norm_partials(update); }

}  // namespace

Status queue_device_accumulate(StateContext& context, ChunkId chunk, BufferView sum, BufferView grad,
                               bool first, Stream& stream) {
  const DType dtype = context.plan().layout.group_of(chunk).grad;
  return each_run(context.tables().accumulated(chunk), [&](const TensorBlock& run) {
    return state_kernels::accumulate_async(context.backend(), stream,
                                           {values(sum, DType::f32, run), values(grad, dtype, run), first});
  });
}

Status queue_device_norm_partials(StateContext& context, ChunkId chunk, BufferView sum, Stream& stream) {
  const DType dtype = context.plan().layout.group_of(chunk).accum;
  return each_run(context.tables().summed(chunk), [&](const TensorBlock& run) {
    const TensorView norm_partials{reinterpret_cast<std::byte*>(context.norm_partials() + run.first_partial),
                                   Shape{simd::norm_partial_count(run.n)}, DType::f64};
    return state_kernels::square_sum_partials_async(context.backend(), stream,
                                                    {values(sum, dtype, run), norm_partials});
  });
}

Status queue_device_lamb_moments(StateContext& context, const ChunkUpdate& u) {
  Backend& backend = context.backend();
  Stream& compute = context.streams().compute;
  STRATA_TRY(backend.host_call_async(HostCall("clear norm partials", &run_clear, u), compute));
  return each_run(u.blocks, [&](const TensorBlock& run) {
    const BlockUpdate part = block_update(u, run);
    STRATA_TRY(state_kernels::update_async(backend, compute, {part.step, part.block, run.n, part.noise}));
    return state_kernels::lamb_partials_async(
        backend, compute,
        {part.step, part.block, run.n, u.norms.master_partials + u.norms.index(run),
         u.norms.direction_partials + u.norms.index(run)});
  });
}

Status queue_device_lamb_apply(StateContext& context, const ChunkUpdate& u) {
  STRATA_TRY(context.backend().host_call_async(HostCall("lamb trust ratios", &run_trust_ratios, u),
                                               context.streams().compute));
  STRATA_TRY(each_run(u.blocks, [&](const TensorBlock& run) {
    const BlockUpdate part = block_update(u, run);
    return state_kernels::lamb_apply_async(context.backend(), context.streams().compute,
                                           {part.step, part.block, run.n, u.norms.trust + run.tensor});
  }));
  return u.chunk.ema == nullptr ? Status() : queue_device_ema(context, u);
}

Status queue_device_update(StateContext& context, const ChunkUpdate& u) {
  STRATA_ASSERT(u.undo == UndoAction::none, "a speculative update of a chunk on the device");
  if (u.plan->options.optimizer.optimizer == cpuopt::Optimizer::lamb) {
    STRATA_TRY(queue_device_lamb_moments(context, u));
    return queue_device_lamb_apply(context, u);
  }
  STRATA_TRY(each_run(u.blocks, [&](const TensorBlock& run) {
    const BlockUpdate part = block_update(u, run);
    return state_kernels::update_async(context.backend(), context.streams().compute,
                                       {part.step, part.block, run.n, part.noise});
  }));
  return u.chunk.ema == nullptr ? Status() : queue_device_ema(context, u);
}

Status queue_device_ema(StateContext& context, const ChunkUpdate& u) {
  return each_run(u.blocks, [&](const TensorBlock& run) {
    const float weight = u.step == nullptr ? 1 : step_of(u, run).ema_weight;
    return state_kernels::ema_async(context.backend(), context.streams().compute,
                                    {weight, u.chunk.at(run.offset), run.n});
  });
}

}  // namespace strata::detail
