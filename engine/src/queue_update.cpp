#include "queue_update.h"

#include <array>

#include "device_work.h"

namespace strata {
namespace {

// The chunk's states at `data`, by the order of kPersistentPayloads; null: there is none.
cpuopt::UpdateBlock block_of(const GroupKey& group, std::int64_t n,
                             const std::array<std::byte*, kPersistentPayloads.size()>& data) {
  return {.layout = cpuopt::master_layout(group.compute),
          .states = group.format,
          .grad = group.accum,
          .param = data[0],
          .master = data[1],
          .m = cpuopt::moment_at(group.format, data[2], n),
          .v = cpuopt::moment_at(group.format, data[3], n)};
}

bool is_logged(const Machine& machine, PayloadKey key) {
  return machine.plan.placement.home(key) == Tier::pinned;
}

// In the undo log those of a chunk's payloads that live in RAM follow each other.
cpuopt::UpdateBlock old_block(const Machine& machine, ChunkId chunk) {
  std::array<std::byte*, kPersistentPayloads.size()> data{};
  std::byte* at = machine.undo(chunk).data;
  for (std::size_t i = 0; i < kPersistentPayloads.size(); ++i) {
    if (!is_logged(machine, {chunk, kPersistentPayloads[i]})) continue;
    data[i] = at;
    at += machine.plan.layout.payload_bytes(chunk, kPersistentPayloads[i]);
  }
  return block_of(machine.plan.layout.group_of(chunk), machine.plan.layout.chunk(chunk).n_elems, data);
}

}  // namespace

Result<StepConstants> step_constants(const Machine& machine, const cpuopt::OptimizerParams& params) {
  STRATA_TRY(cpuopt::validate(params));
  StepConstants constants;
  for (std::size_t rule = 0; rule < machine.plan.rules.size(); ++rule) {
    cpuopt::OptimizerParams own = params;
    own.lr *= machine.plan.rules[rule].lr_scale;
    own.weight_decay = machine.plan.rules[rule].weight_decay;
    constants.by_rule[rule] = cpuopt::make_update_step(own);
  }
  constants.rounding_seed = machine.plan.options.rounding_seed;
  constants.step = params.step;
  return constants;
}

Status queue_update(Machine& machine, ChunkId chunk, const StepConstants& step, Undo undo) {
  ChunkManager& chunks = *machine.chunks;
  const ChunkLayout& layout = machine.plan.layout;
  const bool on_device = machine.plan.placement.home({chunk, Payload::param}) == Tier::device;
  const Tier tier = on_device ? Tier::device : Tier::pinned;
  Stream& stream = on_device ? machine.compute : machine.cpu;
  ChunkPin gradient;
  if (undo != Undo::restore) {
    STRATA_TRY_ASSIGN(gradient, chunks.pin({chunk, Payload::accum}, tier, Intent::read, stream));
  }
  std::array<ChunkPin, kPersistentPayloads.size()> states;
  std::array<std::byte*, kPersistentPayloads.size()> data{};
  for (std::size_t i = 0; i < kPersistentPayloads.size(); ++i) {
    const PayloadKey key{chunk, kPersistentPayloads[i]};
    if (!layout.has(chunk, key.payload) || (undo == Undo::restore && !is_logged(machine, key))) continue;
    STRATA_TRY_ASSIGN(states[i], chunks.pin(key, tier, Intent::update, stream));
    data[i] = states[i].view().data;
  }
  ChunkUpdate update = {.chunk = block_of(layout.group_of(chunk), layout.chunk(chunk).n_elems, data),
                        .old = {},
                        .blocks = machine.tables.blocks[chunk],
                        .step = &step,
                        .plan = &machine.plan,
                        .norms = machine.tensor_norms(),
                        .undo = undo};
  if (gradient) update.chunk.g = gradient.view().data;
  if (on_device && !machine.prices) return update_on_device(machine, update);
  if (undo != Undo::none) update.old = old_block(machine, chunk);
  HostCall call(cpuopt::to_string(step.by_rule[0].optimizer).data(), &run_chunk_update, update);
  if (machine.prices) call.paced(machine.prices->update_ns(chunk, on_device, undo));
  for (const ChunkPin& state : states)
    if (state) call.writes(state.view().data, state.view().bytes);
  if (gradient) call.reads(gradient.view().data, gradient.view().bytes);
  const BufferView log = undo == Undo::none ? BufferView{} : machine.undo(chunk);
  if (log.bytes > 0 && undo == Undo::keep) call.writes(log.data, log.bytes);
  if (log.bytes > 0 && undo != Undo::keep) call.reads(log.data, log.bytes);
  return machine.backend.host_call_async(call, stream);
}

Status accept_stored(Machine& machine, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads) STRATA_TRY(machine.chunks->commit({chunk, payload}));
  return Status::ok();
}

Status guard_stored(Machine& machine, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads)
    if (machine.plan.placement.home({chunk, payload}) == Tier::nvme)
      STRATA_TRY(machine.chunks->snapshot({chunk, payload}));
  return Status::ok();
}

void restore_stored(Machine& machine, ChunkId chunk) noexcept {
  for (const Payload payload : kPersistentPayloads) machine.chunks->rollback({chunk, payload});
}

Status send_states_home(Machine& machine, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads)
    if (machine.plan.layout.has(chunk, payload)) STRATA_TRY(machine.chunks->write_back({chunk, payload}));
  return Status::ok();
}

Result<bool> fetch_for_update(Machine& machine, ChunkId chunk, std::span<const Payload> payloads) {
  for (const Payload payload : payloads) {
    const PayloadKey key{chunk, payload};
    if (!machine.plan.layout.has(chunk, payload)) continue;
    if (machine.plan.placement.home(key) != Tier::nvme) continue;
    STRATA_TRY_ASSIGN(const bool begun, machine.chunks->prefetch(key, Tier::pinned));
    if (!begun) return false;
  }
  return true;
}

}  // namespace strata
