// Tests the CUDA backend on a fake CUDA runtime: the same contract, and errors that cannot be provoked on a
// real GPU.
#include "support/fake_cudart.h"

#include <chrono>
#include <thread>

#include <strata/runtime/clock.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/trace/trace.h>

#include "backend/cuda/cuda_stream_state.h"
#include "backend/cuda/cuda_timeline.h"
#include "runtime/backend_contract.h"
#include "support/temp_dir.h"

namespace strata {

using test::fail_next_cuda;

INSTANTIATE_TEST_SUITE_P(FakeRuntime, BackendContractTest, ::testing::Values(BackendKind::cuda),
                         [](const auto& test) { return name_of(test.param); });

class FakeCudaTest : public ::testing::Test {
 protected:
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = must(create_cuda_backend({}, *pool_));
};

TEST_F(FakeCudaTest, AnyEnumerationErrorMeansNoGpu) {
  fail_next_cuda("cudaGetDeviceCount", cudaErrorUnknown);
  EXPECT_FALSE(cuda_available());
  fail_next_cuda("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  EXPECT_EQ(cuda_status().rfind("no GPU: ", 0), 0u);
}

TEST_F(FakeCudaTest, ADeviceReportsItsFreeMemory) {
  const CudaDevice device = must(cuda_device(0));
  EXPECT_EQ(device.name, "fake GPU");
  EXPECT_EQ(device.compute_capability, 90);
  EXPECT_EQ(device.total_bytes, std::size_t{1} << 30);
  EXPECT_EQ(device.free_bytes, std::size_t{1} << 28);
  const Status none = cuda_device(1).status();
  EXPECT_EQ(none.code(), Code::unsupported);
  EXPECT_NE(none.message().find("GPU 1 was requested, but the number of GPUs is 1"), std::string_view::npos)
      << none.message();
  fail_next_cuda("cudaMemGetInfo", cudaErrorUnknown);
  EXPECT_FALSE(cuda_device(0).has_value());
}

TEST_F(FakeCudaTest, OutOfDeviceMemoryDoesNotLoseTheDeviceOrLeak) {
  fail_next_cuda("cudaMalloc", cudaErrorMemoryAllocation);
  const Status status = backend_->allocate(MemoryKind::device, 4096).status();
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_NE(status.message().find("cudaMalloc(&p, bytes)"), std::string_view::npos) << status.message();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the next call must not be blamed";
  EXPECT_TRUE(backend_->allocate(MemoryKind::device, 4096).has_value());
}

TEST_F(FakeCudaTest, APinningFailureNamesTheBytes) {
  fail_next_cuda("cudaHostRegister", cudaErrorMemoryAllocation);
  const Status status = backend_->allocate(MemoryKind::pinned, 12288).status();
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_NE(status.message().find("pinning 12288 bytes"), std::string_view::npos) << status.message();
}

TEST_F(FakeCudaTest, ALargeBufferIsRegisteredInPartsAndCopiesCrossThem) {
  const std::size_t before = test::registered_ranges();
  const auto backend = must(create_cuda_backend({.registration_bytes = 8192}, *pool_));
  Stream stream = must(backend->create_stream(StreamRole::h2d));
  {
    const Buffer here = must(backend->allocate(MemoryKind::pinned, 20480));
    const Buffer there = must(backend->allocate(MemoryKind::device, 20480));
    EXPECT_EQ(test::registered_ranges(), before + 3);
    for (std::size_t i = 0; i < 20480; ++i) here.view().data[i] = static_cast<std::byte>(i % 251);
    must(backend->copy_async(there.view().part(0, 20000), here.view().part(300, 20000), stream));
    must(backend->synchronize(stream));
    EXPECT_EQ(std::memcmp(there.view().data, here.view().data + 300, 20000), 0);
    EXPECT_EQ(backend->counters().copies, 1u);
  }
  EXPECT_EQ(test::registered_ranges(), before);
  fail_next_cuda("cudaHostRegister", cudaErrorMemoryAllocation);
  EXPECT_FALSE(backend->allocate(MemoryKind::pinned, 20480).has_value());
  EXPECT_EQ(test::registered_ranges(), before);
}

void sleep_for(const int& ms, ThreadPool&) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

double seconds_of(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

TEST_F(FakeCudaTest, ComputeStallsAreTimedByTheDevice) {
  Stream compute = must(backend_->create_stream(StreamRole::compute));
  Stream cpu = must(backend_->create_stream(StreamRole::cpu));
  ASSERT_NE(backend_->stall_meter(), nullptr);
  const StallTimes before = backend_->stall_meter()->times();
  must(backend_->host_call_async(HostCall("computes", sleep_for, 30), compute));
  must(backend_->host_call_async(HostCall("updates", sleep_for, 200), cpu));
  must(backend_->wait_on_async(must(backend_->record(cpu)), compute));
  must(backend_->host_call_async(HostCall("computes", sleep_for, 20), compute));
  must(backend_->synchronize(compute));
  const StallTimes times = backend_->stall_meter()->times() - before;
  EXPECT_GE(seconds_of(times.computing_ns), 0.045);
  EXPECT_GE(seconds_of(times.of(StallCause::optimizer)), 0.100);
  EXPECT_LE(seconds_of(times.of(StallCause::host)), 0.050);
  const BackendCounters counters = backend_->counters();
  EXPECT_GE(seconds_of(counters.busy_ns[static_cast<std::size_t>(StreamRole::compute)]), 0.045);
  EXPECT_GE(seconds_of(counters.busy_ns[static_cast<std::size_t>(StreamRole::cpu)]), 0.195);
}

// The CPU stream waits for a copy before its next update, so the copy is what compute waits for meanwhile.
TEST_F(FakeCudaTest, WaitsAreFollowedThroughTheCpuStream) {
  Stream compute = must(backend_->create_stream(StreamRole::compute));
  Stream cpu = must(backend_->create_stream(StreamRole::cpu));
  Stream d2h = must(backend_->create_stream(StreamRole::d2h));
  const StallTimes before = backend_->stall_meter()->times();
  must(backend_->host_call_async(HostCall("updates", sleep_for, 20), cpu));
  must(backend_->host_call_async(HostCall("copies", sleep_for, 200), d2h));
  must(backend_->wait_on_async(must(backend_->record(d2h)), cpu));
  must(backend_->host_call_async(HostCall("updates", sleep_for, 20), cpu));
  must(backend_->wait_on_async(must(backend_->record(cpu)), compute));
  must(backend_->host_call_async(HostCall("computes", sleep_for, 10), compute));
  must(backend_->synchronize(compute));
  const StallTimes times = backend_->stall_meter()->times() - before;
  EXPECT_GE(seconds_of(times.of(StallCause::d2h)), 0.100);
  EXPECT_GE(seconds_of(times.of(StallCause::optimizer)), 0.030);
}

// Once its wait has completed, a stream no longer counts as waiting, although nothing was queued after it.
TEST_F(FakeCudaTest, AStreamIsIdleAfterItsLastWaitCompletes) {
  Stream compute = must(backend_->create_stream(StreamRole::compute));
  Stream d2h = must(backend_->create_stream(StreamRole::d2h));
  must(backend_->host_call_async(HostCall("copies", sleep_for, 10), d2h));
  must(backend_->wait_on_async(must(backend_->record(d2h)), compute));
  must(backend_->synchronize(compute));
  const StallTimes before = backend_->stall_meter()->times();
  must(backend_->host_call_async(HostCall("copies", sleep_for, 100), d2h));
  {
    const HostWaitScope batch(backend_->stall_meter(), StallCause::data);
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
  }
  must(backend_->synchronize(d2h));
  EXPECT_GE(seconds_of((backend_->stall_meter()->times() - before).of(StallCause::data)), 0.070);
}

TEST_F(FakeCudaTest, CopiesAreTimedAndTraced) {
  SteadyClock clock;
  Trace trace(clock);
  const test::TempDir dir;
  {
    const auto backend = must(create_cuda_backend({.trace = &trace}, *pool_));
    Stream stream = must(backend->create_stream(StreamRole::h2d));
    constexpr std::size_t kCopied = std::size_t{32} << 20;
    const Buffer here = must(backend->allocate(MemoryKind::pinned, kCopied));
    const Buffer there = must(backend->allocate(MemoryKind::device, kCopied));
    must(backend->copy_async(there.view(), here.view(), stream));
    must(backend->synchronize(stream));
    const std::int64_t busy = backend->counters().busy_ns[static_cast<std::size_t>(StreamRole::h2d)];
    EXPECT_GT(busy, 100'000);  // 300 GB/s
    EXPECT_LT(busy, 5'000'000'000);
    EXPECT_EQ(backend->counters().busy_ns[static_cast<std::size_t>(StreamRole::h2d)], busy);
  }
  must(trace.write(posix_io(), dir.file("trace.json")));
  const std::string text = must(read_text(posix_io(), dir.file("trace.json"), 1 << 20));
  EXPECT_NE(text.find("\"busy\""), std::string::npos) << text;
}

TEST_F(FakeCudaTest, SpansNameTheEventsThatCoverTheirWork) {
  SteadyClock clock;
  Trace trace(clock);
  std::vector<std::pair<int, std::uint64_t>> events, spans;
  {
    const auto backend = must(create_cuda_backend({.trace = &trace}, *pool_));
    Stream h2d = must(backend->create_stream(StreamRole::h2d)),
           cpu = must(backend->create_stream(StreamRole::cpu));
    const Buffer here = must(backend->allocate(MemoryKind::pinned, 4096));
    const Buffer there = must(backend->allocate(MemoryKind::device, 4096));
    for (Stream* stream : {&h2d, &h2d, &cpu}) {
      if (stream == &h2d)
        must(backend->copy_async(there.view(), here.view(), h2d));
      else
        must(backend->host_call_async(HostCall(
                                          "call", +[](const int&, ThreadPool&) {}, 0),
                                      cpu));
      const Event covers = must(backend->record(*stream));
      events.emplace_back(covers.stream, covers.sequence);
    }
    must(backend->synchronize(h2d));
    must(backend->synchronize(cpu));
    (void)backend->counters();  // reads the marks
  }
  for (const Trace::TrackSpans& track : trace.spans())
    for (const Trace::Span& span : track.spans)
      if (track.name == "h2d" || track.name == "cpu") spans.emplace_back(span.work.queue, span.work.number);
  EXPECT_EQ(spans, events);
}

TEST_F(FakeCudaTest, AnUntimedBackendRecordsNoMarks) {
  const auto timed = must(create_cuda_backend({}, *pool_));
  const auto plain = must(create_cuda_backend({.timed = false}, *pool_));
  const Stream a = must(timed->create_stream(StreamRole::compute));
  const Stream b = must(plain->create_stream(StreamRole::compute));
  EXPECT_EQ(plain->stall_meter(), nullptr);
  EXPECT_GT(timed->counters().events_created, plain->counters().events_created);
}

// A device that is behind gets more marks than a ring holds: nothing blocks on it, and no work is lost.
TEST_F(FakeCudaTest, ADeviceThatIsBehindLosesMarksButNoWork) {
  Stream compute = must(backend_->create_stream(StreamRole::compute));
  Stream other = must(backend_->create_stream(StreamRole::h2d));
  must(backend_->host_call_async(HostCall("copies", sleep_for, 200), other));
  const Event held = must(backend_->record(other));
  const Buffer bytes = must(backend_->allocate(MemoryKind::device, 4096));
  constexpr int kWaits = 2 * static_cast<int>(detail::kMarkRing);
  for (int i = 0; i < kWaits; ++i) {
    must(backend_->wait_on_async(held, compute));
    must(backend_->copy_async(bytes.view(), bytes.view(), compute));
  }
  EXPECT_FALSE(backend_->is_complete(held)) << "the test is too slow to be behind";
  must(backend_->host_call_async(HostCall("computes", sleep_for, 50), compute));
  must(backend_->synchronize(compute));
  const StallTimes times = backend_->stall_meter()->times();
  EXPECT_GE(seconds_of(times.of(StallCause::h2d)), 0.1);
  EXPECT_EQ(backend_->counters().copies, static_cast<std::uint64_t>(kWaits));
  // Marks are recorded again.
  must(backend_->host_call_async(HostCall("computes", sleep_for, 50), compute));
  must(backend_->synchronize(compute));
  EXPECT_GE(seconds_of((backend_->stall_meter()->times() - times).computing_ns), 0.045);
}

TEST(GpuClockTest, AMarkIsBetweenItsQueuedAndSeenTimes) {
  detail::GpuClock clock;
  EXPECT_EQ(clock.to_host_ns(500, 10'000, 20'000), 10'000);  // the first mark: there is no other bound yet
  EXPECT_EQ(clock.to_host_ns(600, 10'050, 20'000), 10'100);  // measured by the GPU's own clock
  EXPECT_EQ(clock.to_host_ns(700, 10'400, 20'000), 10'400);  // the GPU clock ran slow
  EXPECT_EQ(clock.to_host_ns(800, 10'450, 20'000), 10'500);
  EXPECT_EQ(clock.to_host_ns(5'800, 10'500, 15'000), 15'000);  // the GPU clock ran fast
  EXPECT_EQ(clock.to_host_ns(5'900, 10'600, 16'000), 15'100);
}

TEST_F(FakeCudaTest, EveryLaterCallReturnsAStickyError) {
  const Buffer held = must(backend_->allocate(MemoryKind::device, 4096));
  Stream stream = must(backend_->create_stream(StreamRole::compute));
  must(backend_->copy_async(held.view(), held.view(), stream));
  const Event event = must(backend_->record(stream));
  fail_next_cuda("cudaEventSynchronize", cudaErrorIllegalAddress);
  const Status lost = backend_->wait(event);
  EXPECT_EQ(lost.code(), Code::internal);
  EXPECT_NE(lost.message().find("GPU 0 is lost: cudaErrorIllegalAddress"), std::string_view::npos)
      << lost.message();
  EXPECT_EQ(backend_->allocate(MemoryKind::pinned, 4096).status(), lost);
  EXPECT_EQ(backend_->copy_async(held.view(), held.view(), stream), lost);
  EXPECT_TRUE(backend_->is_complete(event)) << "a poller must not spin on a dead device";
}

TEST_F(FakeCudaTest, ACallThatCannotBeQueuedReleasesItsSlot) {
  Stream stream = must(backend_->create_stream(StreamRole::cpu));
  int log[300] = {}, n = 0;
  for (int i = 0; i < 300; ++i) {  // more calls than there are slots
    fail_next_cuda("cudaLaunchHostFunc", cudaErrorInvalidValue);
    ASSERT_FALSE(backend_->host_call_async(append({log, &n, i}), stream).is_ok());
  }
  must(backend_->host_call_async(append({log, &n, 7}), stream));
  must(backend_->synchronize(stream));
  EXPECT_EQ(n, 1);
}

// Queues as many calls as there are slots, none of which ever runs.
void exhaust_call_slots(Backend& backend, Stream& stream, int* log, int* n) {
  test::drop_host_functions(true);
  for (std::size_t i = 0; i < detail::kCallRing; ++i)
    must(backend.host_call_async(append({log, n, 1}), stream));
}

TEST_F(FakeCudaTest, WaitingForACallSlotEndsWhenTheStreamHasFailed) {
  Stream stream = must(backend_->create_stream(StreamRole::cpu));
  int log[300] = {}, n = 0;
  exhaust_call_slots(*backend_, stream, log, &n);
  fail_next_cuda("cudaStreamQuery", cudaErrorIllegalAddress);
  const Status failed = backend_->host_call_async(append({log, &n, 1}), stream);
  test::drop_host_functions(false);
  EXPECT_NE(failed.message().find("GPU 0 is lost: cudaErrorIllegalAddress"), std::string_view::npos)
      << failed.message();
  EXPECT_EQ(n, 0);
}

TEST_F(FakeCudaTest, WaitingForACallSlotEndsWhenAnIdleStreamDroppedItsCalls) {
  Stream stream = must(backend_->create_stream(StreamRole::cpu));
  int log[300] = {}, n = 0;
  exhaust_call_slots(*backend_, stream, log, &n);
  const Status failed = backend_->host_call_async(append({log, &n, 1}), stream);
  test::drop_host_functions(false);
  EXPECT_NE(failed.message().find("128 of its host calls never ran"), std::string_view::npos)
      << failed.message();
}

TEST_F(FakeCudaTest, AFailedStreamCreationReleasesItsState) {
  for (int i = 0; i < 100; ++i) {  // more streams than the backend can have
    fail_next_cuda("cudaEventCreateWithFlags", cudaErrorInvalidValue);
    ASSERT_FALSE(backend_->create_stream(StreamRole::cpu).has_value());
  }
  EXPECT_TRUE(backend_->create_stream(StreamRole::cpu).has_value());
}

}  // namespace strata
