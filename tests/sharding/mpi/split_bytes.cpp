// One process of a run whose ranks share the model: mpirun starts this program. Prints what each rank has
// exchanged by the counters of its groups, and what the world exchanges besides, in each direction, for
// OpenMPI's own counters to be compared with. The counters of the steps must be what is planned, and so must
// the memory.
//   split_bytes PP TP TP2 TP3 CP PRESET...
#include <cstdio>
#include <cstdlib>

#include <strata/parallel/mpi_world.h>
#include <strata/runtime/str.h>
#include <strata/session/ranks/rank_traffic.h>

#include "sharding/split_run.h"

namespace strata {
namespace {

constexpr int kSteps = 3;

int run(World& world, const test::SplitCase& c) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  const test::TempDir dir;
  const auto planned = must(test::plan_split(c, world.rank(), dir.path()));
  auto engine = must(Engine::create(
      *planned, {.backend = *backend, .pool = *pool, .clock = clock, .io = posix_io(), .world = &world}));
  must(engine->initialize(3));
  test::CountingBatches batches(test::kSplitVocab);
  const std::uint64_t before = engine->group_counters().sent_bytes;
  for (int step = 0; step < kSteps; ++step) {
    StepReport report;
    must(engine->train_step(batches, 1e-3, report));
  }
  const GroupCounters counters = engine->group_counters();
  const std::uint64_t sent = counters.sent_bytes - before,
                      formula = kSteps * rank_traffic(*planned, planned->of(ProgramRole::train).uses).all();
  const bool as_planned = engine->peak_bytes() == planned->planned_peak;
  must(world.all_gather(""));
  // 512 bytes to each other rank of a group that is left: the world and its group, all that share the model,
  // and those along each axis.
  std::int32_t told = 2 * (world.size() - 1) + c.sharing() - 1;
  for (const std::int32_t ranks : {c.pp, c.tp, c.tp2, c.tp3, c.cp}) told += ranks - 1;
  const auto leaves = 512 * static_cast<std::uint64_t>(told);
  const CollectiveBytes control = world.control_bytes();
  std::printf("%s\n",
              str("rank ", world.rank(), " sent ", counters.sent_bytes, " received ", counters.received_bytes,
                  " control ", control.sent + leaves, " ", control.received + leaves, "\nrank ", world.rank(),
                  ": ", kSteps, " steps sent ", sent, ", planned are ", formula,
                  as_planned ? "; memory as planned" : "; memory is not as planned")
                  .c_str());
  return sent == formula && as_planned ? 0 : 1;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  using namespace strata;
  if (argc < 6) return 2;
  test::SplitCase c{.family = "llama", .shard = {argv + 6, argv + argc}};
  c.pp = std::atoi(argv[1]);
  c.tp = std::atoi(argv[2]);
  c.tp2 = std::atoi(argv[3]);
  c.tp3 = std::atoi(argv[4]);
  c.cp = std::atoi(argv[5]);
  const auto world = must(open_mpi_world({.heartbeat_s = 0}));
  if (world->size() != c.sharing()) return 2;
  return run(*world, c);
}
