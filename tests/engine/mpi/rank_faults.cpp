// One rank of a run in which one rank fails: mpirun starts this program once for each rank. Tests and claims
// read what the others say.
//   rank_faults FAULT RANK STEP FOLDER      FAULT may be none, or count_bytes
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include <strata/simd/isa.h>
#include <strata/parallel/mpi_world.h>
#include <strata/runtime/str.h>
#include <strata/session/ranks/rank_traffic.h>

#include "engine/tiny_run.h"
#include "support/fault_backend.h"
#include "support/fault_io.h"

namespace strata {
namespace {

constexpr int kSteps = 6;

struct Fault {
  std::string what;
  int rank = 0, step = 0;
  std::string folder;
  bool is(const char* name, const World& world) const { return what == name && world.rank() == rank; }
};

void say(const std::string& line) {
  (void)std::fputs((line + "\n").c_str(), stdout);
  (void)std::fflush(stdout);
}

/// In the step of the fault, does something else than to return a batch.
class FaultyBatches final : public BatchSource {
 public:
  FaultyBatches(const Fault& fault, const World& world) : fault_(fault), world_(world) {}
  void begin(int step) { due_ = step == fault_.step && world_.rank() == fault_.rank; }

  Status fill(std::int64_t index, const BatchView& batch) override {
    STRATA_TRY(batches_.fill(index, batch));
    // Longer than a heartbeat, so that the others know what this rank does.
    if (due_) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (due_) say("the fault is due");
    if (due_ && fault_.what == "kill") (void)std::raise(SIGKILL);
    if (due_ && fault_.what == "stop") (void)std::raise(SIGSTOP);
    if (due_ && fault_.what == "exit") std::_Exit(0);
    if (due_ && fault_.what == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
    if (due_ && fault_.what == "error")
      return Status::error(Code::io_error, "the batches are on a disk that is gone");
    if (due_ && fault_.what == "memory") return Status::error(Code::out_of_memory, "no memory for a batch");
    return {};
  }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override { return batches_.n_counted(index, n); }
  bool is_due() const { return due_; }

 private:
  const Fault& fault_;
  const World& world_;
  test::CountingBatches batches_{test::tiny_config().vocab};
  bool due_ = false;
};

/// A device that, once, computes a NaN.
class WrongDevice final : public test::FaultBackend {
 public:
  WrongDevice(Backend& base, const FaultyBatches& when) : FaultBackend(base), when_(when) {}
  Status host_call_async(const HostCall& call, Stream& stream) override {
    STRATA_TRY(FaultBackend::host_call_async(call, stream));
    const bool norm = std::string_view(call.label()).find("layernorm") != std::string_view::npos;
    if (!when_.is_due() || done_ || !norm) return {};
    done_ = true;
    const auto written = std::find_if(call.accesses().begin(), call.accesses().end(),
                                      [](const Access& access) { return access.write; });
    HostCall spoil(
        "spoil", [](float* const& to, ThreadPool&) { *to = std::numeric_limits<float>::quiet_NaN(); },
        reinterpret_cast<float*>(const_cast<std::byte*>(written->data)));
    spoil.writes(written->data, sizeof(float));
    return FaultBackend::host_call_async(spoil, stream);
  }

 private:
  const FaultyBatches& when_;
  bool done_ = false;
};

std::unique_ptr<const RunPlan> plan(const Fault& fault, const World& world) {
  SessionOptions options;
  options.grad_accum = 4 * world.size();
  options.chunk_elems = std::int64_t{4096} * world.size();
  options.nvme.dirs = {fault.folder};
  options.nvme.engine = IoEngine::threads;
  options.policy = PlacementPolicy::nvme;
  options.ranks = {.ranks = world.size(), .rank = world.rank(), .zero = 3};
  if (fault.is("layout", world)) options.chunk_elems *= 2;
  if (fault.is("settings", world)) options.clip = 7;
  if (fault.is("collectives", world)) options.ranks.gather_ahead = 0;
  return must(Engine::plan(test::tiny_programs(Recompute::none, 3), options));
}

Status train(World& world, const Fault& fault) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto device = must(create_host_backend({}, *pool, clock));
  FaultyBatches batches(fault, world);
  WrongDevice wrong(*device, batches);
  Backend& backend = fault.is("nan", world) ? static_cast<Backend&>(wrong) : *device;
  test::FaultIo io(posix_io(), 1);
  if (fault.is("isa", world)) must(simd::use_isa(simd::CpuIsa::sse42));
  const auto planned = plan(fault, world);
  STRATA_TRY_ASSIGN(
      const auto engine,
      Engine::create(*planned,
                     {.backend = backend, .pool = *pool, .clock = clock, .io = io, .world = &world}));
  STRATA_TRY(engine->initialize(3));
  for (int step = 1; step <= kSteps; ++step) {
    batches.begin(step);
    if (fault.is("disk", world) && step == fault.step)
      io.add({.call = test::IoCall::write,
              .nth = io.calls(test::IoCall::write) + 1,
              .sticky = true,
              .code = Code::no_space});
    StepReport report;
    STRATA_TRY(engine->train_step(batches, 1e-2, report));
  }
  STRATA_TRY(engine->state_digest().status());
  return {};
}

// Trains without a fault, and prints what this rank has exchanged by the counters of its groups, and what the
// world exchanges besides, in each direction. The counters of the steps must be the formula.
int count_bytes(std::unique_ptr<World> world, const Fault& fault) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  const auto planned = plan(fault, *world);
  auto engine = must(Engine::create(
      *planned,
      {.backend = *backend, .pool = *pool, .clock = clock, .io = posix_io(), .world = world.get()}));
  must(engine->initialize(3));
  test::CountingBatches batches(test::tiny_config().vocab);
  const GroupCounters before = engine->group_counters();
  for (int step = 0; step < kSteps; ++step) {
    StepReport report;
    must(engine->train_step(batches, 1e-2, report));
  }
  const GroupCounters counters = engine->group_counters();
  const std::uint64_t formula = kSteps * rank_traffic(*planned, planned->of(ProgramRole::train).uses).all();
  const bool equal = counters.sent_bytes - before.sent_bytes == formula &&
                     counters.received_bytes - before.received_bytes == formula;
  // 512 bytes to each other rank when the group of the engine, and then the world, are left.
  const std::uint64_t leaves = 2 * 512 * static_cast<std::uint64_t>(world->size() - 1);
  must(world->all_gather(""));
  const CollectiveBytes control = world->control_bytes();
  say(str("rank ", world->rank(), " sent ", counters.sent_bytes, " received ", counters.received_bytes,
          " control ", control.sent + leaves, " ", control.received + leaves));
  say(str("rank ", world->rank(), ": ", kSteps, " steps sent ", counters.sent_bytes - before.sent_bytes,
          ", the formula is ", formula));
  return equal ? 0 : 1;
}

int run(const Fault& fault) {
  if (fault.what == "count_bytes") return count_bytes(must(open_mpi_world({.heartbeat_s = 0})), fault);
  (void)std::signal(SIGTERM, SIG_IGN);  // mpirun sends it when a rank ends by a signal
  WatchOptions watch{.heartbeat_s = 0.1, .patience_s = 9};
  std::unique_ptr<World> world = must(open_mpi_world(watch));
  const std::string me = str("rank ", world->rank());
  if (const char* const job = std::getenv("OMPI_MCA_ess_base_jobid")) say(str("job ", job));
  watch.warn = [&me](std::string_view text) { say(str(me, " warns: ", text)); };
  world->set_watch(watch);
  const Status status = train(*world, fault);
  say(str(me, " ends: ", status.to_string()));
  world.reset();
  return status.is_ok() ? 0 : status.code() == Code::lost_peer ? 6 : 1;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  return strata::run({argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argv[4]});
}
