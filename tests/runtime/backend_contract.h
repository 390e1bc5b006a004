#pragma once

// The contract of all backends: code that uses Backend& may rely on these guarantees and no others. The host
// kinds and CUDA instantiate it in separate programs, so that the latter can have the label gpu.
#include <strata/runtime/backend/backend.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/backend/null_backend.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/units.h>

namespace strata {

constexpr std::size_t kCap = 1 * kMiB;
constexpr std::size_t kBytes = 64 * kKiB;

enum class BackendKind { host_threads, host_latest_legal, null, cuda };
inline std::string name_of(BackendKind kind) {
  switch (kind) {
    case BackendKind::host_threads:
      return "host_threads";
    case BackendKind::host_latest_legal:
      return "host_latest_legal";
    case BackendKind::null:
      return "null";
    case BackendKind::cuda:
      return "cuda";
  }
  return "unknown";
}

inline void PrintTo(BackendKind kind, std::ostream* os) { *os << name_of(kind); }

class BackendContractTest : public ::testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override {
    if (GetParam() == BackendKind::cuda && !cuda_available()) GTEST_SKIP() << cuda_status();
    backend_ = make(kCap);
  }

  std::unique_ptr<Backend> make(std::size_t cap) {
    switch (GetParam()) {
      case BackendKind::host_threads:
        return must(create_host_backend({.device_bytes = cap, .pinned_bytes = cap}, *pool_, clock_));
      case BackendKind::host_latest_legal:
        return must(create_host_backend({.device_bytes = cap,
                                         .pinned_bytes = cap,
                                         .schedule = StreamSchedule::latest_legal,
                                         .check = true},
                                        *pool_, clock_));
      case BackendKind::null:
        return must(create_null_backend({.device_bytes = cap, .pinned_bytes = cap}));
      case BackendKind::cuda:
        return must(create_cuda_backend({.device_bytes = cap, .pinned_bytes = cap}, *pool_));
    }
    return nullptr;
  }
  bool computes() const { return GetParam() != BackendKind::null; }
  Buffer device(std::size_t bytes = kBytes) { return must(backend_->allocate(MemoryKind::device, bytes)); }
  Buffer pinned(std::size_t bytes = kBytes) { return must(backend_->allocate(MemoryKind::pinned, bytes)); }
  Stream stream(StreamRole role) { return must(backend_->create_stream(role)); }

  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  SteadyClock clock_;
  std::unique_ptr<Backend> backend_;
};

struct Append {
  int* log;
  int* n;
  int value;
};
inline HostCall append(const Append& state) {
  return HostCall(
      "append", [](const Append& s, ThreadPool&) { s.log[(*s.n)++] = s.value; }, state);
}
inline HostCall fail_with(const char* message) {
  return HostCall(
      "failing", [](const char* const& text, ThreadPool&) { return Status::error(Code::io_error, text); },
      message);
}

TEST_P(BackendContractTest, WorkOnAStreamRunsInTheOrderItWasQueued) {
  if (!computes()) GTEST_SKIP() << "the null backend runs nothing";
  int log[64] = {}, n = 0;
  Stream compute = stream(StreamRole::compute);
  for (int i = 0; i < 64; ++i) must(backend_->host_call_async(append({log, &n, i}), compute));
  must(backend_->synchronize(compute));
  EXPECT_EQ(n, 64);
  EXPECT_TRUE(std::is_sorted(std::begin(log), std::end(log)));
}

TEST_P(BackendContractTest, AnEventOrdersTwoStreams) {
  if (!computes()) GTEST_SKIP() << "the null backend runs nothing";
  int log[64] = {}, n = 0;
  Stream a = stream(StreamRole::compute), b = stream(StreamRole::cpu);
  for (int i = 0; i < 64; ++i) {
    Stream& mine = i % 2 == 0 ? a : b;
    Stream& other = i % 2 == 0 ? b : a;
    must(backend_->host_call_async(append({log, &n, i}), mine));
    must(backend_->wait_on_async(must(backend_->record(mine)), other));
  }
  must(backend_->synchronize(a));
  must(backend_->synchronize(b));
  EXPECT_TRUE(std::is_sorted(std::begin(log), std::end(log)));
}

TEST_P(BackendContractTest, CopiesWorkInBothDirections) {
  if (!computes()) GTEST_SKIP() << "the null backend moves nothing";
  const Buffer from = pinned(), on = device(), back = pinned();
  std::memset(from.view().data, 0x5A, kBytes);
  Stream h2d = stream(StreamRole::h2d), d2h = stream(StreamRole::d2h);
  must(backend_->copy_async(on.view(), from.view(), h2d));
  must(backend_->wait_on_async(must(backend_->record(h2d)), d2h));
  must(backend_->copy_async(back.view(), on.view(), d2h));
  must(backend_->synchronize(d2h));
  EXPECT_EQ(std::memcmp(from.view().data, back.view().data, kBytes), 0);
}

TEST_P(BackendContractTest, AnEventIsCompleteAfterAWaitAndStaysComplete) {
  const Buffer from = pinned(), on = device();
  Stream h2d = stream(StreamRole::h2d);
  must(backend_->copy_async(on.view(), from.view(), h2d));
  const Event event = must(backend_->record(h2d));
  must(backend_->wait(event));
  for (int i = 0; i < 3000; ++i) {
    must(backend_->copy_async(on.view().part(0, 8), ConstBufferView(from.view().data, 8), h2d));
    (void)must(backend_->record(h2d));
  }
  EXPECT_TRUE(backend_->is_complete(event));
  must(backend_->wait(event));
  EXPECT_TRUE(backend_->is_complete(Event{}));
}

TEST_P(BackendContractTest, PollingSeesAnEventComplete) {
  const Buffer from = pinned(), on = device();
  Stream h2d = stream(StreamRole::h2d);
  must(backend_->copy_async(on.view(), from.view(), h2d));
  const Event event = must(backend_->record(h2d));
  while (!backend_->is_complete(event)) {
  }
  SUCCEED();
}

TEST_P(BackendContractTest, TheFirstErrorSticksAndLaterWorkIsSkipped) {
  if (!computes()) GTEST_SKIP() << "the null backend runs nothing";
  int log[4] = {}, n = 0;
  Stream compute = stream(StreamRole::compute);
  must(backend_->host_call_async(append({log, &n, 1}), compute));
  const Event before = must(backend_->record(compute));
  must(backend_->host_call_async(fail_with("disk on fire"), compute));
  must(backend_->host_call_async(fail_with("second"), compute));
  must(backend_->host_call_async(append({log, &n, 2}), compute));
  const Status status = backend_->synchronize(compute);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(status.message(), "disk on fire");
  EXPECT_EQ(backend_->synchronize(compute), status);
  EXPECT_EQ(n, 1);
  EXPECT_TRUE(backend_->wait(before).is_ok());
}

TEST_P(BackendContractTest, AnErrorReachesTheStreamsThatWaitForIt) {
  if (!computes()) GTEST_SKIP() << "the null backend runs nothing";
  int log[4] = {}, n = 0;
  Stream a = stream(StreamRole::cpu), b = stream(StreamRole::h2d), c = stream(StreamRole::compute);
  must(backend_->host_call_async(fail_with("lost"), a));
  must(backend_->wait_on_async(must(backend_->record(a)), b));
  must(backend_->wait_on_async(must(backend_->record(b)), c));
  must(backend_->host_call_async(append({log, &n, 1}), c));
  EXPECT_EQ(backend_->synchronize(c).message(), "lost");
  EXPECT_EQ(n, 0);
}

TEST_P(BackendContractTest, AnEarlierEventDoesNotCarryALaterError) {
  if (!computes()) GTEST_SKIP() << "the null backend runs nothing";
  Stream a = stream(StreamRole::cpu), b = stream(StreamRole::compute);
  const Event early = must(backend_->record(a));
  must(backend_->host_call_async(fail_with("later"), a));
  EXPECT_FALSE(backend_->synchronize(a).is_ok());
  must(backend_->wait_on_async(early, b));
  EXPECT_TRUE(backend_->synchronize(b).is_ok());
}

TEST_P(BackendContractTest, AnExceptionInAHostCallBecomesItsError) {
  if (!computes()) GTEST_SKIP() << "the null backend runs nothing";
  Stream compute = stream(StreamRole::compute);
  const HostCall throwing(
      "solver",
      [](const int& n, ThreadPool&) {
        if (n > 0) throw std::runtime_error("diverged");
      },
      1);
  must(backend_->host_call_async(throwing, compute));
  const Status status = backend_->synchronize(compute);
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_NE(status.message().find("solver threw: diverged"), std::string_view::npos) << status.message();
}

TEST_P(BackendContractTest, AnAllocationPastTheCapIsRefusedWithTheNumbers) {
  const Buffer held = device(kCap - 8192);
  const Status status = backend_->allocate(MemoryKind::device, 8193).status();
  EXPECT_EQ(status.code(), Code::does_not_fit);
  for (const char* part : {"device", "8193", "8192", "1048576"})
    EXPECT_NE(status.message().find(part), std::string_view::npos) << status.message();
  EXPECT_TRUE(backend_->allocate(MemoryKind::device, 8192).has_value());
  EXPECT_EQ(backend_->allocate(MemoryKind::pinned, kCap + 1).status().code(), Code::does_not_fit);
  EXPECT_EQ(backend_->allocate(MemoryKind::pinned, 0).status().code(), Code::invalid);
}

TEST_P(BackendContractTest, FreedBuffersReturnTheirBytesAndBuffersAreAligned) {
  for (int i = 0; i < 100; ++i) {
    Buffer all = device(kCap);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.view().data) % 4096, 0u);
    Buffer moved = std::move(all);
    moved = Buffer();
  }
  EXPECT_EQ(backend_->counters().buffers_created, 100u);
}

TEST_P(BackendContractTest, CountersReportBytesByRole) {
  const Buffer from = pinned(), on = device();
  Stream h2d = stream(StreamRole::h2d), d2h = stream(StreamRole::d2h);
  must(backend_->copy_async(on.view(), from.view(), h2d));
  must(backend_->synchronize(h2d));
  must(backend_->copy_async(from.view().part(0, 100), ConstBufferView(on.view().data, 100), d2h));
  must(backend_->synchronize(d2h));
  const BackendCounters counters = backend_->counters();
  EXPECT_EQ(counters.copies, 2u);
  EXPECT_EQ(counters.copied_bytes[static_cast<std::size_t>(StreamRole::h2d)], kBytes);
  EXPECT_EQ(counters.copied_bytes[static_cast<std::size_t>(StreamRole::d2h)], 100u);
  EXPECT_EQ(counters.streams_created, 2u);
}

TEST_P(BackendContractTest, ACopyWithUnequalSizesOrPastAnEndIsRefused) {
  const Buffer from = pinned(), on = device();
  Stream h2d = stream(StreamRole::h2d);
  EXPECT_EQ(backend_->copy_async(on.view(), ConstBufferView(from.view().data, 8), h2d).code(), Code::invalid);
  EXPECT_EQ(backend_->copy_async({on.view().data + 1, kBytes}, from.view(), h2d).code(), Code::invalid);
  EXPECT_EQ(backend_->host_call_async(HostCall(), h2d).code(), Code::invalid);
  EXPECT_TRUE(backend_->synchronize(h2d).is_ok());
}

TEST_P(BackendContractTest, AFullQueueBlocksTheProducerAndLosesNothing) {
  if (!computes()) GTEST_SKIP() << "the null backend runs nothing";
  std::vector<int> log(5000);
  int n = 0;
  Stream compute = stream(StreamRole::compute);
  for (int i = 0; i < 5000; ++i) must(backend_->host_call_async(append({log.data(), &n, i}), compute));
  must(backend_->synchronize(compute));
  EXPECT_EQ(n, 5000);
  EXPECT_TRUE(std::is_sorted(log.begin(), log.end()));
}

TEST_P(BackendContractTest, QueueingAllocatesNothing) {
  if (GetParam() == BackendKind::host_latest_legal)
    GTEST_SKIP() << "the happens-before check allocates its records";
  const Buffer from = pinned(), on = device();
  Stream h2d = stream(StreamRole::h2d), compute = stream(StreamRole::compute);
  int log[64] = {}, n = 0;
  const BackendCounters before = backend_->counters();
  AllocCounter::set_armed(true);
  const std::uint64_t allocations = AllocCounter::count();
  for (int i = 0; i < 64; ++i) {
    must(backend_->copy_async(on.view(), from.view(), h2d));
    must(backend_->wait_on_async(must(backend_->record(h2d)), compute));
    must(backend_->host_call_async(append({log, &n, i}), compute));
    must(backend_->discard_async(on.view(), compute));
    must(backend_->wait_on_async(must(backend_->record(compute)), h2d));
  }
  must(backend_->synchronize(h2d));
  const std::uint64_t after = AllocCounter::count();
  AllocCounter::set_armed(false);
  EXPECT_TRUE(AllocCounter::hooked());
  EXPECT_EQ(after - allocations, 0u);
  EXPECT_EQ(backend_->counters().events_created, before.events_created);
  EXPECT_EQ(backend_->counters().buffers_created, before.buffers_created);
}

TEST_P(BackendContractTest, DestroyingAStreamDrainsItAndItsSlotIsReused) {
  int log[300] = {}, n = 0;
  Event last;
  for (int i = 0; i < 300; ++i) {
    Stream compute = stream(StreamRole::compute);
    must(backend_->host_call_async(append({log, &n, i}), compute));
    last = must(backend_->record(compute));
  }
  EXPECT_EQ(n, computes() ? 300 : 0);
  EXPECT_TRUE(backend_->is_complete(last));
  EXPECT_EQ(backend_->counters().streams_created, 300u);
}

}  // namespace strata
