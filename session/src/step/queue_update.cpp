#include "step/queue_update.h"

#include <algorithm>
#include <array>
#include <span>

#include "step/device_work.h"

#include "plan/chunk_tables.h"

namespace strata::detail {
namespace {

// The chunk's states at `data`, in the order of kPersistentPayloads; null where there is none.
cpuopt::UpdateBlock block_of(const GroupKey& group, std::int64_t n,
                             const std::array<std::byte*, kPersistentPayloads.size()>& data) {
  return {.layout = cpuopt::master_layout(group.compute),
          .states = group.format,
          .grad = group.accum,
          .param = data[0],
          .master = data[1],
          .m = cpuopt::moment_at(group.format, data[2], n),
          .v = cpuopt::moment_at(group.format, data[3], n),
          .ema = reinterpret_cast<float*>(data[4])};
}

bool is_logged(const StateContext& context, PayloadKey key) {
  return context.plan().placement.home(key) == Tier::pinned;
}

// The undo log of a chunk holds its payloads that live in RAM, one after the other.
cpuopt::UpdateBlock logged_block(const StateContext& context, ChunkId chunk) {
  std::array<std::byte*, kPersistentPayloads.size()> data{};
  std::byte* at = context.undo(chunk).data;
  for (std::size_t i = 0; i < kPersistentPayloads.size(); ++i) {
    if (!is_logged(context, {chunk, kPersistentPayloads[i]})) continue;
    data[i] = at;
    at += context.plan().layout.payload_bytes(chunk, kPersistentPayloads[i]);
  }
  return block_of(context.plan().layout.group_of(chunk),
                  context.plan().layout.range(chunk, Payload::param).size(), data);
}

// The partials of a chunk are contiguous, so that ranks exchange them at once.
TensorNorms tensor_norms(const StateContext& context, ChunkId chunk) {
  std::byte* const memory = context.tensor_norms();
  if (memory == nullptr) return {};
  const ChunkTables& tables = context.tables();
  const std::int64_t before = tables.before_chunk[chunk], n = tables.before_chunk[chunk + 1] - before;
  auto* const partials = reinterpret_cast<double*>(memory) + 2 * before;
  auto* const trust = reinterpret_cast<float*>(reinterpret_cast<double*>(memory) + 2 * tables.n_partials);
  return {partials, partials + n, n, tables.first_in_chunk.data(), trust};
}

// The ranks that hold the shards of a chunk add up the norm partials of its tensors.
Status exchange_norm_partials(StateContext& context, const TensorNorms& norms, Stream& stream) {
  Backend& backend = context.backend();
  Stream& collective = context.streams().collective;
  STRATA_TRY_ASSIGN(const Event written, backend.record(stream));
  STRATA_TRY(backend.wait_on_async(written, collective));
  const BufferView all{reinterpret_cast<std::byte*>(norms.master_partials),
                       2 * static_cast<std::size_t>(norms.n) * sizeof(double)};
  STRATA_TRY(context.groups()->shards().all_reduce(all, DType::f64, Reduction::sum, collective));
  STRATA_TRY_ASSIGN(const Event added, backend.record(collective));
  return backend.wait_on_async(added, stream);
}

// Declares the memory that an update reads and writes. `log`: the chunk's part of the undo log, if it is
// used.
void declare_memory(HostCall& call, const ChunkPin& gradient, std::span<const ChunkPin> states,
                    const BufferView& log, UndoAction undo) {
  for (const ChunkPin& state : states)
    if (state) call.writes(state.view().data, state.view().bytes);
  if (gradient) call.reads(gradient.view().data, gradient.view().bytes);
  if (log.bytes > 0 && undo == UndoAction::save) call.writes(log.data, log.bytes);
  if (log.bytes > 0 && undo != UndoAction::save) call.reads(log.data, log.bytes);
}

bool needs_accumulated(const ChunkLayout& layout, ChunkId chunk, const TrainerTensor* of_trainer) {
  if (of_trainer == nullptr) return true;
  const std::vector<Slice>& slices = layout.chunk(chunk).slices;
  return std::any_of(slices.begin(), slices.end(), [&](const Slice& slice) {
    return of_trainer[slice.tensor].is_updated && of_trainer[slice.tensor].grad == nullptr;
  });
}

}  // namespace

Status set_constants(const StateContext& context, const cpuopt::OptimizerParams& params,
                     StepConstants& constants) {
  STRATA_TRY(cpuopt::validate(params));
  for (std::size_t rule = 0; rule < context.plan().rules.size(); ++rule) {
    cpuopt::OptimizerParams own = params;
    own.lr *= context.plan().rules[rule].lr_scale;
    own.weight_decay = context.plan().rules[rule].weight_decay;
    constants.by_rule[rule] = cpuopt::make_update_step(own);
  }
  constants.rounding_seed = context.plan().options.rounding_seed;
  constants.step = params.step;
  return {};
}

Status queue_update(StateContext& context, ChunkId chunk, const StepConstants& step, UndoAction undo,
                    const TrainerTensor* of_trainer) {
  ChunkManager& chunks = context.chunks();
  const ChunkLayout& layout = context.plan().layout;
  // The planner places a chunk's param, master and moments on the device together or not at all.
  const bool on_device = context.plan().placement.home({chunk, Payload::param}) == Tier::device;
  const Tier tier = on_device ? Tier::device : Tier::pinned;
  Stream& stream = on_device ? context.streams().compute : context.streams().cpu;
  // A pin moves its payload to `tier` if it is elsewhere.
  ChunkPin gradient;
  if (undo != UndoAction::rollback && needs_accumulated(layout, chunk, of_trainer)) {
    STRATA_TRY_ASSIGN(gradient, chunks.pin({chunk, Payload::accum}, tier, Intent::read, stream));
  }
  std::array<ChunkPin, kPersistentPayloads.size()> states;
  std::array<std::byte*, kPersistentPayloads.size()> data{};
  for (std::size_t i = 0; i < kPersistentPayloads.size(); ++i) {
    const PayloadKey key{chunk, kPersistentPayloads[i]};
    if (!layout.has(chunk, key.payload) || (undo == UndoAction::rollback && !is_logged(context, key)))
      continue;
    STRATA_TRY_ASSIGN(states[i], chunks.pin(key, tier, Intent::update, stream));
    data[i] = states[i].view().data;
  }
  const ElemRange held = layout.range(chunk, Payload::param);
  ChunkUpdate update = {.chunk = block_of(layout.group_of(chunk), held.size(), data),
                        .old = {},
                        .blocks = context.tables().blocks[chunk],
                        .step = &step,
                        .plan = &context.plan(),
                        .norms = tensor_norms(context, chunk),
                        .undo = undo,
                        .of_trainer = of_trainer};
  if (gradient)
    update.chunk.g = gradient.view().data +
                     static_cast<std::size_t>(held.begin - layout.range(chunk, Payload::accum).begin) *
                         size_of(layout.group_of(chunk).accum);
  const bool exchanges = exchanges_norms(context.plan().options);
  const bool on_gpu = on_device && context.costs() == nullptr;
  if (on_gpu && !exchanges) return queue_device_update(context, update);
  if (undo != UndoAction::none) update.old = logged_block(context, chunk);
  const auto queue = [&](void (*work)(const ChunkUpdate&, ThreadPool&), std::int64_t ns) {
    HostCall call(cpuopt::to_string(context.plan().options.optimizer.optimizer).data(), work, update);
    if (context.costs() != nullptr) call.paced(std::max<std::int64_t>(1, ns));
    declare_memory(call, gradient, states, undo == UndoAction::none ? BufferView{} : context.undo(chunk),
                   undo);
    return context.backend().host_call_async(call, stream);
  };
  const std::int64_t ns = context.costs() == nullptr ? 0 : context.costs()->update_ns(chunk, on_device, undo);
  if (!exchanges) return queue(&run_chunk_update, ns);
  STRATA_TRY(on_gpu ? queue_device_lamb_moments(context, update) : queue(&run_lamb_moments, ns));
  STRATA_TRY(exchange_norm_partials(context, update.norms, stream));
  return on_gpu ? queue_device_lamb_apply(context, update) : queue(&run_lamb_apply, 0);
}

Status queue_ema_start(StateContext& context, ChunkId chunk) {
  const ChunkLayout& layout = context.plan().layout;
  const bool on_device = context.plan().placement.home({chunk, Payload::param}) == Tier::device;
  Stream& stream = on_device ? context.streams().compute : context.streams().cpu;
  std::array<ChunkPin, kPersistentPayloads.size()> states;
  std::array<std::byte*, kPersistentPayloads.size()> data{};
  for (std::size_t i = 0; i < kPersistentPayloads.size(); ++i) {
    const Payload payload = kPersistentPayloads[i];
    if (!layout.has(chunk, payload) || payload == Payload::m || payload == Payload::v) continue;
    const Intent intent = payload == Payload::ema ? Intent::overwrite : Intent::read;
    STRATA_TRY_ASSIGN(
        states[i],
        context.chunks().pin({chunk, payload}, on_device ? Tier::device : Tier::pinned, intent, stream));
    data[i] = states[i].view().data;
  }
  const ChunkUpdate update = {
      .chunk = block_of(layout.group_of(chunk), layout.range(chunk, Payload::param).size(), data),
      .old = {},
      .blocks = context.tables().blocks[chunk],
      .plan = &context.plan(),
      .norms = {}};
  if (!context.has_data()) return {};
  if (on_device) return queue_device_ema(context, update);
  HostCall call("ema start", &run_ema_start, update);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!states[i]) continue;
    const BufferView view = states[i].view();
    if (kPersistentPayloads[i] == Payload::ema)
      call.writes(view.data, view.bytes);
    else
      call.reads(view.data, view.bytes);
  }
  return context.backend().host_call_async(call, stream);
}

Status commit_stored_states(StateContext& context, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads) STRATA_TRY(context.chunks().commit({chunk, payload}));
  return Status::ok();
}

Status snapshot_stored_states(StateContext& context, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads)
    if (context.plan().placement.home({chunk, payload}) == Tier::nvme)
      STRATA_TRY(context.chunks().snapshot({chunk, payload}));
  return Status::ok();
}

void rollback_stored_states(StateContext& context, ChunkId chunk) noexcept {
  for (const Payload payload : kPersistentPayloads) context.chunks().rollback({chunk, payload});
}

Status write_back_states(StateContext& context, ChunkId chunk) {
  for (const Payload payload : kPersistentPayloads)
    if (context.plan().layout.has(chunk, payload)) STRATA_TRY(context.chunks().write_back({chunk, payload}));
  return Status::ok();
}

Result<bool> prefetch_for_update(StateContext& context, ChunkId chunk, std::span<const Payload> payloads) {
  for (const Payload payload : payloads) {
    const PayloadKey key{chunk, payload};
    if (!context.plan().layout.has(chunk, payload)) continue;
    if (context.plan().placement.home(key) != Tier::nvme) continue;
    STRATA_TRY_ASSIGN(const bool begun, context.chunks().prefetch(key, Tier::pinned));
    if (!begun) return false;
  }
  return true;
}

}  // namespace strata::detail
