#include "commit.h"

#include <cmath>

#include <strata/cpuopt/norm.h>
#include <strata/runtime/profiler_range.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

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

Status Commit::run(const cpuopt::OptimizerParams& params, std::int32_t first_position) {
  changed_states_ = false;
  STRATA_TRY(cpuopt::validate(params));
  cpuopt::OptimizerParams plain = params;
  plain.weight_decay = 0;
  step_ = {cpuopt::update_step(params), cpuopt::update_step(plain), machine_.plan.options.rounding_seed,
           params.step};
  const auto n = static_cast<ChunkId>(machine_.plan.layout.n_chunks());
  for (ChunkId chunk = 0; chunk < n; ++chunk) {
    machine_.chunks->set_position(first_position + static_cast<std::int32_t>(chunk));
    if (const Status status = update(chunk); !status.is_ok())
      return status.annotate(str("updating chunk ", chunk));
    if (chunk + 1 < n) STRATA_TRY(fetch_ahead(chunk + 1));
    STRATA_TRY(machine_.chunks->pump());
  }
  return machine_.chunks->status();
}

Status Commit::update(ChunkId chunk) {
  const ProfilerRange range("commit chunk");
  ChunkManager& chunks = *machine_.chunks;
  const ChunkLayout& layout = machine_.plan.layout;
  const bool on_device = machine_.plan.placement.home({chunk, Payload::param}) == Tier::device;
  const Tier tier = on_device ? Tier::device : Tier::pinned;
  Stream& stream = on_device ? machine_.compute : machine_.cpu;
  {
    STRATA_TRY_ASSIGN(const ChunkPin g, chunks.pin({chunk, Payload::accum}, tier, Intent::read, stream));
    std::array<ChunkPin, kStepPayloads.size()> states;
    for (std::size_t i = 0; i < states.size(); ++i)
      if (layout.has(chunk, kStepPayloads[i])) {
        STRATA_TRY_ASSIGN(states[i], chunks.pin({chunk, kStepPayloads[i]}, tier, Intent::update, stream));
      }
    const auto& [param, master, m, v] = states;
    const auto data = [](const ChunkPin& pin) { return pin ? pin.view().data : nullptr; };
    const GroupKey& group = layout.group_of(chunk);
    const std::int64_t n = layout.chunk(chunk).n_elems;
    const cpuopt::UpdateBlock whole = {.layout = cpuopt::master_layout(group.compute),
                                       .states = group.format,
                                       .grad = group.sum,
                                       .param = data(param),
                                       .master = data(master),
                                       .m = cpuopt::moment_at(group.format, data(m), n),
                                       .v = cpuopt::moment_at(group.format, data(v), n),
                                       .g = g.view().data};
    HostCall call(
        cpuopt::to_string(step_.plain.optimizer).data(), &run_chunk_update,
        ChunkUpdate{whole, machine_.tables.blocks[chunk], &step_, &machine_.plan, machine_.tensor_norms()});
    for (const ChunkPin& state : states)
      if (state) call.writes(state.view().data, state.view().bytes);
    call.reads(g.view().data, g.view().bytes);
    changed_states_ = true;
    STRATA_TRY(machine_.backend.host_call_async(call, stream));
  }
  for (const Payload payload : kStepPayloads)
    if (layout.has(chunk, payload)) STRATA_TRY(chunks.send_home({chunk, payload}));
  return chunks.drop({chunk, Payload::accum});
}

// Reads of the next chunk's states run while this one is updated.
Status Commit::fetch_ahead(ChunkId chunk) {
  for (const Payload payload : {Payload::accum, Payload::param, Payload::master, Payload::m, Payload::v}) {
    const CopyKey key{chunk, payload};
    if (!machine_.plan.layout.has(chunk, payload)) continue;
    if (machine_.plan.placement.home(key) != Tier::nvme) continue;
    STRATA_TRY_ASSIGN(const bool begun, machine_.chunks->prefetch(key, Tier::pinned));
    if (!begun) break;
  }
  return Status::ok();
}

}  // namespace strata
