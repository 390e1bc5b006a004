// Guarantees of the host backend alone: links and pacing on a clock that the test controls, the latest_legal
// schedule, poison, memory.
#include <strata/runtime/backend/host_backend.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/backend/null_backend.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/units.h>

#include "support/manual_clock.h"

namespace strata {
namespace {

using test::ManualClock;

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::int64_t kUs = 1000;

class HostBackendTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> make(const HostBackendOptions& options) {
    return must(create_host_backend(options, *pool_, clock_));
  }
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  ManualClock clock_;
};

void acquire(std::counting_semaphore<>* const& gate, ThreadPool&) { gate->acquire(); }

void do_nothing(const int&, ThreadPool&) {}

TEST_F(HostBackendTest, SpansNameTheEventThatFollowsTheirWork) {
  Trace trace(clock_);
  std::vector<std::uint64_t> events, spans;
  {
    const auto backend = make({.trace = &trace});
    Stream stream = must(backend->create_stream(StreamRole::cpu));
    for (int i = 0; i < 3; ++i) {
      must(backend->host_call_async(HostCall("call", do_nothing, 0), stream));
      events.push_back(must(backend->record(stream)).sequence);
    }
    must(backend->synchronize(stream));
  }
  for (const Trace::TrackSpans& track : trace.spans())
    for (const Trace::Span& span : track.spans)
      if (track.name == "cpu") spans.push_back(span.work.number);
  EXPECT_EQ(spans, events);
}

TEST_F(HostBackendTest, StreamsOfTwoUsersAreTracedApart) {
  Trace first(clock_), second(clock_);
  const auto count = [](Trace& trace) {
    std::size_t n = 0;
    for (const Trace::TrackSpans& track : trace.spans()) n += track.spans.size();
    return n;
  };
  const auto backend = make({});
  Stream a = must(backend->create_stream(StreamRole::compute)),
         b = must(backend->create_stream(StreamRole::compute));
  backend->set_trace(a, &first);
  backend->set_trace(b, &second);
  for (Stream* stream : {&a, &b, &b})
    must(backend->host_call_async(HostCall("call", do_nothing, 0), *stream));
  must(backend->synchronize(a));
  must(backend->synchronize(b));
  EXPECT_EQ(count(first), 1u);
  EXPECT_EQ(count(second), 2u);
  backend->set_trace(b, nullptr);
  must(backend->host_call_async(HostCall("call", do_nothing, 0), b));
  must(backend->synchronize(b));
  EXPECT_EQ(count(second), 2u);
}

TEST_F(HostBackendTest, WaitersWakeForTheirEventsInAnyOrder) {
  const auto backend = make({});
  Stream stream = must(backend->create_stream(StreamRole::compute));
  std::counting_semaphore<> gate(0);
  std::vector<Event> events;
  for (int i = 0; i < 4; ++i) {
    must(backend->host_call_async(HostCall("acquire", acquire, &gate), stream));
    events.push_back(must(backend->record(stream)));
  }
  std::array<std::atomic<bool>, 4> woke{};
  std::vector<std::jthread> waiters;
  for (const std::size_t i : {3u, 0u, 2u, 1u})
    waiters.emplace_back([&, i] {
      must(backend->wait(events[i]));
      woke[i] = true;
      woke[i].notify_all();
    });
  for (std::size_t i = 0; i < 4; ++i) {
    gate.release();
    woke[i].wait(false);
    for (std::size_t later = i + 1; later < 4; ++later) EXPECT_FALSE(woke[later]) << later << " after " << i;
  }
}

TEST_F(HostBackendTest, AProducerBlockedByAFullQueueContinuesWhenItIsHalfEmpty) {
  const auto backend = make({.queue_depth = 4});
  Stream stream = must(backend->create_stream(StreamRole::compute));
  std::counting_semaphore<> gate(0);
  const auto queue = [&] { must(backend->host_call_async(HostCall("acquire", acquire, &gate), stream)); };
  for (int i = 0; i < 4; ++i) queue();
  std::atomic<bool> goes_on = false;
  std::jthread feeder([&] {
    queue();
    goes_on = true;
    goes_on.notify_all();
  });
  gate.release();
  gate.release();
  goes_on.wait(false);
  gate.release(3);
  must(backend->synchronize(stream));
}

/// A backend with both links at 1 GB/s and 10 us, with a device and a pinned buffer for each.
class LinkTest : public HostBackendTest {
 protected:
  static constexpr std::int64_t kCopyNs = 10 * kUs + static_cast<std::int64_t>(kBufferBytes);
  std::unique_ptr<Backend> backend_ =
      make({.h2d = {1, 10}, .d2h = {1, 10}, .paced_compute = true, .skip_arithmetic = true});
  Buffer device_ = must(backend_->allocate(MemoryKind::device, kBufferBytes)),
         device2_ = must(backend_->allocate(MemoryKind::device, kBufferBytes));
  Buffer pinned_ = must(backend_->allocate(MemoryKind::pinned, kBufferBytes)),
         pinned2_ = must(backend_->allocate(MemoryKind::pinned, kBufferBytes));
  Stream h2d_ = must(backend_->create_stream(StreamRole::h2d)),
         d2h_ = must(backend_->create_stream(StreamRole::d2h));
  Stream compute_ = must(backend_->create_stream(StreamRole::compute));
  Event record(Stream& stream) { return must(backend_->record(stream)); }
};

TEST_F(LinkTest, ACopyTakesLatencyPlusBytesOverBandwidth) {
  must(backend_->copy_async(device_.view(), pinned_.view(), h2d_));
  const Event landed = record(h2d_);
  clock_.await_waiters(1);
  clock_.advance_to(kCopyNs - 1);
  EXPECT_FALSE(backend_->is_complete(landed));
  clock_.advance_to(kCopyNs);
  must(backend_->wait(landed));
  EXPECT_EQ(backend_->counters().busy_ns[static_cast<std::size_t>(StreamRole::h2d)], kCopyNs);
}

TEST_F(LinkTest, BothDirectionsRunConcurrently) {
  must(backend_->copy_async(device_.view(), pinned_.view(), h2d_));
  must(backend_->copy_async(pinned2_.view(), device2_.view(), d2h_));
  EXPECT_EQ(clock_.await_waiters(2), (std::vector<std::int64_t>{kCopyNs, kCopyNs}));
  clock_.advance_to(kCopyNs);
  must(backend_->synchronize(h2d_));
  must(backend_->synchronize(d2h_));
}

TEST_F(LinkTest, TwoStreamsOfOneDirectionShareTheLink) {
  Stream other = must(backend_->create_stream(StreamRole::h2d));
  must(backend_->copy_async(device_.view(), pinned_.view(), h2d_));
  must(backend_->copy_async(device2_.view(), pinned2_.view(), other));
  EXPECT_EQ(clock_.await_waiters(2), (std::vector<std::int64_t>{kCopyNs, 2 * kCopyNs}));
  clock_.advance_to(2 * kCopyNs);
  must(backend_->synchronize(h2d_));
  must(backend_->synchronize(other));
}

TEST_F(LinkTest, LateWakeupsDoNotAccumulate) {
  for (int i = 0; i < 3; ++i) must(backend_->copy_async(device_.view(), pinned_.view(), h2d_));
  clock_.await_waiters(1);
  clock_.advance_to(2 * kCopyNs + 5);  // one long sleep past the end of two copies
  EXPECT_EQ(clock_.await_waiters(1), (std::vector<std::int64_t>{3 * kCopyNs}));
  clock_.advance_to(3 * kCopyNs);
  must(backend_->synchronize(h2d_));
}

TEST_F(LinkTest, PacedComputeStartsWhenItsInputArrives) {
  static int ran = 0;
  ran = 0;
  must(backend_->copy_async(device_.view(), pinned_.view(), h2d_));
  must(backend_->wait_on_async(record(h2d_), compute_));
  must(backend_->host_call_async(HostCall(
                                     "op", [](const int&, ThreadPool&) { ++ran; }, 0)
                                     .paced(50 * kUs),
                                 compute_));
  const Event done = record(compute_);
  clock_.await_waiters(1);
  clock_.advance_to(kCopyNs + 7);  // the copy's worker wakes late, which must not delay the compute stream
  must(backend_->synchronize(h2d_));
  EXPECT_EQ(clock_.await_waiters(1), (std::vector<std::int64_t>{kCopyNs + 50 * kUs}));
  EXPECT_FALSE(backend_->is_complete(done));
  clock_.advance_to(1'000'000 * kUs);
  must(backend_->wait(done));
  EXPECT_EQ(ran, 0) << "the arithmetic is skipped";
  EXPECT_EQ(backend_->counters().busy_ns[static_cast<std::size_t>(StreamRole::compute)], 50 * kUs);
}

TEST_F(LinkTest, UnpacedCallsRunAlthoughArithmeticIsSkipped) {
  int ran = 0;
  must(backend_->host_call_async(HostCall(
                                     "op", [](int* const& n, ThreadPool&) { ++*n; }, &ran),
                                 compute_));
  must(backend_->synchronize(compute_));
  EXPECT_EQ(ran, 1);
}

TEST_F(LinkTest, CopiesWithinOneMemoryAreNotPaced) {
  must(backend_->copy_async(device_.view(), device2_.view(), compute_));
  must(backend_->copy_async(pinned_.view(), pinned2_.view(), compute_));
  must(backend_->synchronize(compute_));
  EXPECT_EQ(clock_.now_ns(), 0);
}

struct Note {
  std::vector<int>* log;
  int value;
};
HostCall note(const Note& state) {
  return HostCall(
      "note", [](const Note& s, ThreadPool&) { s.log->push_back(s.value); }, state);
}

class LatestLegalTest : public HostBackendTest {
 protected:
  std::vector<int> log_;
  std::unique_ptr<Backend> backend_ = make({.schedule = StreamSchedule::latest_legal, .queue_depth = 4});
  Stream a_ = must(backend_->create_stream(StreamRole::compute)),
         b_ = must(backend_->create_stream(StreamRole::h2d));
  Stream c_ = must(backend_->create_stream(StreamRole::d2h));
};

TEST_F(LatestLegalTest, OnlyWhatAWaitNeedsRunsInDependencyOrder) {
  must(backend_->host_call_async(note({&log_, 1}), a_));
  must(backend_->wait_on_async(must(backend_->record(a_)), b_));
  must(backend_->host_call_async(note({&log_, 2}), a_));  // not needed by the wait below
  must(backend_->host_call_async(note({&log_, 3}), b_));
  must(backend_->host_call_async(note({&log_, 4}), c_));  // not needed either
  EXPECT_TRUE(log_.empty());
  must(backend_->synchronize(b_));
  EXPECT_EQ(log_, (std::vector<int>{1, 3}));
  must(backend_->synchronize(a_));
  EXPECT_EQ(log_, (std::vector<int>{1, 3, 2}));
}

TEST_F(LatestLegalTest, AFullQueueRunsOnlyItsOldestEntry) {
  for (int i = 0; i < 6; ++i) must(backend_->host_call_async(note({&log_, i}), a_));
  EXPECT_EQ(log_, (std::vector<int>{0, 1}));
}

TEST_F(LatestLegalTest, PollingAdvancesTheEventByOneEntry) {
  must(backend_->host_call_async(note({&log_, 1}), a_));
  must(backend_->host_call_async(note({&log_, 2}), a_));
  const Event event = must(backend_->record(a_));
  EXPECT_FALSE(backend_->is_complete(event));
  EXPECT_EQ(log_, (std::vector<int>{1}));
  EXPECT_FALSE(backend_->is_complete(event));
  EXPECT_TRUE(backend_->is_complete(event));
}

float first_float(BufferView view) {
  float value = 0;
  std::memcpy(&value, view.data, sizeof value);
  return value;
}

TEST_F(LatestLegalTest, ASourceRewrittenTooEarlyCorruptsTheCopy) {
  const Buffer staging = must(backend_->allocate(MemoryKind::pinned, 4096)),
               on = must(backend_->allocate(MemoryKind::device, 4096));
  std::memset(staging.view().data, 1, 4096);
  must(backend_->copy_async(on.view(), staging.view(), b_));
  std::memset(staging.view().data, 2, 4096);
  must(backend_->synchronize(b_));
  EXPECT_EQ(on.view().data[0], std::byte{2});
}

TEST_F(LatestLegalTest, NewDiscardedAndFreedMemoryIsNaN) {
  const Buffer on = must(backend_->allocate(MemoryKind::device, 8192)),
               out = must(backend_->allocate(MemoryKind::pinned, 4096));
  EXPECT_TRUE(std::isnan(first_float(on.view())));
  std::memset(on.view().data, 0, 8192);
  must(backend_->discard_async(on.view().part(4096, 4096), a_));
  EXPECT_EQ(first_float(on.view().part(4096, 4096)), 0.0F) << "in stream order, so not yet";
  must(backend_->synchronize(a_));
  EXPECT_TRUE(std::isnan(first_float(on.view().part(4096, 4096))));
  EXPECT_EQ(first_float(on.view()), 0.0F);
  {
    const Buffer freed = must(backend_->allocate(MemoryKind::device, 4096));
    std::memset(freed.view().data, 0, 4096);
    must(backend_->copy_async(out.view(), freed.view(), c_));
  }
  must(backend_->synchronize(c_));
  EXPECT_TRUE(std::isnan(first_float(out.view())));
}

TEST_F(LatestLegalTest, QuarantineIsBounded) {
  for (int i = 0; i < 100; ++i) {
    const Buffer big = must(backend_->allocate(MemoryKind::device, 16 * kMiB));
    must(backend_->discard_async(big.view(), a_));
  }
  EXPECT_EQ(backend_->counters().buffers_created, 100u);
}

std::size_t resident_bytes() {
  std::size_t size = 0, resident = 0;
  std::FILE* statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr || std::fscanf(statm, "%zu %zu", &size, &resident) != 2) resident = 0;
  if (statm != nullptr) std::fclose(statm);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
}

TEST_F(HostBackendTest, ABufferIsResidentInItsExactBytes) {
  constexpr std::size_t kOdd = 33 * kMiB + 4096;
  const std::unique_ptr<Backend> backend = make({});
  (void)must(backend->allocate(MemoryKind::pinned, kOdd));  // first let the pool allocate whatever it needs
  const std::size_t before = resident_bytes();
  const Buffer held = must(backend->allocate(MemoryKind::pinned, kOdd));
  const std::size_t grown = resident_bytes() - before;
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // their shadow memory counts too
  EXPECT_LE(grown, kOdd + 512 * kKiB);
#endif
  EXPECT_GE(grown + 64 * kKiB, kOdd);
}

TEST_F(HostBackendTest, ContradictingOptionsAreRefused) {
  EXPECT_EQ(create_host_backend({.skip_arithmetic = true}, *pool_, clock_).status().code(), Code::invalid);
  EXPECT_EQ(create_host_backend({.queue_depth = 0}, *pool_, clock_).status().code(), Code::invalid);
  EXPECT_EQ(create_host_backend({.h2d = {-1, 0}}, *pool_, clock_).status().code(), Code::invalid);
}

TEST_F(HostBackendTest, TheNullBackendAllocatesMoreThanThisMachineHas) {
  const std::unique_ptr<Backend> backend = must(create_null_backend());
  const Buffer huge = must(backend->allocate(MemoryKind::device, 256 * kGiB));
  EXPECT_EQ(huge.view().bytes, 256 * kGiB);
}

TEST(HostCallDeathTest, TooManyAccessesAbort) {
  EXPECT_DEATH(
      {
        HostCall call;
        for (std::size_t i = 0; i <= HostCall::kMaxAccesses; ++i) call.reads(&call, 1);
      },
      "more than 20 accesses");
}

using HostBackendDeathTest = HostBackendTest;
TEST_F(HostBackendDeathTest, WorkThatCallsTheBackendAborts) {
  EXPECT_DEATH(
      {
        const std::unique_ptr<Backend> backend = make({.schedule = StreamSchedule::latest_legal});
        Stream stream = must(backend->create_stream(StreamRole::cpu));
        must(backend->host_call_async(
            HostCall(
                "bad", [](Backend* const& b, ThreadPool&) { (void)b->is_complete(Event{}); }, backend.get()),
            stream));
        (void)backend->synchronize(stream);
      },
      "may not call the Backend");
}

}  // namespace
}  // namespace strata
