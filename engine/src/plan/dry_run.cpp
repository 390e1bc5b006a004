#include <algorithm>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/offload/placement_planner.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/backend/null_backend.h>

#include "execute/empty_steps.h"
#include "execute/sequences/kv_cache_tracker.h"
#include "plan/planning.h"

// A plan is proven by running its engine for a few steps over a backend that moves nothing.

namespace strata {
namespace {

// Extends sequences by a prompt, and then by single tokens.
Status dry_run_sequences(Engine& engine, const RunPlan& plan) {
  const std::vector<std::int32_t> wanted = {0};
  for (const ProgramRole role : {ProgramRole::prefill, ProgramRole::decode, ProgramRole::decode}) {
    const std::vector<SequenceToken> tokens = detail::KvCacheTracker(plan).fill(plan.of(role));
    STRATA_TRY(engine.extend(tokens, wanted).status());
  }
  return Status::ok();
}

// Computes new values of parameters, and changes any of them.
Status dry_run_refresh(Engine& engine, const RunPlan& plan) {
  detail::EmptyBatchSource batches;
  STRATA_TRY(engine.refresh(batches, [](const StatePiece&, std::span<const float>) { return Status::ok(); }));
  std::vector<std::string> names;
  for (const LayoutTensor& tensor : plan.tensors.specs) names.push_back(tensor.name);
  return engine.edit_params(names, [](const StatePiece&, std::span<float>) { return Status::ok(); });
}

// Evaluations, and passes whose outputs the caller gets.
Status dry_run_forward(Engine& engine, const RunPlan& plan) {
  detail::EmptyBatchSource batches;
  for (const PlannedProgram& planned : plan.programs) {
    if (planned.role == ProgramRole::eval) STRATA_TRY(engine.evaluate(batches, 2, planned.name).status());
    if (planned.role == ProgramRole::forward) STRATA_TRY(engine.forward(planned.name, batches, 0));
  }
  return {};
}

// Goes through every phase of a run.
Status dry_run(Engine& engine, const RunPlan& plan) {
  StepReport report;
  const FillState keep = [](const StatePiece&, std::span<float>) { return Status::ok(); };
  STRATA_TRY(engine.initialize(0));
  for (int step = 0; step < 4; ++step) {
    STRATA_TRY(detail::run_empty_steps(engine, report));
    STRATA_TRY(engine.edit_params(keep));
    if (step == 1) STRATA_TRY(dry_run_forward(engine, plan));
    if (step == 1 && !plan.of(ProgramRole::refresh).empty()) STRATA_TRY(dry_run_refresh(engine, plan));
    if (const LoweredProgram& infer = plan.of(ProgramRole::infer); step == 2 && !infer.empty()) {
      const std::vector<std::int32_t> tokens(static_cast<std::size_t>(infer.find("tokens").shape.n_elems()));
      STRATA_TRY(engine.infer(tokens, 0).status());
    }
    if (step > 1 && !plan.of(ProgramRole::decode).empty()) STRATA_TRY(dry_run_sequences(engine, plan));
  }
  for (const Payload payload : plan.states())
    STRATA_TRY(engine.visit(payload, [](const StatePiece&, std::span<const float>) { return Status::ok(); }));
  return detail::run_empty_steps(engine, report);
}

// Windows were sized to fill the budgets. Slots that were never used at once in the dry run are dropped;
// without them every decision stays the same. As many slots as chunks are prefetched are kept beyond those in
// use, because copies take no time in a dry run: in the real run a slot that is reused at once has to wait
// for the copy out of it. In pinned memory they are for payloads on their way to or from nvme; what else
// passes there is a gradient that the CPU is about to read, and more slots would cost RAM without a faster
// step.
Placement with_used_windows(const ChunkManager& dry_run_chunks, const RunPlan& plan) {
  Placement used = plan.placement, minimal = plan.placement;
  set_minimum_windows(plan.layout, plan.trace, minimal);
  const std::vector<std::uint32_t> stored = plan.placement.home_counts(plan.layout, Tier::nvme);
  for (const Tier tier : {Tier::device, Tier::pinned}) {
    const auto t = static_cast<std::size_t>(tier);
    const std::vector<std::uint32_t> homes = plan.placement.home_counts(plan.layout, tier);
    for (std::uint32_t c = 0; c < homes.size(); ++c) {
      const auto passing = static_cast<std::uint32_t>(dry_run_chunks.slots().peak_used(tier, c)) - homes[c];
      std::uint32_t& window = used.classes[c].window[t];
      const bool has_spare = tier == Tier::device || stored[c] > 0;
      const std::uint32_t spare = has_spare ? *plan.options.prefetch : 0;
      window = std::min(window, std::max(passing + spare, minimal.classes[c].window[t]));
    }
  }
  return used;
}

}  // namespace

Result<std::unique_ptr<const RunPlan>> Engine::plan(const ProgramSet& programs,
                                                    const SessionOptions& options) {
  STRATA_TRY_ASSIGN(Choice choice, plan_first_fit(std::span(&programs, 1), options));
  return std::move(choice.plan);
}

Result<Engine::Choice> Engine::plan_first_fit(std::span<const ProgramSet> choices,
                                              const SessionOptions& options, bool explains) {
  STRATA_ASSERT(!choices.empty(), "there is no program to plan");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    auto plan = plan_with(choices[i], options, nullptr);
    if (plan.has_value()) return Choice{i, *std::move(plan)};
    if (plan.status().code() != Code::does_not_fit) return plan.status();
  }
  if (!explains) return Status::error(Code::does_not_fit, "the run does not fit its budgets");
  return detail::explain_refusal(choices, options);
}

Result<std::unique_ptr<const RunPlan>> Engine::plan_with(
    const ProgramSet& programs, const SessionOptions& options,
    const std::function<void(const ChunkLayout&, Placement&)>& choose) {
  STRATA_TRY_ASSIGN(std::unique_ptr<RunPlan> plan, detail::draft_plan(programs, options, choose));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Backend> null, create_null_backend());
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(1));
  SteadyClock clock;
  // It must hold for steps that clip and that do not, and for both choices of mode `auto`.
  const Dataless nothing{.steps = {.clipped = 1.0 / 3, .alternates = true}};
  const Environment environment{
      .backend = *null, .pool = *pool, .clock = clock, .io = posix_io(), .dataless = &nothing};
  STRATA_TRY_ASSIGN(std::unique_ptr<Engine> engine, create(*plan, environment));
  STRATA_TRY(dry_run(*engine, *plan).annotate("planning"));
  Placement used = with_used_windows(engine->context().chunks(), *plan);
  engine.reset();  // it refers to the placement
  plan->placement = std::move(used);
  STRATA_TRY_ASSIGN(engine, create(*plan, environment));
  plan->planned_peak = engine->peak_bytes();
  return std::unique_ptr<const RunPlan>(std::move(plan));
}

}  // namespace strata
