#pragma once

#include <array>
#include <memory>

#include <strata/chunk/chunk_manager.h>
#include <strata/engine/engine.h>
#include <strata/offload/tier_mover.h>
#include <strata/runtime/memory/budget.h>

#include "plan/chunk_tables.h"
#include "step/chunk_update.h"
#include "plan/cost_model.h"

namespace strata {

/// What an engine holds in pinned memory apart from payloads. Sizes are in bytes, multiples of a page.
struct PinnedLayout {
  std::size_t inputs = 0;  ///< size of one of two input slots, which hold the inputs one after the other
  std::size_t losses = 0;  ///< one f32 per micro-batch
  std::size_t norm_partials = 0;  ///< f64 partials of the gradient norm
  std::size_t logits = 0;         ///< one row, or the maximum that a program with a KV cache computes
  std::size_t activations = 0;    ///< offloaded from the device
  std::size_t states = 0;         ///< staging memory of StateAccess: slots of two parts each
  std::size_t state_slots = 1;    ///< number of these slots
  std::int64_t state_run = 0;     ///< elements that fit into one part of a slot
  std::size_t norms = 0;          ///< TensorNorms, for an optimizer that needs norms of whole tensors
  std::size_t undo = 0;           ///< UndoLog; comes last
  std::size_t total() const noexcept {
    return 2 * inputs + losses + norm_partials + logits + activations + states + norms + undo;
  }
};
/// Maximum elements of a piece in which states are visited and filled.
inline constexpr std::int64_t kMaxStatePieceElems = 65536;
PinnedLayout plan_pinned_layout(const RunPlan& plan, std::int64_t n_partials);
/// Bytes of the states of `chunk` that an update changes and that live in `tier`.
std::size_t updated_state_bytes(const RunPlan& plan, ChunkId chunk, Tier tier);

/// Memory, streams and movers of one run, allocated once at its start. Members are declared so that the users
/// of memory are destroyed before the memory.
class ExecutionContext {
 public:
  static Result<std::unique_ptr<ExecutionContext>> create(const RunPlan& plan,
                                                          const Engine::Environment& environment);
  ~ExecutionContext();

  /// Whether it runs over the null backend or a simulation: decisions are made, but no data exist.
  bool is_dataless() const noexcept { return backend.info().kind == DeviceKind::null; }
  /// Whether it is the dry run of a plan, which must hold for everything that may happen.
  bool is_dry_run() const noexcept { return is_dataless() && simulation == nullptr; }
  std::byte* arena(const Operand& operand) const noexcept { return arena_memory.data + operand.offset; }
  std::byte* state(const Operand& operand) const noexcept { return state_memory.data + operand.offset; }
  std::int32_t* input_slot(std::size_t slot) const noexcept {
    return reinterpret_cast<std::int32_t*>(pinned_memory.data + slot * pinned_layout.inputs);
  }
  /// Adds a phase of the step that has just ended to the trace.
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
  /// Address of an operand that is offloaded to the host.
  std::byte* host(const Operand& operand) const noexcept {
    return reinterpret_cast<std::byte*>(logits()) + pinned_layout.logits + operand.offset;
  }
  /// Address of a part of a slot of PinnedLayout::states.
  std::byte* state_staging(std::size_t slot, std::size_t part) const noexcept {
    return pinned_memory.data + pinned_layout.total() - pinned_layout.undo - pinned_layout.norms -
           pinned_layout.states + (2 * slot + part) * (pinned_layout.states / pinned_layout.state_slots / 2);
  }
  /// The part of the undo log of a chunk that it covers.
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
  Simulation* const simulation;               ///< null unless the run is simulated
  const std::optional<CostModel> cost_model;  ///< set if the run is simulated
  const double clipped;                       ///< fraction of steps to clip, if the run is simulated
  Trace::Track* const phases;                 ///< null if nothing is traced
  ChunkTables tables;
  PinnedLayout pinned_layout;
  std::array<std::unique_ptr<Budget>, kTiers> budgets;
  std::array<Reservation, 4> fixed_reservations;
  Buffer device, pinned;
  BufferView arena_memory, state_memory, pinned_memory;
  Stream compute, h2d, d2h, cpu;
  StorePtr<ObjectStore> store;
  std::unique_ptr<TierMover> mover;
  UseSchedule use_schedule;  ///< of the program that runs; the chunk manager asks it
  std::unique_ptr<ChunkManager> chunks;

 private:
  ExecutionContext(const RunPlan& run_plan, const Engine::Environment& environment);
  Result<StorePtr<NvmeStore>> make_store(Io& io);
  Status allocate_memory(Io& io);
};

}  // namespace strata
