#include "device_work.h"

#include <strata/cpuopt/norm.h>
#include <strata/kernels/optimizer.h>
#include <strata/runtime/assert.h>

namespace strata {
namespace {

constexpr std::int64_t kIndexed = std::int64_t{1} << 32;  // elements that one RoundingNoise tells apart

// Calls queue(block) for runs of `blocks` that follow each other in one tensor, as long as a step may see
// them.
template <class Queue>
Status each_run(std::span<const Block> blocks, const Queue& queue) {
  for (std::size_t i = 0; i < blocks.size();) {
    Block run = blocks[i++];
    for (;
         i < blocks.size() && blocks[i].tensor == run.tensor && blocks[i].at / kIndexed == run.at / kIndexed;
         ++i)
      run.n += blocks[i].n;
    STRATA_TRY(queue(run));
  }
  return Status::ok();
}

TensorView values(BufferView chunk, DType dtype, const Block& run) {
  return {chunk.data + static_cast<std::size_t>(run.offset) * size_of(dtype), Shape{run.n}, dtype};
}

void run_take_trust(const ChunkUpdate& update, ThreadPool&) { take_trust(update); }

Status update_by_tensor(Machine& m, const ChunkUpdate& u) {
  const Status moments = each_run(u.blocks, [&](const Block& run) {
    const UpdatePart part = part_of(u, run);
    STRATA_TRY(kernels::update_async(m.backend, m.compute, {part.step, part.block, run.n, part.noise}));
    return kernels::lamb_partials_async(m.backend, m.compute,
                                        {part.step, part.block, run.n, u.norms.master_partials + run.leaf,
                                         u.norms.direction_partials + run.leaf});
  });
  STRATA_TRY(moments);
  STRATA_TRY(m.backend.host_call_async(HostCall("lamb trust", &run_take_trust, u), m.compute));
  return each_run(u.blocks, [&](const Block& run) {
    const UpdatePart part = part_of(u, run);
    return kernels::lamb_apply_async(m.backend, m.compute,
                                     {part.step, part.block, run.n, u.norms.trust + run.tensor});
  });
}

}  // namespace

Status accumulate_on_device(Machine& m, ChunkId chunk, BufferView sum, BufferView grad, bool first) {
  const DType dtype = m.plan.layout.group_of(chunk).grad;
  return each_run(m.tables.blocks[chunk], [&](const Block& run) {
    return kernels::accumulate_async(m.backend, m.compute,
                                     {values(sum, DType::f32, run), values(grad, dtype, run), first});
  });
}

Status take_leaves_on_device(Machine& m, ChunkId chunk, BufferView sum) {
  const DType dtype = m.plan.layout.group_of(chunk).accum;
  return each_run(m.tables.blocks[chunk], [&](const Block& run) {
    const TensorView leaves{reinterpret_cast<std::byte*>(m.leaves() + run.leaf),
                            Shape{cpuopt::norm_partial_count(run.n)}, DType::f64};
    return kernels::square_sum_partials_async(m.backend, m.compute, {values(sum, dtype, run), leaves});
  });
}

Status update_on_device(Machine& m, const ChunkUpdate& u) {
  STRATA_ASSERT(u.undo == Undo::none, "an update on trust of a chunk on the device");
  if (u.step->by_rule[0].optimizer == cpuopt::Optimizer::lamb) return update_by_tensor(m, u);
  return each_run(u.blocks, [&](const Block& run) {
    const UpdatePart part = part_of(u, run);
    return kernels::update_async(m.backend, m.compute, {part.step, part.block, run.n, part.noise});
  });
}

}  // namespace strata
