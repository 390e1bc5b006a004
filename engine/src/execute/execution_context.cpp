#include "execute/execution_context.h"

#include <algorithm>

#include <strata/offload/sim_store.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "execute/activation_store.h"

namespace strata {
namespace {

constexpr std::size_t kPage = 4096;

// Copies of a few MiB saturate the link if one is in flight while another is processed. A small model gets no
// more staging memory than one piece needs.
void lay_out_staging(const RunPlan& plan, PinnedLayout& pinned_layout) {
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
  pinned_layout.states = pinned_layout.state_slots * 2 *
                         round_up(static_cast<std::size_t>(pinned_layout.state_run) * sizeof(float), kPage);
}

}  // namespace

PinnedLayout plan_pinned_layout(const RunPlan& plan, std::int64_t n_partials) {
  PinnedLayout pinned_layout;
  std::size_t inputs = 0;
  std::int64_t logit_values = 1;
  for (const LoweredProgram* program : plan.programs()) {
    std::size_t bytes = 0;
    for (const LoweredProgram::Binding& end : program->bindings)
      if (end.is_input)
        bytes += static_cast<std::size_t>(end.operand.shape.n_elems()) * size_of(end.operand.dtype);
    inputs = std::max(inputs, bytes);
    pinned_layout.activations = std::max(pinned_layout.activations, program->offload.host_bytes);
    const Operand logits = program->find("logits");
    if (logits.location == Operand::Location::none) continue;
    logit_values =
        std::max(logit_values, program->state_bytes > 0 ? logits.shape.n_elems() : logits.shape.dim(-1));
  }
  pinned_layout.inputs = round_up(inputs, kPage);
  pinned_layout.losses =
      round_up(static_cast<std::size_t>(std::max(plan.options.grad_accum, 1)) * sizeof(float), kPage);
  pinned_layout.norm_partials = round_up(static_cast<std::size_t>(n_partials) * sizeof(double), kPage);
  pinned_layout.logits = round_up(static_cast<std::size_t>(logit_values) * sizeof(float), kPage);
  if (plan.trains() && plan.options.optimizer.optimizer == cpuopt::Optimizer::lamb)
    pinned_layout.norms = round_up(
        static_cast<std::size_t>(n_partials) * 2 * sizeof(double) + plan.tensors.specs.size() * sizeof(float),
        kPage);
  pinned_layout.undo = plan.undo.bytes;
  lay_out_staging(plan, pinned_layout);
  return pinned_layout;
}

std::size_t updated_state_bytes(const RunPlan& plan, ChunkId chunk, Tier tier) {
  std::size_t bytes = 0;
  for (const Payload payload : kPersistentPayloads)
    if (plan.placement.home({chunk, payload}) == tier) bytes += plan.layout.payload_bytes(chunk, payload);
  return bytes;
}

BufferView ExecutionContext::undo(ChunkId chunk) const {
  const std::size_t offset = pinned_layout.total() - pinned_layout.undo + *plan.undo.offset_of_chunk[chunk];
  return pinned_memory.part(offset, updated_state_bytes(plan, chunk, Tier::pinned));
}

ExecutionContext::ExecutionContext(const RunPlan& run_plan, const Engine::Environment& environment)
    : plan(run_plan),
      backend(environment.backend),
      pool(environment.pool),
      clock(environment.clock),
      trace(environment.trace),
      simulation(environment.simulated == nullptr ? nullptr : &environment.simulated->simulation),
      cost_model(environment.simulated == nullptr ? std::optional<CostModel>()
                                                  : CostModel(run_plan, environment.simulated->profile)),
      clipped(environment.simulated == nullptr ? 0 : environment.simulated->clipped),
      phases(environment.trace == nullptr ? nullptr : &environment.trace->add_track("engine")),
      tables(chunk_tables(run_plan.tensors, run_plan.layout)),
      pinned_layout(plan_pinned_layout(run_plan, tables.n_partials)),
      use_schedule(run_plan.layout.n_chunks()) {}

ExecutionContext::~ExecutionContext() {
  // Queued work may still use the memory freed below; its errors have nowhere to go.
  for (Stream* stream : {&compute, &h2d, &d2h, &cpu})
    if (stream->id() >= 0) (void)backend.synchronize(*stream);
  if (chunks) (void)chunks->write_backs().wait_all();
}

Result<std::unique_ptr<ExecutionContext>> ExecutionContext::create(const RunPlan& plan,
                                                                   const Engine::Environment& environment) {
  std::unique_ptr<ExecutionContext> context(new ExecutionContext(plan, environment));
  STRATA_TRY(context->allocate_memory(environment.io));
  return context;
}

// Called before the slabs are allocated, because measuring the store's paths takes memory for a while.
// Returns null if nothing lives on nvme.
Result<StorePtr<NvmeStore>> ExecutionContext::make_store(Io& io) {
  NvmeOptions options = plan.options.nvme;
  options.classes = nvme_slot_classes(plan.layout, plan.placement);
  for (const SlotClass& more : activation_classes(plan.train)) options.classes.push_back(more);
  options.trace = trace;
  if (options.classes.empty() || is_dataless()) return StorePtr<NvmeStore>();
  return NvmeStore::create(io, options);
}

Status ExecutionContext::allocate_memory(Io& io) {
  for (std::size_t t = 0; t < kTiers; ++t)
    budgets[t] =
        std::make_unique<Budget>(std::string(to_string(static_cast<Tier>(t))), plan.options.budgets[t]);
  STRATA_TRY_ASSIGN(compute, backend.create_stream(StreamRole::compute));
  STRATA_TRY_ASSIGN(h2d, backend.create_stream(StreamRole::h2d));
  STRATA_TRY_ASSIGN(d2h, backend.create_stream(StreamRole::d2h));
  STRATA_TRY_ASSIGN(cpu, backend.create_stream(StreamRole::cpu));

  const std::size_t state_bytes = plan.state_bytes();
  const std::size_t arena_bytes = plan.trace.device_fixed_bytes - state_bytes;
  STRATA_TRY_ASSIGN(fixed_reservations[0], budgets[0]->reserve(arena_bytes, "activations"));
  STRATA_TRY_ASSIGN(
      fixed_reservations[1],
      budgets[1]->reserve(pinned_layout.total(), "inputs, losses, norm partials and activations"));
  STRATA_TRY_ASSIGN(fixed_reservations[2], budgets[0]->reserve(state_bytes, "keys and values"));
  STRATA_TRY_ASSIGN(fixed_reservations[3], budgets[2]->reserve(plan.trace.nvme_fixed_bytes, "activations"));
  STRATA_TRY_ASSIGN(StorePtr<NvmeStore> files, make_store(io));
  const std::size_t device_slots = plan.placement.bytes(plan.layout, Tier::device);
  const std::size_t pinned_slots = plan.placement.bytes(plan.layout, Tier::pinned);
  STRATA_TRY_ASSIGN(device, backend.allocate(MemoryKind::device,
                                             std::max(arena_bytes + state_bytes + device_slots, kPage)));
  STRATA_TRY_ASSIGN(pinned, backend.allocate(MemoryKind::pinned, pinned_layout.total() + pinned_slots));
  arena_memory = device.view().part(0, arena_bytes);
  state_memory = device.view().part(arena_bytes, state_bytes);
  pinned_memory = pinned.view().part(0, pinned_layout.total());

  if (files != nullptr) {
    STRATA_TRY(files->register_memory(pinned.view()));
    store = std::move(files);
  }
  if (simulation != nullptr) store.reset(new SimStore(*simulation));
  mover = std::make_unique<TierMover>(backend, h2d, d2h, plan.layout, plan.placement, store.get());
  STRATA_TRY_ASSIGN(
      chunks, ChunkManager::create(plan.layout, plan.placement, use_schedule,
                                   {device.view().part(arena_bytes + state_bytes, device_slots),
                                    pinned.view().part(pinned_layout.total(), pinned_slots)},
                                   backend, *mover, {budgets[0].get(), budgets[1].get(), budgets[2].get()}));
  return Status::ok();
}

}  // namespace strata
