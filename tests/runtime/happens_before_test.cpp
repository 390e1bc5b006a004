// The classic stream-order bugs, each of which the happens-before check must report, and correct programs, in
// which it must report nothing.
#include <strata/runtime/backend/backend.h>

#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/clock.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

constexpr std::size_t kBytes = 4 * kKiB;

struct Touch {
  std::uint32_t* to;
  const std::uint32_t* from;
};
/// to[0] = 31 * to[0] + from[0] on one word, which gives a different result for any two orders.
HostCall mix(const char* label, const Touch& touch, std::size_t bytes = kBytes) {
  HostCall call(
      label, [](const Touch& t, ThreadPool&) { *t.to = 31 * *t.to + (t.from != nullptr ? *t.from : 7); },
      touch);
  call.writes(touch.to, bytes);
  if (touch.from != nullptr) call.reads(touch.from, bytes);
  return call;
}
std::uint32_t* words(const Buffer& buffer, std::size_t offset = 0) {
  return reinterpret_cast<std::uint32_t*>(buffer.view().data + offset);
}

class HappensBeforeTest : public ::testing::TestWithParam<StreamSchedule> {
 protected:
  Buffer device(std::size_t bytes = kBytes) { return must(backend_->allocate(MemoryKind::device, bytes)); }
  Buffer pinned(std::size_t bytes = kBytes) { return must(backend_->allocate(MemoryKind::pinned, bytes)); }
  Event record(Stream& stream) { return must(backend_->record(stream)); }
  static void expect_names(const Status& status, std::initializer_list<std::string_view> parts) {
    EXPECT_EQ(status.code(), Code::internal);
    for (const std::string_view part : parts)
      EXPECT_NE(status.message().find(part), std::string_view::npos)
          << "'" << part << "' is not in: " << status.message();
  }

  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(1));
  SteadyClock clock_;
  std::unique_ptr<Backend> backend_ =
      must(create_host_backend({.schedule = GetParam(), .check = true, .queue_depth = 64}, *pool_, clock_));
  Stream compute_ = must(backend_->create_stream(StreamRole::compute));
  Stream h2d_ = must(backend_->create_stream(StreamRole::h2d));
  Stream d2h_ = must(backend_->create_stream(StreamRole::d2h));
};

TEST_P(HappensBeforeTest, ASourceReusedBeforeTheCopyEndsIsFound) {
  const Buffer staging = pinned(), on = device();
  must(backend_->copy_async(on.view(), staging.view(), h2d_));
  const Status status = backend_->host_access({staging.view().data, 16, true});
  expect_names(status, {"copy on h2d stream 1", "reads pinned buffer 0 [0, 4096)",
                        "the host writes pinned buffer 0 [0, 16)"});
  must(backend_->synchronize(h2d_));
  EXPECT_TRUE(backend_->host_access({staging.view().data, 16, true}).is_ok());
}

TEST_P(HappensBeforeTest, AConsumerThatReadsBeforeTheCopyCompletesIsFound) {
  const Buffer staging = pinned(), on = device(), out = device();
  must(backend_->copy_async(on.view(), staging.view(), h2d_));
  must(backend_->host_call_async(mix("matmul", {words(out), words(on)}), compute_));
  expect_names(backend_->synchronize(compute_),
               {"copy on h2d", "writes device buffer 1", "matmul on compute", "reads device buffer 1"});
}

TEST_P(HappensBeforeTest, TwoProducersOfOneBufferAreFound) {
  const Buffer bucket = device(), a = device(), b = device();
  must(backend_->host_call_async(mix("grad of a", {words(bucket), nullptr}), compute_));
  must(backend_->host_call_async(mix("grad of b", {words(bucket), nullptr}), d2h_));
  expect_names(backend_->synchronize(d2h_),
               {"grad of a on compute", "grad of b on d2h", "writes device buffer 0"});
}

TEST_P(HappensBeforeTest, ABufferReusedWhileASecondStreamReadsItIsFound) {
  const Buffer slab = device(), back = pinned();
  must(backend_->host_call_async(mix("old owner", {words(slab), nullptr}), compute_));
  must(backend_->wait_on_async(record(compute_), d2h_));
  must(backend_->copy_async(back.view(), slab.view(), d2h_));
  must(backend_->host_call_async(mix("new owner", {words(slab), nullptr}), compute_));
  expect_names(backend_->synchronize(compute_),
               {"copy on d2h", "reads device buffer 0", "new owner on compute", "writes device buffer 0"});
}

TEST_P(HappensBeforeTest, ABufferFreedWhileAStreamUsesItIsFound) {
  const Buffer back = pinned();
  {
    const Buffer temporary = device();
    must(backend_->host_call_async(mix("matmul", {words(temporary), nullptr}), compute_));
  }
  expect_names(backend_->synchronize(compute_),
               {"device buffer 1 [0, 4096) is freed while matmul on compute"});
}

TEST_P(HappensBeforeTest, AUseAfterFreeIsFound) {
  const Buffer back = pinned();
  BufferView gone;
  {
    const Buffer temporary = device();
    gone = temporary.view();
  }
  must(backend_->copy_async(back.view(), gone, d2h_));
  expect_names(backend_->synchronize(d2h_), {"copy reads device buffer 1", "which was freed"});
}

TEST_P(HappensBeforeTest, AHostThatReadsBeforeItWaitsIsFound) {
  const Buffer on = device(), back = pinned();
  must(backend_->copy_async(back.view(), on.view(), d2h_));
  const Event landed = record(d2h_);
  expect_names(backend_->host_access({back.view().data, kBytes, false}),
               {"the host did not wait", "copy on d2h", "the host reads pinned buffer 1"});
  must(backend_->wait(landed));
  EXPECT_TRUE(backend_->host_access({back.view().data, kBytes, false}).is_ok());
}

TEST_P(HappensBeforeTest, PollingUntilCompleteCountsAsWaiting) {
  const Buffer on = device(), back = pinned();
  must(backend_->copy_async(back.view(), on.view(), d2h_));
  const Event landed = record(d2h_);
  while (!backend_->is_complete(landed)) {
  }
  EXPECT_TRUE(backend_->host_access({back.view().data, kBytes, true}).is_ok());
}

TEST_P(HappensBeforeTest, ADiscardCountsAsAWrite) {
  const Buffer on = device(), back = pinned();
  must(backend_->copy_async(back.view(), on.view(), d2h_));
  must(backend_->discard_async(on.view(), compute_));
  expect_names(backend_->synchronize(compute_), {"copy on d2h", "discard on compute"});
}

TEST_P(HappensBeforeTest, AnEventRecordedTooEarlyDoesNotOrderLaterWork) {
  const Buffer staging = pinned(), other = device(), on = device(), out = device();
  must(backend_->copy_async(other.view(), staging.view(), h2d_));
  const Event early = record(h2d_);
  must(backend_->copy_async(on.view(), staging.view(), h2d_));
  must(backend_->wait_on_async(early, compute_));
  must(backend_->host_call_async(mix("first", {words(out), words(other)}), compute_));
  EXPECT_TRUE(backend_->synchronize(compute_).is_ok());
  must(backend_->host_call_async(mix("second", {words(out), words(on)}), compute_));
  expect_names(backend_->synchronize(compute_), {"copy on h2d", "second on compute"});
}

TEST_P(HappensBeforeTest, ADeclaredRangePastItsBufferIsFound) {
  const Buffer small = device();
  must(backend_->host_call_async(mix("matmul", {words(small), nullptr}, kBytes + 4), compute_));
  expect_names(backend_->synchronize(compute_),
               {"matmul writes device buffer 0 [0, 4100), past its end at 4096"});
}

TEST_P(HappensBeforeTest, ConcurrentReadersAndDisjointWritersAreClean) {
  const Buffer on = device(), a = pinned(), b = device();
  must(backend_->host_call_async(mix("left", {words(on), nullptr}, kBytes / 2), compute_));
  must(backend_->host_call_async(mix("right", {words(on, kBytes / 2), nullptr}, kBytes / 2), h2d_));
  must(backend_->wait_on_async(record(h2d_), compute_));
  must(backend_->wait_on_async(record(compute_), d2h_));  // carries the wait for h2d's work along
  must(backend_->copy_async(a.view(), on.view(), d2h_));
  must(backend_->host_call_async(mix("reader", {words(b), words(on)}), compute_));
  EXPECT_TRUE(backend_->synchronize(d2h_).is_ok());
  EXPECT_TRUE(backend_->synchronize(compute_).is_ok());
}

TEST_P(HappensBeforeTest, AStagingRingThatWaitsIsCleanForManyRounds) {
  const Buffer staging = pinned(), on = device(2 * kBytes), out = device();
  std::optional<Event> read[2];
  std::optional<Event> uploaded;
  for (int i = 0; i < 5000; ++i) {
    const BufferView half = on.view().part(i % 2 == 0 ? 0 : kBytes, kBytes);
    if (uploaded) must(backend_->wait(*uploaded));
    must(backend_->host_access({staging.view().data, kBytes, true}));
    std::fill_n(words(staging), kBytes / 4, static_cast<std::uint32_t>(i));
    if (read[i % 2]) must(backend_->wait_on_async(*read[i % 2], h2d_));
    must(backend_->copy_async(half, staging.view(), h2d_));
    uploaded = record(h2d_);
    must(backend_->wait_on_async(*uploaded, compute_));
    must(backend_->host_call_async(mix("use", {words(out), reinterpret_cast<std::uint32_t*>(half.data)}),
                                   compute_));
    read[i % 2] = record(compute_);
  }
  EXPECT_TRUE(backend_->synchronize(compute_).is_ok());
}

INSTANTIATE_TEST_SUITE_P(Schedules, HappensBeforeTest,
                         ::testing::Values(StreamSchedule::threads, StreamSchedule::latest_legal),
                         [](const auto& test) {
                           return test.param == StreamSchedule::threads ? "threads" : "latest_legal";
                         });

// Random programs on a few buffers and streams. A naive model computes what every word must be and which
// waits are needed; one of the waits can be left out.
struct RandomProgram {
  static constexpr int kBuffers = 6, kStreams = 4, kOps = 60;
  struct Op {
    int stream, to, from;
  };
  std::vector<Op> ops;
  explicit RandomProgram(unsigned seed) {
    std::mt19937 rng(seed);
    for (int i = 0; i < kOps; ++i)
      ops.push_back({static_cast<int>(rng() % kStreams), static_cast<int>(rng() % kBuffers),
                     static_cast<int>(rng() % kBuffers)});
  }
  std::vector<std::uint32_t> serial() const {
    std::vector<std::uint32_t> at(kBuffers, 1);
    for (const Op& op : ops)
      at[static_cast<std::size_t>(op.to)] =
          31 * at[static_cast<std::size_t>(op.to)] + at[static_cast<std::size_t>(op.from)];
    return at;
  }
};

struct Outcome {
  Status status;
  std::vector<std::uint32_t> values;
  int waits = 0;
};

/// Runs `program` without its `drop`-th cross-stream wait (-1: with all of them).
class RandomRun {
 public:
  RandomRun(const RandomProgram& program, StreamSchedule schedule, bool check, int drop)
      : backend_(must(
            create_host_backend({.schedule = schedule, .check = check, .queue_depth = 16}, *pool_, clock_))),
        drop_(drop) {
    for (int i = 0; i < RandomProgram::kBuffers; ++i) {
      buffers_.push_back(must(backend_->allocate(MemoryKind::device, kBytes)));
      *words(buffers_.back()) = 1;
    }
    for (int i = 0; i < RandomProgram::kStreams; ++i)
      streams_.push_back(must(backend_->create_stream(StreamRole::compute)));
    for (const RandomProgram::Op& op : program.ops) queue(op);
  }
  Outcome finish() {
    Outcome outcome;
    for (Stream& stream : streams_)
      if (Status status = backend_->synchronize(stream); !status.is_ok() && outcome.status.is_ok())
        outcome.status = status;
    for (const Buffer& buffer : buffers_) outcome.values.push_back(*words(buffer));
    outcome.waits = waits_;
    return outcome;
  }

 private:
  struct LastUse {
    Event write;
    std::vector<Event> reads;
  };
  void need(const Event& event, Stream& stream) {
    if (event.stream < 0 || event.stream == stream.id()) return;
    if (waits_++ != drop_) must(backend_->wait_on_async(event, stream));
  }
  void queue(const RandomProgram::Op& op) {
    Stream& stream = streams_[static_cast<std::size_t>(op.stream)];
    LastUse &to = uses_[static_cast<std::size_t>(op.to)], &from = uses_[static_cast<std::size_t>(op.from)];
    need(from.write, stream);
    need(to.write, stream);
    for (const Event& read : to.reads) need(read, stream);
    const Touch touch{words(buffers_[static_cast<std::size_t>(op.to)]),
                      words(buffers_[static_cast<std::size_t>(op.from)])};
    must(backend_->host_call_async(mix("mix", touch), stream));
    const Event done = must(backend_->record(stream));
    from.reads.push_back(done);
    to = {done, {}};
  }

  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(1));
  SteadyClock clock_;
  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
  std::vector<Stream> streams_;
  LastUse uses_[RandomProgram::kBuffers];
  int drop_, waits_ = 0;
};

TEST(RandomStreamGraphTest, CorrectProgramsComputeTheSameInLatestLegalOrderAndAreClean) {
  const unsigned first = std::random_device{}();
  for (unsigned seed = first; seed != first + 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const RandomProgram program(seed);
    const Outcome outcome = RandomRun(program, StreamSchedule::latest_legal, true, -1).finish();
    ASSERT_TRUE(outcome.status.is_ok()) << outcome.status.message();
    ASSERT_EQ(outcome.values, program.serial());
  }
}

TEST(RandomStreamGraphTest, CorrectProgramsComputeTheSameOnThreads) {
  const unsigned first = std::random_device{}();
  for (unsigned seed = first; seed != first + 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const RandomProgram program(seed);
    ASSERT_EQ(RandomRun(program, StreamSchedule::threads, false, -1).finish().values, program.serial());
  }
}

// Some waits are implied by others, so dropping one need not be a bug. But whenever the values come out
// wrong, the check must have reported it, and a real bug must turn up within a few seeds.
TEST(RandomStreamGraphTest, ADroppedWaitIsReportedWheneverItMatters) {
  const unsigned first = std::random_device{}();
  int reported = 0, wrong = 0;
  for (unsigned seed = first; seed != first + 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const RandomProgram program(seed);
    const int waits = RandomRun(program, StreamSchedule::latest_legal, false, -1).finish().waits;
    const int drop = static_cast<int>(seed % static_cast<unsigned>(waits));
    const bool caught = !RandomRun(program, StreamSchedule::latest_legal, true, drop).finish().status.is_ok();
    const bool spoilt =
        RandomRun(program, StreamSchedule::latest_legal, false, drop).finish().values != program.serial();
    reported += caught ? 1 : 0;
    wrong += spoilt ? 1 : 0;
    ASSERT_TRUE(caught || !spoilt);
  }
  EXPECT_GT(reported, 10) << "of 100 programs with a wait left out";
  EXPECT_GT(wrong, 0) << "latest legal order alone must break some of them";
}

}  // namespace
}  // namespace strata
