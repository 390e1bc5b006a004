#include <array>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/backend/simulation.h>
#include <strata/runtime/trace/stall_meter.h>

namespace strata {
namespace {

void nothing(const int&, ThreadPool&) {}
HostCall work(std::int64_t ns) { return HostCall("work", &nothing, 0).paced(ns); }

struct SimulationTest : ::testing::Test {
  SimOptions options;
  std::unique_ptr<Simulation> machine;
  Stream compute, h2d, d2h, cpu;
  Buffer device, pinned;

  void start() {
    machine = Simulation::create(options);
    Backend& backend = machine->backend();
    compute = must(backend.create_stream(StreamRole::compute));
    h2d = must(backend.create_stream(StreamRole::h2d));
    d2h = must(backend.create_stream(StreamRole::d2h));
    cpu = must(backend.create_stream(StreamRole::cpu));
    device = must(backend.allocate(MemoryKind::device, 1 << 20));
    pinned = must(backend.allocate(MemoryKind::pinned, 1 << 20));
  }
  Backend& backend() { return machine->backend(); }
  std::int64_t now() { return machine->clock().now_ns(); }
  void copy(Stream& lane, std::size_t bytes) {
    must(backend().copy_async(device.view().part(0, bytes), pinned.view().part(0, bytes), lane));
  }
  std::int64_t after(Stream& lane) {
    must(backend().synchronize(lane));
    return now();
  }
  ~SimulationTest() override {  // buffers and streams must be destroyed before their backend
    for (Stream* stream : {&compute, &h2d, &d2h, &cpu}) *stream = Stream();
    device = Buffer();
    pinned = Buffer();
  }
};

TEST_F(SimulationTest, CopiesTakeTheTimeOfTheirLanesRate) {
  options.rate(SimLane::h2d) = {.bytes_per_s = 1e9, .latency_s = 1e-6};
  start();
  copy(h2d, 4096);
  EXPECT_EQ(now(), 0) << "queueing takes no time unless launch_overhead_s is set";
  EXPECT_EQ(after(h2d), 1000 + 4096);
  EXPECT_EQ(machine->transferred_bytes(SimLane::h2d), 4096u);
  EXPECT_DOUBLE_EQ(machine->busy_s(SimLane::h2d), 5096e-9);
}

TEST_F(SimulationTest, LanesRunConcurrentlyAndEachInOrder) {
  start();
  must(backend().host_call_async(work(100), compute));
  must(backend().host_call_async(work(50), compute));
  must(backend().host_call_async(work(120), cpu));
  EXPECT_EQ(after(cpu), 120);
  EXPECT_EQ(after(compute), 150);
}

TEST_F(SimulationTest, AStreamWaitsForAnEventAndThenContinues) {
  start();
  must(backend().host_call_async(work(100), cpu));
  const Event done = must(backend().record(cpu));
  EXPECT_FALSE(backend().is_complete(done));
  must(backend().wait_on_async(done, compute));
  must(backend().host_call_async(work(10), compute));
  EXPECT_EQ(after(compute), 110);
  EXPECT_TRUE(backend().is_complete(done));
}

TEST_F(SimulationTest, AWaiterContinuesAfterTheWakeDelay) {
  options.wake_s = 2e-8;
  start();
  must(backend().host_call_async(work(100), cpu));
  must(backend().wait_on_async(must(backend().record(cpu)), compute));
  must(backend().host_call_async(work(10), compute));
  EXPECT_EQ(after(compute), 100 + 20 + 10 + 20)
      << "the stream is woken, and then the thread that waits for it";
  must(backend().wait_on_async(must(backend().record(cpu)), compute));  // this wait is already complete
  must(backend().host_call_async(work(10), compute));
  EXPECT_EQ(after(compute), 150 + 10 + 20);
}

TEST_F(SimulationTest, WorkDoesNotBeginBeforeItIsQueued) {
  options.launch_overhead_s = 1e-8;
  start();
  must(backend().host_call_async(work(5), compute));  // queued at 10
  must(backend().host_call_async(work(5), compute));  // queued at 20, when the first has ended
  EXPECT_EQ(after(compute), 25);
}

TEST_F(SimulationTest, WhoAsksWhatIsDoneLearnsWhatHasBeenDoneUntilThen) {
  options.launch_overhead_s = 1e-8;
  start();
  must(backend().host_call_async(work(5), compute));  // queued at 10
  const Event first = must(backend().record(compute));
  must(backend().host_call_async(work(5), compute));  // queued at 20
  const Event second = must(backend().record(compute));
  EXPECT_EQ(now(), 20) << "the thread has queued ahead of the lanes";
  EXPECT_TRUE(backend().is_complete(first));
  EXPECT_FALSE(backend().is_complete(second)) << "it has only just been queued";
  EXPECT_EQ(backend().counters().busy_ns[static_cast<std::size_t>(StreamRole::compute)], 5);
  EXPECT_EQ(backend().stall_meter()->times().of(StallCause::host), 15) << "but for the 5 of the first";
  EXPECT_EQ(after(compute), 25);
}

TEST_F(SimulationTest, AWaitQueuedAfterItsEventTakesNoTime) {
  options.launch_overhead_s = 1e-8;
  options.wake_s = 2e-8;
  start();
  must(backend().host_call_async(work(5), cpu));  // from 10 to 15
  const Event done = must(backend().record(cpu));
  must(backend().host_call_async(work(1), h2d));      // queued at 20
  must(backend().wait_on_async(done, compute));       // so it has been complete for 5
  must(backend().host_call_async(work(7), compute));  // from 30 to 37
  EXPECT_EQ(after(compute), 37 + 20) << "only the thread is woken";
}

TEST_F(SimulationTest, ASharedResourceSlowsBothLanes) {
  options.share(SimLane::compute, SimResource::cores) = 1;
  options.share(SimLane::cpu, SimResource::cores) = 1;
  start();
  must(backend().host_call_async(work(100), compute));
  must(backend().host_call_async(work(50), cpu));
  EXPECT_EQ(after(cpu), 100) << "both at half their speed";
  EXPECT_EQ(after(compute), 150) << "then alone";
}

TEST_F(SimulationTest, AnUnderusedResourceSlowsNoLane) {
  options.share(SimLane::compute, SimResource::memory) = 0.5;
  options.share(SimLane::cpu, SimResource::memory) = 0.5;
  start();
  must(backend().host_call_async(work(100), compute));
  must(backend().host_call_async(work(100), cpu));
  EXPECT_EQ(after(cpu), 100);
  EXPECT_EQ(after(compute), 100);
}

// Together they ask for twice the memory: in proportion both would take twice as long.
TEST_F(SimulationTest, LanesYieldToEachOtherAsMuchAsTheyAreSaidTo) {
  options.share(SimLane::compute, SimResource::memory) = options.share(SimLane::cpu, SimResource::memory) = 1;
  options.memory_yield(SimLane::compute) = 0.25;
  options.memory_yield(SimLane::cpu) = 3;
  start();
  must(backend().host_call_async(work(100), compute));
  must(backend().host_call_async(work(100), cpu));
  EXPECT_EQ(after(compute), 125);
  EXPECT_NEAR(static_cast<double>(after(cpu)), 125 + (100 - 125 / 4.0), 1);
}

TEST_F(SimulationTest, TheNvmeTierIsTwoLanesThatCanShareADisk) {
  options.rate(SimLane::nvme_read) = options.rate(SimLane::nvme_write) = {.bytes_per_s = 1e9};
  options.share(SimLane::nvme_read, SimResource::disk) =
      options.share(SimLane::nvme_write, SimResource::disk) = 1;
  start();
  const std::uint64_t read = machine->request(SimLane::nvme_read, 1000);
  const std::uint64_t write = machine->request(SimLane::nvme_write, 1000);
  machine->wait(SimLane::nvme_read, read);
  EXPECT_EQ(now(), 2000);
  machine->wait(SimLane::nvme_write, write);
  EXPECT_EQ(now(), 2000);
}

TEST_F(SimulationTest, AttributesComputeStallsToTheirCause) {
  options.rate(SimLane::h2d) = {.bytes_per_s = 1e9};
  start();
  copy(h2d, 4096);
  must(backend().wait_on_async(must(backend().record(h2d)), compute));
  must(backend().host_call_async(work(1000), compute));
  EXPECT_EQ(after(compute), 5096);
  const StallTimes times = backend().stall_meter()->times();
  EXPECT_EQ(times.computing_ns, 1000);
  EXPECT_EQ(times.of(StallCause::h2d), 4096);
}

TEST_F(SimulationTest, TwoRunsAreIdenticalToTheNanosecond) {
  std::int64_t ends[2] = {};
  for (std::int64_t& end : ends) {
    options.rate(SimLane::h2d) = {.bytes_per_s = 3.3e9, .latency_s = 1.7e-6};
    options.rate(SimLane::d2h) = {.bytes_per_s = 2.9e9};
    options.share(SimLane::h2d, SimResource::link) = options.share(SimLane::d2h, SimResource::link) = 0.7;
    options.launch_overhead_s = 3e-7;
    start();
    for (int i = 0; i < 100; ++i) {
      copy(h2d, 4096 * static_cast<std::size_t>(1 + i % 7));
      must(backend().wait_on_async(must(backend().record(h2d)), compute));
      must(backend().host_call_async(work(1000 + 37 * i), compute));
      must(backend().wait_on_async(must(backend().record(compute)), d2h));
      copy(d2h, 8192);
    }
    end = after(d2h);
    for (Stream* stream : {&compute, &h2d, &d2h, &cpu}) *stream = Stream();
    device = Buffer();
    pinned = Buffer();
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_GT(ends[0], 0);
}

using SimulationDeathTest = SimulationTest;
TEST_F(SimulationDeathTest, AWaitThatNothingCanEndAborts) {
  start();
  must(backend().wait_on_async(Event{cpu.id(), 1}, compute));
  EXPECT_DEATH((void)after(compute), "can never end");
}

/// Runs `body` for each rank of a world.
template <class Body>
void on_simulated_ranks(SimWorld& world, const Body& body) {
  world.run([&](int rank) {
    const auto machine = Simulation::create({}, world, rank);
    Stream compute = must(machine->backend().create_stream(StreamRole::compute));
    body(rank, *machine, compute);
  });
}

TEST(SimWorldTest, RanksMeetWhenTheLastOfThemHasCome) {
  SimWorld world(3);
  const auto meeting = std::make_shared<SimMeeting>(SimMeeting{.expected = 3});
  std::array<std::int64_t, 3> ends{};
  on_simulated_ranks(world, [&](int rank, Simulation& machine, Stream& compute) {
    must(machine.backend().host_call_async(work(100 * (rank + 1)), compute));
    machine.meet(StreamRole::compute, 10 * (rank + 1), "meet", meeting);
    must(machine.backend().synchronize(compute));
    ends[static_cast<std::size_t>(rank)] = machine.clock().now_ns();
  });
  EXPECT_EQ(ends, (std::array<std::int64_t, 3>{310, 320, 330}));
  EXPECT_TRUE(world.status().is_ok());
}

// A pipeline: what a rank sends, the next one waits for, while the first goes on.
TEST(SimWorldTest, TimeIsOneForAllRanksAndTheSameInEveryRun) {
  for (int run = 0; run < 3; ++run) {
    constexpr int kRanks = 4, kRounds = 50;
    SimWorld world(kRanks);
    std::vector<std::vector<std::shared_ptr<SimMeeting>>> passed(kRanks);
    for (auto& of_rank : passed)
      for (int k = 0; k < kRounds; ++k)
        of_rank.push_back(std::make_shared<SimMeeting>(SimMeeting{.expected = 2}));
    std::array<std::int64_t, kRanks> ends{};
    on_simulated_ranks(world, [&](int rank, Simulation& machine, Stream& compute) {
      for (std::size_t k = 0; k < kRounds; ++k) {
        const auto r = static_cast<std::size_t>(rank);
        if (rank > 0) machine.meet(StreamRole::compute, 0, "receive", passed[r - 1][k]);
        must(machine.backend().host_call_async(work(7), compute));
        if (rank < kRanks - 1) machine.meet(StreamRole::compute, 0, "send", passed[r][k]);
        if (k % 3 == 0) must(machine.backend().synchronize(compute));
      }
      must(machine.backend().synchronize(compute));
      ends[static_cast<std::size_t>(rank)] = machine.clock().now_ns();
    });
    EXPECT_EQ(ends[kRanks - 1], 7 * (kRounds + kRanks - 1));
  }
}

TEST(SimWorldTest, RanksThatWaitForEachOtherForEverAreToldSo) {
  SimWorld world(2);
  std::array<Status, 2> outcomes;
  on_simulated_ranks(world, [&](int rank, Simulation& machine, Stream& compute) {
    machine.meet(StreamRole::compute, 1, "meet", std::make_shared<SimMeeting>(SimMeeting{.expected = 2}));
    outcomes[static_cast<std::size_t>(rank)] = machine.backend().synchronize(compute);
  });
  for (const Status& outcome : outcomes) EXPECT_EQ(outcome.code(), Code::lost_peer);
  EXPECT_EQ(world.status().code(), Code::lost_peer);
}

}  // namespace
}  // namespace strata
