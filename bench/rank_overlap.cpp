// Steps of a decoder on ranks that are threads of this process, with paced compute and network: only the
// optimizer, gradient sums and copies use cores. Prints the seconds of each step, what bounds them, and the
// forecast as JSON; the claim `rank_overlap` compares them.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/engine/engine.h>
#include <strata/engine/forecast.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>
#include <strata/session/ranks/rank_traffic.h>

#include "overlap_program.h"

namespace strata::bench {
namespace {

struct BenchOptions {
  std::int32_t ranks = 2, zero = 2, gather_ahead = DataParallel{}.gather_ahead;
  std::int64_t layers = 32, hidden = 128, vocab = 64, seq = 16;
  std::int64_t chunk_elems = 28 * ChunkLayout::kSliceAlign;
  int steps = 10, warmup = 2, threads = 1;
  double compute_s = 0.5, network_s = 0.5, latency_s = 20e-6;
  std::string mode = "two_phase";
};

Result<ProgramSet> record(const BenchOptions& c) {
  STRATA_TRY_ASSIGN(Program train, record_training(c));
  ProgramSet set;
  set.add({"train", ProgramRole::train, std::move(train)});
  return set;
}

/// One micro-batch a rank, with everything on the device: only compute and the network take time.
SessionOptions options_of(const BenchOptions& c) {
  SessionOptions options;
  options.step_mode = *step_mode_named(c.mode);
  options.chunk_elems = c.chunk_elems;
  options.clip = 1e30;  // gradients are not computed, so their norm is that of uninitialized memory
  options.policy = PlacementPolicy::device;
  options.gradients = GradientPolicy::device;
  options.grad_accum = c.ranks;
  options.ranks = {.ranks = c.ranks, .zero = c.zero, .gather_ahead = c.gather_ahead};
  return options;
}

using Plans = std::vector<std::unique_ptr<const RunPlan>>;
Result<Plans> plan(const BenchOptions& c) {
  STRATA_TRY_ASSIGN(const ProgramSet programs, record(c));
  SessionOptions options = options_of(c);
  STRATA_TRY_ASSIGN(const auto unpaced, Engine::plan(programs, options));
  options.paced_flops_per_s = unpaced->of(ProgramRole::train).uses.pass_flops().all() / c.compute_s;
  Plans plans;
  for (options.ranks.rank = 0; options.ranks.rank < c.ranks; ++options.ranks.rank) {
    STRATA_TRY_ASSIGN(auto of_rank, Engine::plan(programs, options));
    plans.push_back(std::move(of_rank));
  }
  return plans;
}

RankTraffic traffic_of(const RunPlan& plan) { return rank_traffic(plan, plan.of(ProgramRole::train).uses); }

/// The rate at which the bytes of a step take `network_s`.
NetworkRate rate_of(const BenchOptions& c, const RunPlan& plan) {
  return {static_cast<double>(traffic_of(plan).all()) / c.network_s, c.latency_s};
}

Result<Forecast> forecast_of(const BenchOptions& c, const RunPlan& plan) {
  return forecast(plan, paced_machine(rate_of(c, plan).bytes_per_s, c.latency_s));
}

/// The measurements of a rank: the mean lanes of the ranks, and its own steps.
struct Measured {
  std::vector<double> step_s;
  LaneBusySeconds lanes{};
  GroupCounters sent{};
  bool peak_is_planned = false;
  Status status;
};

Status train(const BenchOptions& c, Engine& engine, Measured& measured) {
  STRATA_TRY(engine.initialize(1));
  NoTokens batches;
  LaneBusySeconds before{};
  GroupCounters sent_before{};
  for (int step = 0; step < c.warmup + c.steps; ++step) {
    if (step == c.warmup) {
      before = engine.lane_busy_seconds();
      sent_before = engine.group_counters();
    }
    StepReport report;
    STRATA_TRY(engine.train_step(batches, 1e-4, report));
    if (step >= c.warmup) measured.step_s.push_back(report.seconds);
  }
  const auto n = static_cast<std::uint64_t>(c.steps);
  measured.lanes = (engine.lane_busy_seconds() - before) / c.steps;
  measured.sent.calls = (engine.group_counters().calls - sent_before.calls) / n;
  measured.sent.sent_bytes = (engine.group_counters().sent_bytes - sent_before.sent_bytes) / n;
  measured.peak_is_planned = engine.peak_bytes() == engine.plan().planned_peak;
  return {};
}

Result<Measured> measure(const BenchOptions& c, const Plans& plans) {
  SteadyClock clock;
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(c.threads));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Backend> backend,
                    create_host_backend({.paced_compute = true, .skip_arithmetic = true}, *pool, clock));
  STRATA_TRY_ASSIGN(auto worlds, create_thread_worlds(c.ranks));
  std::vector<Measured> of_rank(plans.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    threads.emplace_back([&, rank] {
      const auto engine = Engine::create(*plans[rank], {.backend = *backend,
                                                        .pool = *pool,
                                                        .clock = clock,
                                                        .io = posix_io(),
                                                        .world = worlds[rank].get(),
                                                        .network = rate_of(c, *plans[0])});
      of_rank[rank].status = engine.has_value() ? train(c, **engine, of_rank[rank]) : engine.status();
      if (!of_rank[rank].status.is_ok()) worlds[rank].reset();  // so that the others do not wait for it
    });
  for (std::thread& thread : threads) thread.join();
  for (const Measured& rank : of_rank) STRATA_TRY(rank.status);
  for (const Measured& rank : of_rank) of_rank[0].peak_is_planned &= rank.peak_is_planned;
  return of_rank[0];
}

Status run(const BenchOptions& c) {
  STRATA_TRY_ASSIGN(const Plans plans, plan(c));
  const RunPlan& first = *plans[0];
  STRATA_TRY_ASSIGN(const Forecast forecast, forecast_of(c, first));
  STRATA_TRY_ASSIGN(const Measured measured, measure(c, plans));
  const UseTrace::PassFlops flops = first.of(ProgramRole::train).uses.pass_flops();
  const RankTraffic traffic = traffic_of(first);
  fmt::print(
      "{{\"chunks\": {}, \"step_s\": [{:.6f}], \"forward_share\": {:.4f}, \"network_forward_share\": {:.4f}, "
      "\"calls\": {}, \"sent_bytes\": {}, \"planned_bytes\": {}, \"peak_is_planned\": {}, \"compute_s\": "
      "{:.6f}, "
      "\"collective_s\": {:.6f}, \"forecast\": {{\"step_s\": {:.9f}, \"compute_s\": {:.9f}, "
      "\"collective_s\": "
      "{:.9f}}}}}\n",
      first.layout.n_chunks(), fmt::join(measured.step_s, ", "), flops.forward / flops.all(),
      static_cast<double>(traffic.in_forward) / static_cast<double>(traffic.all()), measured.sent.calls,
      measured.sent.sent_bytes, traffic.all(), measured.peak_is_planned, measured.lanes.compute,
      measured.lanes.collective, forecast.step_s, forecast.lanes.compute, forecast.lanes.collective);
  return {};
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::BenchOptions c;
  CLI::App app{"paced steps of a decoder on ranks that are threads"};
  app.add_option("--ranks", c.ranks)->check(CLI::Range(2, 16));
  app.add_option("--zero", c.zero)->check(CLI::Range(0, 3));
  app.add_option("--gather-ahead", c.gather_ahead);
  app.add_option("--layers", c.layers);
  app.add_option("--hidden", c.hidden);
  app.add_option("--vocab", c.vocab);
  app.add_option("--seq", c.seq);
  app.add_option("--chunk", c.chunk_elems);
  app.add_option("--steps", c.steps)->check(CLI::Range(1, 1000));
  app.add_option("--threads", c.threads);
  app.add_option("--compute-s", c.compute_s, "seconds of forward and backward");
  app.add_option("--network-s", c.network_s, "seconds of a step's bytes on the network");
  app.add_option("--latency-s", c.latency_s, "seconds added to each collective");
  app.add_option("--mode", c.mode)
      ->check(CLI::IsMember({"auto", "serial", "two_phase", "speculative", "hybrid"}));
  CLI11_PARSE(app, argc, argv);
  if (const strata::Status status = strata::bench::run(c); !status.is_ok()) {
    fmt::print(stderr, "rank_overlap: {}\n", status.to_string());
    return 1;
  }
  return 0;
}
