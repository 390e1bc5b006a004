#pragma once

#include <array>
#include <memory>

#include <strata/chunk/chunk_manager.h>
#include <strata/engine/engine.h>
#include <strata/offload/tier_mover.h>
#include <strata/runtime/budget.h>

#include "chunk_tables.h"
#include "chunk_update.h"
#include "cost_model.h"

namespace strata {

/// What every engine holds in pinned memory beside payloads. Sizes in bytes, each a multiple of a page.
struct PinnedLayout {
  std::size_t inputs = 0;         ///< one of two input slots, in which the inputs follow each other
  std::size_t losses = 0;         ///< one f32 a micro-batch
  std::size_t norm_partials = 0;  ///< the norm's partials, f64
  std::size_t logits = 0;         ///< one row, or as many as a program with a cache makes
  std::size_t activations = 0;    ///< those that are away from the device
  std::size_t states = 0;         ///< staging memory of StateAccess: slots of two parts each
  std::size_t state_slots = 1;    ///< of it
  std::int64_t state_run = 0;     ///< elements that a part of a slot has room for
  std::size_t norms = 0;          ///< of an optimizer that steps by whole tensors: TensorNorms
  std::size_t undo = 0;           ///< UndoLog, last
  std::size_t total() const noexcept {
    return 2 * inputs + losses + norm_partials + logits + activations + states + norms + undo;
  }
};
/// States are shown and filled in pieces of so many elements at most.
inline constexpr std::int64_t kMaxStatePieceElems = 65536;
PinnedLayout plan_pinned_layout(const RunPlan& plan, std::int64_t n_partials);
/// Of the states of `chunk` that an update changes, the bytes that live in `tier`.
std::size_t updated_state_bytes(const RunPlan& plan, ChunkId chunk, Tier tier);

/// The memory, streams and movers of one run, taken once at the start. Members are declared so that what uses
/// memory goes before the memory.
class ExecutionContext {
 public:
  static Result<std::unique_ptr<ExecutionContext>> create(const RunPlan& plan,
                                                          const Engine::Environment& environment);
  ~ExecutionContext();

  /// Over the null backend or a simulation: decisions are made, contents do not exist.
  bool is_dataless() const noexcept { return backend.info().kind == DeviceKind::null; }
  /// Over the null backend: a plan, which holds for whatever may happen.
  bool is_dry_run() const noexcept { return is_dataless() && simulation == nullptr; }
  std::byte* arena(const Operand& operand) const noexcept { return arena_memory.data + operand.offset; }
  std::byte* state(const Operand& operand) const noexcept { return state_memory.data + operand.offset; }
  std::int32_t* input_slot(std::size_t slot) const noexcept {
    return reinterpret_cast<std::int32_t*>(pinned_memory.data + slot * pinned_layout.inputs);
  }
  /// A phase of the step has ended: it goes to the trace.
  void end_phase(const char* label, std::int64_t arg, std::int64_t begin_ns) const noexcept {
    if (phases != nullptr) phases->span(label, arg, begin_ns, clock.now_ns());
  }
  float* losses() const noexcept {
    return reinterpret_cast<float*>(pinned_memory.data + 2 * pinned_layout.inputs);
  }
  double* norm_partials() const noexcept {
    return reinterpret_cast<double*>(pinned_memory.data + 2 * pinned_layout.inputs + pinned_layout.losses);
  }
  float* logits() const noexcept {
    return reinterpret_cast<float*>(pinned_memory.data + 2 * pinned_layout.inputs + pinned_layout.losses +
                                    pinned_layout.norm_partials);
  }
  /// Of an operand that is away on the host.
  std::byte* host(const Operand& operand) const noexcept {
    return reinterpret_cast<std::byte*>(logits()) + pinned_layout.logits + operand.offset;
  }
  /// A part of a slot of PinnedLayout::states.
  std::byte* state_staging(std::size_t slot, std::size_t part) const noexcept {
    return pinned_memory.data + pinned_layout.total() - pinned_layout.undo - pinned_layout.norms -
           pinned_layout.states + (2 * slot + part) * (pinned_layout.states / pinned_layout.state_slots / 2);
  }
  /// A chunk's part of the undo log, which covers it.
  BufferView undo(ChunkId chunk) const;
  TensorNorms tensor_norms() const noexcept {
    if (pinned_layout.norms == 0) return {};
    auto* const partials = reinterpret_cast<double*>(pinned_memory.data + pinned_layout.total() -
                                                     pinned_layout.undo - pinned_layout.norms);
    return {partials, partials + tables.n_partials,
            reinterpret_cast<float*>(partials + 2 * tables.n_partials)};
  }

  const RunPlan& plan;
  Backend& backend;
  ThreadPool& pool;
  Clock& clock;
  Trace* const trace;
  Simulation* const simulation;               ///< null but where the run is simulated
  const std::optional<CostModel> cost_model;  ///< of a run that is simulated
  const double clipped;                       ///< of a run that is simulated: share of its steps
  Trace::Track* const phases;                 ///< null where nothing is traced
  ChunkTables tables;
  PinnedLayout pinned_layout;
  std::array<std::unique_ptr<Budget>, kTiers> budgets;
  std::array<Reservation, 4> fixed_reservations;
  Buffer device, pinned;
  BufferView arena_memory, state_memory, pinned_memory;
  Stream compute, h2d, d2h, cpu;
  std::unique_ptr<ObjectStore> store;
  std::unique_ptr<TierMover> mover;
  std::unique_ptr<ChunkManager> chunks;

 private:
  ExecutionContext(const RunPlan& run_plan, const Engine::Environment& environment);
  Result<std::unique_ptr<NvmeStore>> make_store(Io& io);
  Status allocate_memory(Io& io);
};

}  // namespace strata
