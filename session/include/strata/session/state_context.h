#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>

#include <strata/chunk/chunk_manager.h>
#include <strata/offload/tier_mover.h>
#include <strata/parallel/simulated_group.h>
#include <strata/parallel/world.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/trace/trace.h>
#include <strata/session/ranks/model_groups.h>
#include <strata/session/pinned_layout.h>
#include <strata/session/ranks/rank_groups.h>
#include <strata/session/run_memory.h>
#include <strata/session/state_costs.h>
#include <strata/session/state_plan.h>

namespace strata {

namespace detail {
struct ChunkTables;
}

/// The environment that a session runs in. Everything outlives the session, except `costs`, which is used
/// only while work is queued.
struct SessionEnvironment {
  Backend& backend;
  ThreadPool& pool;
  Clock& clock;
  OpenStore open_store = {};       ///< may be missing if nothing lives on nvme, or without data
  Trace* trace = nullptr;          ///< receives the tracks of the store and one of the phases of steps
  TierBudgets* budgets = nullptr;  ///< shared with others; null: the session has its own, as planned
  World* world = nullptr;          ///< the ranks of the run; null if there is one, or without data
  /// For a simulated run: what work on states costs. All work is then host calls of that duration.
  const StateCosts* costs = nullptr;
  std::optional<SyntheticSteps> synthetic = std::nullopt;  ///< set if the backend has no data
  /// The ranks that are simulated together with this one; null: there are none.
  const SimulatedPeers* peers = nullptr;
  /// How long collectives of several ranks take in a simulated run, or take at least on a backend that paces
  /// compute.
  NetworkRates network = {};
};

/// The streams that a session's work is queued on; `collective` only exists if there are several ranks.
struct SessionStreams {
  Stream compute, h2d, d2h, cpu, collective;
  std::array<Stream*, 5> all() noexcept { return {&compute, &h2d, &d2h, &cpu, &collective}; }
  /// The streams that compute gradients, their sums and norm partials.
  std::array<Stream*, 3> of_gradients() noexcept { return {&compute, &cpu, &collective}; }
};

/// The memory, streams and movers of one session, created together. As long as it exists, its memory has the
/// planned size, its chunks are where the chunk manager says, and nothing that it queued outlives it: the
/// destructor waits for the streams and for pending write-backs.
class StateContext {
 public:
  static Result<std::unique_ptr<StateContext>> create(const StatePlan& plan,
                                                      const SessionEnvironment& environment);
  ~StateContext();

  const StatePlan& plan() const noexcept { return plan_; }
  Backend& backend() const noexcept { return environment_.backend; }
  ThreadPool& pool() const noexcept { return environment_.pool; }
  Clock& clock() const noexcept { return environment_.clock; }
  SessionStreams& streams() noexcept { return streams_; }
  ChunkManager& chunks() noexcept { return *chunks_; }
  /// The accesses of the passes that run; the chunk manager asks it what is needed when.
  UseSchedule& use_schedule() noexcept { return use_schedule_; }
  const RunMemory& memory() const noexcept { return *memory_; }
  /// Where a trainer keeps its parameters (GroupKey::of_trainer), by tensor; empty if that is not known.
  std::span<std::byte* const> trainer_params() const noexcept { return trainer_params_; }
  void set_trainer_params(std::vector<std::byte*> params) { trainer_params_ = std::move(params); }
  World* world() const noexcept { return environment_.world; }  ///< null if there is one rank
  RankProgress* progress() const noexcept {                     ///< null if there is one rank
    return environment_.world == nullptr ? nullptr : &environment_.world->progress();
  }
  /// The groups of DataParallel; null if there is one rank of it.
  RankGroups* groups() noexcept { return groups_ ? &*groups_ : nullptr; }
  /// Null if no ranks share a copy of the model.
  ModelGroups* model_groups() noexcept { return model_groups_ ? &*model_groups_ : nullptr; }
  const TierBudgets& budgets() const noexcept { return *budgets_; }
  ObjectStore* store() const noexcept { return memory_->store(); }

  /// Whether memory has contents. If not (a dry run, a simulation), decisions are made, but no data exist.
  bool has_data() const noexcept { return environment_.backend.info().kind != DeviceKind::null; }
  /// The values at `data`, or none of them without data.
  template <class T>
  std::span<T> host_values(T* data, std::size_t n) const noexcept {
    return has_data() ? std::span<T>(data, n) : std::span<T>();
  }
  const StateCosts* costs() const noexcept { return environment_.costs; }
  const std::optional<SyntheticSteps>& synthetic() const noexcept { return environment_.synthetic; }

  const detail::ChunkTables& tables() const noexcept { return *tables_; }
  const PinnedLayout& pinned_layout() const noexcept { return pinned_layout_; }
  double* norm_partials() const noexcept { return reinterpret_cast<double*>(memory_->session_pinned().data); }
  /// The losses and flags of a step, which follow the norm partials; none if there is one rank.
  std::span<double> step_values() const noexcept;
  /// The values that the ranks that share a copy of the model exchange, which follow; none if there are no
  /// such ranks.
  std::span<double> model_values() const noexcept;
  /// Address of a part of a slot of PinnedLayout::states.
  std::byte* state_staging(std::size_t slot, std::size_t part) const noexcept {
    return memory_->session_pinned().data + pinned_layout_.norm_partials +
           (2 * slot + part) * (pinned_layout_.states / pinned_layout_.state_slots / 2);
  }
  /// PinnedLayout::norms; null if the optimizer needs none.
  std::byte* tensor_norms() const noexcept {
    return pinned_layout_.norms == 0
               ? nullptr
               : memory_->session_pinned().data + pinned_layout_.norm_partials + pinned_layout_.states;
  }
  /// The part of the undo log of a chunk that it covers.
  BufferView undo(ChunkId chunk) const;
  /// Adds a phase of the step that has just ended to the trace.
  void end_phase(const char* label, std::int64_t arg, std::int64_t begin_ns) const noexcept {
    if (phases_ != nullptr) phases_->span(label, arg, begin_ns, clock().now_ns());
  }

 private:
  StateContext(const StatePlan& plan, const SessionEnvironment& environment);
  Status allocate();    ///< allocates what this rank needs for itself
  Status join_ranks();  ///< creates what it shares with all ranks

  const StatePlan& plan_;
  const SessionEnvironment environment_;
  Trace::Track* const phases_;  // null if nothing is traced
  const std::unique_ptr<const detail::ChunkTables> tables_;
  const PinnedLayout pinned_layout_;
  // Users of memory are declared after it, so that they are destroyed first.
  std::optional<TierBudgets> own_budgets_;
  TierBudgets* budgets_;
  std::unique_ptr<RunMemory> memory_;
  SessionStreams streams_;
  std::unique_ptr<ProcessGroup> world_group_;
  std::optional<ModelGroups> model_groups_;
  std::optional<RankGroups> groups_;
  std::unique_ptr<TierMover> mover_;
  UseSchedule use_schedule_;
  std::unique_ptr<ChunkManager> chunks_;
  std::vector<std::byte*> trainer_params_;
};

}  // namespace strata
