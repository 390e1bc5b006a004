// One rank of the runs that test how MPI runs end and what MPI itself counts.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <strata/parallel/mpi_world.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {
namespace {

using std::chrono::steady_clock;

// Rank 1 ends at once: the others are told, end too, and MPI ends as usual.
int end_early(std::unique_ptr<World> world) {
  if (world->rank() == 1) return 0;
  const Status status = world->all_gather("anyone?").status();
  std::printf("%s\n", status.to_string().c_str());
  return status.code() == Code::lost_peer ? 0 : 1;
}

// Rank 1 ends while the others are busy for long: it may not wait for them.
int end_alone(std::unique_ptr<World> world) {
  if (world->rank() != 1) {
    std::this_thread::sleep_for(std::chrono::seconds(60));  // mpirun ends it
    return 0;
  }
  const steady_clock::time_point begin = steady_clock::now();
  world.reset();
  const double seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  std::printf("the rank %s\n", seconds < 2 ? "ended in time" : "waited too long");
  (void)std::fflush(stdout);
  return 0;
}

// Rank 1 of 4 ends, stops or hangs in step 7, and the others wait for it. They print what they learn. mpirun
// sends SIGTERM when a rank ends by a signal, and takes a while before it sends SIGKILL.
int lose_rank(std::unique_ptr<World> world, const std::string& how) {
  (void)std::signal(SIGTERM, SIG_IGN);
  world->set_watch({.heartbeat_s = 0.1, .silence_s = 1, .user_code_s = 1, .patience_s = 2});
  must(world->all_gather(""));
  RankProgress& progress = world->progress();
  progress.begin_step(7);
  progress.begin_micro_batch(2, 10);
  progress.at(4, "linear");
  if (world->rank() == 1) {
    const RankProgress::UserCode in_source(how == "hang" ? &progress : nullptr, "the batch source");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a heartbeat tells where it is
    if (how == "kill") (void)std::raise(SIGKILL);
    if (how == "stop") (void)std::raise(SIGSTOP);
    if (how == "exit") std::_Exit(0);
    std::this_thread::sleep_for(std::chrono::minutes(1));
  }
  const Status status = world->all_gather("").status();
  const std::string line = str("rank ", world->rank(), " learned: ", status.to_string(), "\n");
  (void)std::fputs(line.c_str(), stdout);
  (void)std::fflush(stdout);
  return status.code() == Code::lost_peer ? 6 : 1;
}

// A fixed program of collectives. Prints what this rank has exchanged by its counters, and how much it has
// besides, in each direction: texts, and messages of ranks that leave.
int count_bytes(std::unique_ptr<World> world) {
  const auto n = static_cast<std::size_t>(world->size());
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  auto group = must(world->create_group(*backend));
  {
    Stream stream = must(backend->create_stream(StreamRole::collective));
    const Buffer a = must(backend->allocate(MemoryKind::pinned, 5'000'004));
    const Buffer b = must(backend->allocate(MemoryKind::pinned, 5'000'004 * n));
    const BufferView one = a.view().part(0, 5'000'004), all = b.view().part(0, 5'000'004 * n);
    must(group->all_reduce(one, DType::f32, Reduction::sum, stream));
    must(group->all_gather(one, all, stream));
    must(group->reduce_scatter(all, one, DType::f32, Reduction::sum, stream));
    must(group->all_to_all(b.view().part(0, 4096 * n), a.view().part(0, 4096 * n), stream));
    must(group->broadcast(one, 1, stream));
    must(group->shift(one, all.part(0, one.bytes), 1, stream));
    if (group->rank() == 0) must(group->send(one.part(0, 777), 1, stream));
    if (group->rank() == 1) must(group->receive(one.part(0, 777), 0, stream));
    must(backend->synchronize(stream));
  }
  const std::uint64_t leave = 512;
  // Texts, such as the number and list of ranks that create_group() exchanges. Then the group, and the world,
  // are left.
  const std::uint64_t leaves = (n - 1) * (leave + leave);
  const CollectiveBytes control = world->control_bytes();
  const GroupCounters counters = group->counters();
  std::printf("%s\n",
              str("rank ", world->rank(), " sent ", counters.sent_bytes, " received ",
                  counters.received_bytes, " control ", control.sent + leaves, " ", control.received + leaves)
                  .c_str());
  return 0;
}

int run(const std::string& what) {
  // How many heartbeats there are depends on the time.
  std::unique_ptr<World> world = must(open_mpi_world({.heartbeat_s = what == "count_bytes" ? 0 : 0.5}));
  if (what == "end_early") return end_early(std::move(world));
  if (what == "end_alone") return end_alone(std::move(world));
  if (what == "count_bytes") return count_bytes(std::move(world));
  if (what == "kill" || what == "stop" || what == "exit" || what == "hang")
    return lose_rank(std::move(world), what);
  return 2;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return argc == 2 ? strata::run(argv[1]) : 2; }
