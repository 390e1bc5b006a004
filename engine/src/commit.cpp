#include "commit.h"

#include <cmath>

#include <strata/cpuopt/norm.h>
#include <strata/runtime/profiler_range.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

struct UpdateState {
  cpuopt::AdamWBlock chunk;
  const Block* blocks;
  std::int64_t n_blocks;
  cpuopt::AdamWScalars<float> decay, plain;  // with and without weight decay
  float grad_factor;
};

// The part of a chunk from element `offset` on.
cpuopt::AdamWBlock part_of(const UpdateState& s, std::int64_t offset) {
  const auto at = [offset](auto* begin, std::size_t elem_bytes) {
    return begin + static_cast<std::size_t>(offset) * elem_bytes;
  };
  cpuopt::AdamWBlock part = s.chunk;
  const GroupKey group = {.compute = part.compute, .grad = part.grad};
  part.param = at(static_cast<std::byte*>(part.param), bytes_per_elem(group, Payload::param));
  if (part.master != nullptr)
    part.master = at(static_cast<std::byte*>(part.master), bytes_per_elem(group, Payload::master));
  part.m += offset;
  part.v += offset;
  part.g = at(static_cast<const std::byte*>(part.g), size_of(part.grad));
  return part;
}

void run_update(const UpdateState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const Block& b = s.blocks[i];
    cpuopt::adamw_update_block(b.decay ? s.decay : s.plain, s.grad_factor, part_of(s, b.offset), b.n);
  });
}

std::string name_of_bad_tensor(const Machine& machine) {
  for (std::size_t t = 0; t < machine.tables.leaf_of_tensor.size(); ++t) {
    const std::int64_t n = cpuopt::norm_leaves(machine.plan.tensors.specs[t].n_elems);
    for (std::int64_t i = 0; i < n; ++i)
      if (!std::isfinite(machine.leaves()[machine.tables.leaf_of_tensor[t] + i]))
        return machine.plan.tensors.specs[t].name;
  }
  return "their sum";
}

}  // namespace

Result<double> Commit::gradient_norm(std::int32_t micro_batches) {
  STRATA_TRY(machine_.backend.synchronize(machine_.compute));
  STRATA_TRY(machine_.backend.synchronize(machine_.cpu));
  if (machine_.dry()) return 1.0;
  const auto n = static_cast<std::size_t>(machine_.tables.n_leaves);
  STRATA_TRY(machine_.backend.host_access(
      {reinterpret_cast<const std::byte*>(machine_.leaves()), n * sizeof(double), false}));
  return std::sqrt(cpuopt::tree_sum(std::span<const double>(machine_.leaves(), n))) / micro_batches;
}

Status Commit::not_finite() const {
  return Status::error(Code::diverged, str("the gradient of ", name_of_bad_tensor(machine_),
                                           " is not finite; nothing was updated"));
}

Status Commit::run(const cpuopt::AdamWParams& params, std::int32_t first_position) {
  changed_states_ = false;
  STRATA_TRY(cpuopt::validate(params));
  const auto n = static_cast<ChunkId>(machine_.plan.layout.n_chunks());
  for (ChunkId chunk = 0; chunk < n; ++chunk) {
    machine_.chunks->set_position(first_position + static_cast<std::int32_t>(chunk));
    if (const Status status = update(chunk, params); !status.is_ok())
      return status.annotate(str("updating chunk ", chunk));
    if (chunk + 1 < n) STRATA_TRY(fetch_ahead(chunk + 1));
    STRATA_TRY(machine_.chunks->pump());
  }
  return machine_.chunks->status();
}

Status Commit::update(ChunkId chunk, const cpuopt::AdamWParams& params) {
  const ProfilerRange range("commit chunk");
  ChunkManager& chunks = *machine_.chunks;
  const bool on_device = machine_.plan.placement.home({chunk, Payload::param}) == Tier::device;
  const Tier tier = on_device ? Tier::device : Tier::pinned;
  Stream& stream = on_device ? machine_.compute : machine_.cpu;
  const GroupKey& group = machine_.plan.layout.group_of(chunk);
  const bool has_master = machine_.plan.layout.has(chunk, Payload::master);
  {
    STRATA_TRY_ASSIGN(const ChunkPin g, chunks.pin({chunk, Payload::accum}, tier, Intent::read, stream));
    STRATA_TRY_ASSIGN(const ChunkPin p, chunks.pin({chunk, Payload::param}, tier, Intent::update, stream));
    ChunkPin master;
    if (has_master) {
      STRATA_TRY_ASSIGN(master, chunks.pin({chunk, Payload::master}, tier, Intent::update, stream));
    }
    STRATA_TRY_ASSIGN(const ChunkPin m, chunks.pin({chunk, Payload::m}, tier, Intent::update, stream));
    STRATA_TRY_ASSIGN(const ChunkPin v, chunks.pin({chunk, Payload::v}, tier, Intent::update, stream));
    const std::vector<Block>& blocks = machine_.tables.blocks[chunk];
    cpuopt::AdamWParams plain = params;
    plain.weight_decay = 0;
    const auto floats = [](const ChunkPin& pin) { return reinterpret_cast<float*>(pin.view().data); };
    const cpuopt::AdamWBlock whole = {.compute = group.compute,
                                      .grad = group.sum,
                                      .param = p.view().data,
                                      .master = has_master ? master.view().data : nullptr,
                                      .m = floats(m),
                                      .v = floats(v),
                                      .g = g.view().data};
    HostCall call("adamw", &run_update,
                  UpdateState{whole, blocks.data(), static_cast<std::int64_t>(blocks.size()),
                              cpuopt::adamw_scalars(params), cpuopt::adamw_scalars(plain),
                              static_cast<float>(params.grad_factor)});
    for (const ChunkPin* written : {&p, &m, &v}) call.writes(written->view().data, written->view().bytes);
    if (has_master) call.writes(master.view().data, master.view().bytes);
    call.reads(g.view().data, g.view().bytes);
    changed_states_ = true;
    STRATA_TRY(machine_.backend.host_call_async(call, stream));
  }
  for (const Payload payload : kStepPayloads)
    if (machine_.plan.layout.has(chunk, payload)) STRATA_TRY(chunks.send_home({chunk, payload}));
  return chunks.drop({chunk, Payload::accum});
}

// Reads of the next chunk's states run while this one is updated.
Status Commit::fetch_ahead(ChunkId chunk) {
  for (const Payload payload : {Payload::accum, Payload::param, Payload::master, Payload::m, Payload::v}) {
    const CopyKey key{chunk, payload};
    if (machine_.plan.placement.home(key) != Tier::nvme) continue;
    STRATA_TRY_ASSIGN(const bool begun, machine_.chunks->prefetch(key, Tier::pinned));
    if (!begun) break;
  }
  return Status::ok();
}

}  // namespace strata
