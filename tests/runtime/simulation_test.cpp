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

}  // namespace
}  // namespace strata
