// Steps of a decoder whose layers are the stages of a pipeline, on ranks that are threads of this process,
// with paced compute and network: only copies, the optimizer and gradient sums use cores. Prints the seconds
// of each step, what its schedule and its simulation say, and what each rank computed as JSON; the claims
// `pipeline_bubble` and `forecast_ranks` compare them.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/engine/engine.h>
#include <strata/engine/forecast_ranks.h>
#include <strata/graph/pipeline.h>
#include <strata/runtime/backend/host_backend.h>

#include "overlap_program.h"

namespace strata::bench {
namespace {

struct BenchOptions {
  std::string schedule = "1f1b";
  std::int32_t ranks = 2, virtual_stages = 1, micro_batches = 4;  // all are numbers of one copy of the model
  std::int32_t copies = 1, zero = 2;
  double bytes_per_s = 0, latency_s = 0;  // the rate at which a rank sends; 0: as fast as memory
  std::int64_t layers = 0;                // the layers of the model: as many as stages
  std::int64_t hidden = 512, vocab = 16, seq = 16;
  int steps = 3, warmup = 1, threads = 1;
  double compute_s = 1;  // the computation of each rank in a step
};

/// A pipeline, and when its tasks run if messages take no time.
struct Pipeline {
  Program whole;
  PipelineSchedule schedule;
  std::vector<std::int32_t> stages;
  double flops_per_s = 0;
  PipelineTiming timing;  // in microseconds
};
Result<Pipeline> pipeline_of(const BenchOptions& c) {
  Pipeline made;
  STRATA_TRY_ASSIGN(made.whole, record_training(c));
  STRATA_TRY_ASSIGN(made.schedule,
                    make_pipeline_schedule(c.schedule, c.ranks, c.micro_batches, c.virtual_stages));
  const std::vector<double> costs = region_flops(made.whole);
  STRATA_TRY_ASSIGN(made.stages, balance_stages(costs, made.schedule.stages()));
  made.flops_per_s =
      std::accumulate(costs.begin(), costs.end(), 0.0) * c.micro_batches / c.ranks / c.compute_s;
  made.timing = time_pipeline(
      made.schedule, stage_ticks(made.whole, made.stages, made.schedule.stages(), made.flops_per_s * 1e-6));
  return made;
}

using Plans = std::vector<std::unique_ptr<const RunPlan>>;
Result<Plans> plan(const BenchOptions& c, const Pipeline& of) {
  SessionOptions options;
  options.step_mode = StepMode::two_phase;
  options.clip = 1e30;  // gradients are not computed, so their norm is that of uninitialized memory
  options.policy = PlacementPolicy::device;
  options.gradients = GradientPolicy::device;
  options.grad_accum = c.micro_batches * c.copies;
  options.model.pp = c.ranks;
  options.paced_flops_per_s = of.flops_per_s;
  Plans plans;
  for (std::int32_t rank = 0; rank < c.ranks * c.copies; ++rank) {
    options.model.rank = rank % c.ranks;
    options.ranks = {.ranks = c.copies,
                     .rank = rank / c.ranks,
                     .zero = c.copies > 1 ? c.zero : 0,
                     .reduce = GradientReduce::in_program};
    ProgramSet programs;
    STRATA_TRY_ASSIGN(programs[ProgramRole::train],
                      pipeline(of.whole, of.schedule, of.stages,
                               {.axis = static_cast<std::int32_t>(MeshAxis::pp),
                                .rank = options.model.rank,
                                .copies_axis = static_cast<std::int32_t>(MeshAxis::dp),
                                .copies = c.copies,
                                .copy = options.ranks.rank}));
    STRATA_TRY_ASSIGN(auto of_rank, Engine::plan(programs, options));
    plans.push_back(std::move(of_rank));
  }
  return plans;
}

Result<double> forecast_s(const BenchOptions& c, const Plans& plans) {
  const MachineProfile p = paced_machine(c.bytes_per_s > 0 ? c.bytes_per_s : 1e15, c.latency_s);
  std::vector<const RunPlan*> all;
  for (const auto& each : plans) all.push_back(each.get());
  STRATA_TRY_ASSIGN(const std::vector<Forecast> ranks, forecast_ranks(all, p));
  double step_s = 0;
  for (const Forecast& rank : ranks) step_s = std::max(step_s, rank.step_s);
  return step_s;
}

struct Measured {
  std::vector<double> step_s;
  double computes_s = 0;  // in a step
  bool peak_is_planned = false;
  Status status;
};

Status train(const BenchOptions& c, Engine& engine, Measured& measured) {
  STRATA_TRY(engine.initialize(1));
  NoTokens batches;
  double before = 0;
  for (int step = 0; step < c.warmup + c.steps; ++step) {
    if (step == c.warmup) before = engine.lane_busy_seconds().compute;
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-4, report));
    if (step >= c.warmup) measured.step_s.push_back(report.seconds);
  }
  measured.computes_s = (engine.lane_busy_seconds().compute - before) / c.steps;
  measured.peak_is_planned = engine.peak_bytes() == engine.plan().planned_peak;
  return {};
}

Result<std::vector<Measured>> measure(const BenchOptions& c, const Plans& plans) {
  SteadyClock clock;
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(c.threads));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Backend> backend,
                    create_host_backend({.paced_compute = true, .skip_arithmetic = true}, *pool, clock));
  STRATA_TRY_ASSIGN(auto worlds, create_thread_worlds(c.ranks * c.copies));
  std::vector<Measured> of_rank(plans.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    threads.emplace_back([&, rank] {
      const auto engine = Engine::create(*plans[rank], {.backend = *backend,
                                                        .pool = *pool,
                                                        .clock = clock,
                                                        .io = posix_io(),
                                                        .world = worlds[rank].get(),
                                                        .network = {c.bytes_per_s, c.latency_s}});
      of_rank[rank].status = engine.has_value() ? train(c, **engine, of_rank[rank]) : engine.status();
      if (!of_rank[rank].status.is_ok()) worlds[rank].reset();  // so that the others do not wait for it
    });
  for (std::thread& thread : threads) thread.join();
  for (const Measured& rank : of_rank) STRATA_TRY(rank.status);
  return of_rank;
}

Status run(BenchOptions c) {
  if (c.layers == 0) c.layers = std::int64_t{c.ranks} * c.virtual_stages;
  STRATA_TRY_ASSIGN(const Pipeline of, pipeline_of(c));
  STRATA_TRY_ASSIGN(const Plans plans, plan(c, of));
  STRATA_TRY_ASSIGN(const double simulated_s, forecast_s(c, plans));
  STRATA_TRY_ASSIGN(const std::vector<Measured> ranks, measure(c, plans));
  std::vector<double> computes, scheduled_idle;
  bool as_planned = true;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    computes.push_back(ranks[rank].computes_s);
    scheduled_idle.push_back(static_cast<double>(of.timing.idle[rank % of.timing.idle.size()]) * 1e-6);
    as_planned = as_planned && ranks[rank].peak_is_planned;
  }
  fmt::print(
      "{{\"step_s\": [{:.6f}], \"scheduled_s\": {:.6f}, \"simulated_s\": {:.6f}, \"computes_s\": [{:.6f}], "
      "\"scheduled_idle_s\": [{:.6f}], \"peak_is_planned\": {}}}\n",
      fmt::join(ranks[0].step_s, ", "), static_cast<double>(of.timing.end) * 1e-6, simulated_s,
      fmt::join(computes, ", "), fmt::join(scheduled_idle, ", "), as_planned);
  return {};
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::BenchOptions c;
  CLI::App app{"paced steps of a pipeline whose ranks are threads"};
  app.add_option("--schedule", c.schedule)->check(CLI::IsMember(strata::pipeline_schedule_names()));
  app.add_option("--ranks", c.ranks)->check(CLI::Range(1, 16));
  app.add_option("--virtual-stages", c.virtual_stages)->check(CLI::Range(1, 8));
  app.add_option("--micro-batches", c.micro_batches)->check(CLI::Range(1, 256));
  app.add_option("--copies", c.copies)->check(CLI::Range(1, 16));
  app.add_option("--zero", c.zero)->check(CLI::Range(0, 3));
  app.add_option("--bytes-per-s", c.bytes_per_s, "of what a rank sends; 0: as fast as memory");
  app.add_option("--latency-s", c.latency_s, "seconds added to each message and collective");
  app.add_option("--layers", c.layers, "0: one for each stage");
  app.add_option("--hidden", c.hidden);
  app.add_option("--seq", c.seq);
  app.add_option("--steps", c.steps)->check(CLI::Range(1, 1000));
  app.add_option("--compute-s", c.compute_s, "seconds that a rank computes in a step");
  CLI11_PARSE(app, argc, argv);
  if (const strata::Status status = strata::bench::run(c); !status.is_ok()) {
    fmt::print(stderr, "pipeline_step: {}\n", status.to_string());
    return 1;
  }
  return 0;
}
