// Evaluates a decoder whose ranks share rows and layers, with paced compute and network: once with gathers
// before the linear layers that need them, and once in slices. Prints the seconds of each round as JSON; the
// claim `sliced_gather` compares them.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/train_config.h>
#include <strata/engine/engine.h>
#include <strata/graph/partition.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/plan/split/split_model.h>

#include "overlap_program.h"

namespace strata::bench {
namespace {

struct BenchOptions {
  std::int32_t ranks = 4;
  std::int64_t layers = 8, hidden = 512, seq = 1024;
  int rounds = 5, micro_batches = 2;
  // The time of the GEMM of a slice that has the fewest operations, and the latency of a hop.
  double slice_s = 4e-3, latency_s = 20e-6;
};

DecoderConfig model_of(const BenchOptions& c) {
  return {.family = "gpt2",
          .layers = c.layers,
          .hidden = c.hidden,
          .heads = c.hidden / 64,
          .ffn = 4 * c.hidden,
          .vocab = 64,
          .seq = c.seq};
}

/// The operations of a slice of the linear layer with q, k and v, which is the smaller one of the two that
/// gather rows.
double slice_flops(const BenchOptions& c) {
  const auto n = static_cast<double>(c.ranks), h = static_cast<double>(c.hidden);
  return 2 * static_cast<double>(c.seq) / n * h * 3 * h / n;
}
double hop_bytes(const BenchOptions& c) {
  return 2 * static_cast<double>(c.seq * c.hidden) / static_cast<double>(c.ranks);
}
/// A hop takes as long as the GEMM of a slice.
NetworkRate rate_of(const BenchOptions& c) { return {hop_bytes(c) / (c.slice_s - c.latency_s), c.latency_s}; }
/// The time of all gathers of a micro-batch: two a block, of n - 1 parts each.
double gather_s(const BenchOptions& c) {
  return 2 * static_cast<double>(c.layers) *
         (c.latency_s + (c.ranks - 1) * hop_bytes(c) / rate_of(c).bytes_per_s);
}

Result<std::unique_ptr<const RunPlan>> plan(const BenchOptions& c, std::int32_t rank, bool sliced) {
  TrainConfig config;
  config.model.seq = c.seq;
  config.parallel.tp = c.ranks;
  config.parallel.rank = rank;
  config.parallel.shard = {"megatron+sp"};
  if (sliced) config.parallel.shard.emplace_back("sliced");
  STRATA_TRY_ASSIGN(Program forward,
                    record_decoder(model_of(c), 1, DecoderHead::loss, DecoderRows::whole, DType::bf16));
  STRATA_TRY(split_among_ranks({&forward, 1}, config, true));
  STRATA_TRY_ASSIGN(Program train, derive_backward(forward, "loss"));
  ProgramSet set;
  set.add({"train", ProgramRole::train, simplify_collectives(std::move(train))});
  set.add({"eval", ProgramRole::eval, simplify_collectives(std::move(forward))});
  SessionOptions options;
  options.chunk_elems = 4 * c.hidden * c.hidden;
  options.policy = PlacementPolicy::device;
  options.gradients = GradientPolicy::device;
  options.model = model_parallel(config);
  options.paced_flops_per_s = slice_flops(c) / c.slice_s;
  return Engine::plan(set, options);
}

/// Seconds of each round, of a micro-batch.
Result<std::vector<double>> measure(const BenchOptions& c, bool sliced) {
  SteadyClock clock;
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(1));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Backend> backend,
                    create_host_backend({.paced_compute = true, .skip_arithmetic = true}, *pool, clock));
  STRATA_TRY_ASSIGN(auto worlds, create_thread_worlds(c.ranks));
  std::vector<Status> outcomes(worlds.size());
  std::vector<double> seconds;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < worlds.size(); ++r)
    threads.emplace_back([&, r] {
      const auto run = [&]() -> Status {
        STRATA_TRY_ASSIGN(const auto planned, plan(c, static_cast<std::int32_t>(r), sliced));
        STRATA_TRY_ASSIGN(const auto engine, Engine::create(*planned, {.backend = *backend,
                                                                       .pool = *pool,
                                                                       .clock = clock,
                                                                       .io = posix_io(),
                                                                       .world = worlds[r].get(),
                                                                       .network = rate_of(c)}));
        STRATA_TRY(engine->initialize(1));
        NoTokens batches;
        for (int round = -1; round < c.rounds; ++round) {
          STRATA_TRY(worlds[r]->all_gather("").status());
          const auto begin = std::chrono::steady_clock::now();
          STRATA_TRY(engine->evaluate(batches, c.micro_batches).status());
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
          if (r == 0 && round >= 0) seconds.push_back(took.count() / c.micro_batches);
        }
        return {};
      };
      outcomes[r] = run();
      if (!outcomes[r].is_ok()) worlds[r].reset();  // so that the others do not wait for it
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) STRATA_TRY(outcome);
  return seconds;
}

Status run(const BenchOptions& c) {
  STRATA_TRY_ASSIGN(const std::vector<double> whole, measure(c, false));
  STRATA_TRY_ASSIGN(const std::vector<double> sliced, measure(c, true));
  fmt::print("{{\"gather_s\": {:.6f}, \"whole_s\": [{:.6f}], \"sliced_s\": [{:.6f}]}}\n", gather_s(c),
             fmt::join(whole, ", "), fmt::join(sliced, ", "));
  return {};
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::BenchOptions c;
  CLI::App app{"paced evaluations of a decoder whose ranks gather rows, in slices or not"};
  app.add_option("--ranks", c.ranks)->check(CLI::Range(2, 8));
  app.add_option("--layers", c.layers);
  app.add_option("--hidden", c.hidden);
  app.add_option("--seq", c.seq);
  app.add_option("--rounds", c.rounds)->check(CLI::Range(1, 100));
  app.add_option("--slice-s", c.slice_s, "seconds of a slice's GEMM, and of a hop");
  CLI11_PARSE(app, argc, argv);
  if (const strata::Status status = strata::bench::run(c); !status.is_ok()) {
    fmt::print(stderr, "sliced_gather: {}\n", status.to_string());
    return 1;
  }
  return 0;
}
