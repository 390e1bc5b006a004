// Steps of a decoder with paced compute and links: only the optimizer, gradient accumulation and I/O use
// cores. Prints the seconds of each step and of each lane as JSON; the claim `step_overlap` compares them
// with the lower bound.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/engine/engine.h>
#include <strata/engine/forecast.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>

#include "paced_io.h"
#include "overlap_program.h"

namespace strata::bench {
namespace {

struct BenchOptions {
  std::int64_t layers = 32, hidden = 512, vocab = 1024, seq = 32;
  std::int64_t chunk_elems = 1 << 20;
  int steps = 10, threads = 1;
  double compute_s = 0, link_gb_per_s = 0;
  double clip = 1e30;  // gradients are not computed, so their norm is that of uninitialized memory
  std::string mode = "two_phase", dir = ".", trace;
  std::uint64_t pinned_bytes = 0;
  bool gradients_on_device = false;
  std::uint32_t prefetch = 6;
  std::int64_t undo_bytes = -1;
  bool full_undo_log = false;
  bool states_on_device = false;  // then only activations are moved
  std::string activations = "none";
  double disk_gb_per_s = 0;  // the rate of both directions together, of a simulated device; 0: the real one
  std::string profile;       // the profile of this machine: also print the forecast of a step
};

Result<ProgramSet> record(const BenchOptions& c) {
  STRATA_TRY_ASSIGN(Program train, record_training(c));
  if (c.activations != "none") {
    double work = 0;
    for (const Instr& instr : train.code) work += flops(train, instr);
    const OffloadOptions rates{.flops_per_s = work / std::max(c.compute_s, 1e-3),
                               .memory_bytes_per_s = 1e18,
                               .link_bytes_per_s = c.link_gb_per_s > 0 ? c.link_gb_per_s * 1e9 : 1e10};
    train = offload_activations(std::move(train), rates);
    if (c.activations == "nvme") train = store_activations(std::move(train), rates);
  }
  ProgramSet set;
  set.add({"train", ProgramRole::train, std::move(train)});
  return set;
}

SessionOptions options_of(const BenchOptions& c) {
  SessionOptions options;
  options.step_mode = *step_mode_named(c.mode);
  if (c.undo_bytes >= 0) options.undo_bytes = static_cast<std::uint64_t>(c.undo_bytes);
  if (c.full_undo_log) options.undo_bytes = kUnlimited;
  options.chunk_elems = c.chunk_elems;
  options.clip = c.clip;
  options.prefetch = c.prefetch;
  options.nvme.dirs = {c.dir};
  if (c.disk_gb_per_s > 0) options.nvme.engine = IoEngine::threads;
  options.policy = c.states_on_device ? PlacementPolicy::device : PlacementPolicy::pinned;
  if (c.gradients_on_device) options.gradients = GradientPolicy::device;
  if (c.pinned_bytes > 0) options.budgets[1] = c.pinned_bytes;
  return options;
}

// The forecast for the machine with paced compute and, if paced, link, neither of which uses CPU cores.
Result<std::string> forecast_json(const BenchOptions& c, const RunPlan& plan) {
  if (c.profile.empty()) return std::string("null");
  STRATA_TRY_ASSIGN(MachineProfile machine, load_machine_profile(c.profile));
  machine.device_is_host = false;
  if (c.link_gb_per_s > 0) {
    machine.h2d_bytes_per_s = machine.d2h_bytes_per_s = c.link_gb_per_s * 1e9;
    machine.link_bytes_per_s = 2 * c.link_gb_per_s * 1e9;
  }
  STRATA_TRY_ASSIGN(const Forecast f, forecast(plan, machine));
  std::string stalls;
  for (std::size_t i = 0; i < kStallCauses; ++i)
    stalls += str(i == 0 ? "" : ", ", "\"", to_string(static_cast<StallCause>(i)),
                  "\": ", static_cast<double>(f.times.stalled_ns[i]) * 1e-9);
  return fmt::format(
      "{{\"step_s\": {:.9f}, \"compute_s\": {:.9f}, \"h2d_s\": {:.9f}, \"d2h_s\": {:.9f}, \"cpu_s\": {:.9f}, "
      "\"nvme_read_s\": {:.9f}, \"nvme_write_s\": {:.9f}, \"speculated_share\": {:.4f}, \"stalled_s\": "
      "{{{}}}}}",
      f.step_s, f.lanes.compute, f.lanes.h2d, f.lanes.d2h, f.lanes.cpu, f.lanes.nvme_read, f.lanes.nvme_write,
      f.speculated_share, stalls);
}

Status run(const BenchOptions& c) {
  STRATA_TRY_ASSIGN(const ProgramSet programs, record(c));
  SessionOptions options = options_of(c);
  STRATA_TRY_ASSIGN(std::unique_ptr<const RunPlan> plan, Engine::plan(programs, options));
  const UseTrace::PassFlops flops = plan->of(ProgramRole::train).uses.pass_flops();
  // Almost no time if compute_s is 0.
  options.paced_flops_per_s = flops.all() / (c.compute_s > 0 ? c.compute_s : 1e-3);
  STRATA_TRY_ASSIGN(plan, Engine::plan(programs, options));
  STRATA_TRY_ASSIGN(const std::string forecast, forecast_json(c, *plan));
  SteadyClock clock;
  STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(c.threads));
  Trace trace(clock);
  HostBackendOptions backend_options{.paced_compute = true, .skip_arithmetic = true};
  backend_options.h2d.gb_per_s = backend_options.d2h.gb_per_s = c.link_gb_per_s;
  if (!c.trace.empty()) backend_options.trace = &trace;
  STRATA_TRY_ASSIGN(const std::unique_ptr<Backend> backend,
                    create_host_backend(backend_options, *pool, clock));
  PacedIo paced(posix_io(), c.disk_gb_per_s * 1e9);
  Io& io = c.disk_gb_per_s > 0 ? static_cast<Io&>(paced) : posix_io();
  STRATA_TRY_ASSIGN(const std::unique_ptr<Engine> engine,
                    Engine::create(*plan, {*backend, *pool, clock, io, c.trace.empty() ? nullptr : &trace}));
  STRATA_TRY(engine->initialize(1));

  constexpr int kWarmupSteps = 2;
  NoTokens batches;
  std::vector<double> seconds;
  StallTimes times;
  BackendCounters before;
  MovedBytes moved_before;
  std::int32_t speculated = 0, rolled_back = 0;
  for (int step = 0; step < c.steps + kWarmupSteps; ++step) {
    if (step == kWarmupSteps) {
      before = backend->counters();
      moved_before = engine->moved();
    }
    trace.set_enabled(step >= kWarmupSteps);
    StepReport report;
    STRATA_TRY(engine->train_step(batches, 1e-4, report));
    if (step < kWarmupSteps) continue;
    seconds.push_back(report.seconds);
    times += report.times;
    speculated = report.speculated;
    rolled_back = report.rolled_back;
  }
  trace.set_enabled(false);  // work left over from the last step does not belong to the traced steps
  const BackendCounters after = backend->counters();
  const MovedBytes moved = engine->moved();
  STRATA_TRY(engine->state_digest().status());
  const auto lane = [&](StreamRole role) {
    const auto i = static_cast<std::size_t>(role);
    return static_cast<double>(after.busy_ns[i] - before.busy_ns[i]) * 1e-9 / c.steps;
  };
  std::string stalls;
  for (std::size_t i = 0; i < kStallCauses; ++i)
    stalls += str(i == 0 ? "" : ", ", "\"", to_string(static_cast<StallCause>(i)),
                  "\": ", static_cast<double>(times.stalled_ns[i]) * 1e-9 / c.steps);
  std::int64_t params = 0;
  for (const LayoutTensor& tensor : plan->tensors.specs) params += tensor.n_elems;
  const auto per_param = [&](std::uint64_t bytes) {
    return static_cast<double>(bytes) / c.steps / static_cast<double>(params);
  };
  fmt::print(
      "{{\"params\": {}, \"chunks\": {}, \"mode\": \"{}\", \"step_s\": [{:.6f}], "
      "\"forward_share\": "
      "{:.4f}, \"compute_s\": {:.6f}, \"h2d_s\": {:.6f}, \"d2h_s\": {:.6f}, \"cpu_s\": {:.6f}, "
      "\"stalled_s\": {{{}}}, "
      "\"speculated_chunks\": {}, \"rolled_back_chunks\": {}, \"undo_bytes\": {}, \"bytes_per_param\": "
      "{{\"h2d\": "
      "{:.3f}, \"d2h\": "
      "{:.3f}, "
      "\"nvme_read\": {:.3f}, \"nvme_write\": {:.3f}}}, \"ram_bytes_per_param\": {:.3f}, "
      "\"peak_is_planned\": {}, \"arena_bytes\": {}, \"activation_bytes\": {}, \"forecast\": {}}}\n",
      params, plan->layout.n_chunks(), c.mode, fmt::join(seconds, ", "), flops.forward / flops.all(),
      lane(StreamRole::compute), lane(StreamRole::h2d), lane(StreamRole::d2h), lane(StreamRole::cpu), stalls,
      speculated, rolled_back, plan->undo.bytes, per_param(moved.h2d - moved_before.h2d),
      per_param(moved.d2h - moved_before.d2h), per_param(moved.nvme_read - moved_before.nvme_read),
      per_param(moved.nvme_write - moved_before.nvme_write),
      static_cast<double>(engine->peak_bytes()[1]) / static_cast<double>(params),
      engine->peak_bytes() == plan->planned_peak, plan->of(ProgramRole::train).arena_bytes,
      plan->of(ProgramRole::train).offload.bytes, forecast);
  return c.trace.empty() ? Status::ok() : trace.write(posix_io(), c.trace);
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::BenchOptions c;
  CLI::App app{"paced steps of a decoder"};
  app.add_option("--layers", c.layers);
  app.add_option("--hidden", c.hidden);
  app.add_option("--vocab", c.vocab);
  app.add_option("--seq", c.seq);
  app.add_option("--chunk", c.chunk_elems);
  app.add_option("--steps", c.steps)->check(CLI::Range(1, 1000));
  app.add_option("--threads", c.threads);
  app.add_option("--compute-s", c.compute_s, "seconds of forward and backward");
  app.add_option("--link-gb-per-s", c.link_gb_per_s, "rate of each direction; 0: that of memcpy");
  app.add_option("--mode", c.mode)
      ->check(CLI::IsMember({"auto", "serial", "two_phase", "speculative", "hybrid"}));
  app.add_option("--pinned-bytes", c.pinned_bytes,
                 "pinned budget; 0: all states in RAM, else the rest is on nvme");
  app.add_flag("--gradients-on-device", c.gradients_on_device,
               "keep gradients on the device until the update");
  app.add_option("--dir", c.dir, "directory of the NVMe tier");
  app.add_option(
      "--disk-gb-per-s", c.disk_gb_per_s,
      "simulate a device with this total rate of both directions on the files in --dir; 0: no limit");
  app.add_option("--clip", c.clip, "maximum gradient norm; a small one clips every step");
  app.add_option("--prefetch", c.prefetch);
  app.add_option("--undo-bytes", c.undo_bytes);
  app.add_flag("--full-undo-log", c.full_undo_log,
               "as much undo log as fits, also in mode auto, as a forecast would choose");
  app.add_flag("--states-on-device", c.states_on_device, "instead of in RAM");
  app.add_option("--activations", c.activations, "tier of activations between forward and backward")
      ->check(CLI::IsMember({"none", "pinned", "nvme"}));
  app.add_option("--profile", c.profile,
                 "profile of strata bench, or name of a machine: also forecast the step");
  app.add_option("--trace", c.trace, "write a trace of the steps to this file");
  CLI11_PARSE(app, argc, argv);
  if (const strata::Status status = strata::bench::run(c); !status.is_ok()) {
    fmt::print(stderr, "step_overlap: {}\n", status.to_string());
    return 1;
  }
  return 0;
}
