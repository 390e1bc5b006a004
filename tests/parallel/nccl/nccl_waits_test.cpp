// Ranks that wait for others: no longer than the timeout, and only as long as NCCL has not noticed an error.
#include <condition_variable>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nccl/nccl_library.h"
#include "parallel/nccl/nccl_ranks.h"

namespace strata {
namespace {

using test::fake_nccl;
using test::NcclRanks;
using test::Rank;
using ::testing::HasSubstr;

constexpr int kRemoteError = 6;

NcclOptions impatient() {
  NcclOptions options = test::fake_nccl_options();
  options.timeout = std::chrono::milliseconds(200);
  return options;
}

/// Lets a rank wait until another one is done.
class Signal {
 public:
  void raise() {
    const std::lock_guard lock(mutex_);
    raised_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return raised_; });
  }
  /// Returns after `time`, unless it is raised before.
  void wait_for(std::chrono::duration<double, std::milli> time) {
    std::unique_lock lock(mutex_);
    (void)changed_.wait_for(lock, time, [&] { return raised_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool raised_ = false;
};

class NcclWaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_nccl().set_polls(1);
    fake_nccl().set_notices(false);
    live_before_ = fake_nccl().n_live();
  }
  void TearDown() override { EXPECT_EQ(fake_nccl().n_live(), live_before_); }

 private:
  int live_before_ = 0;
};

/// Work of 100 ms.
Status be_busy(Stream& stream) {
  const auto busy = [](const int&, ThreadPool&) { Signal().wait_for(std::chrono::milliseconds(100)); };
  return stream.backend()->host_call_async(HostCall("busy", busy, 0), stream);
}

Status all_reduce(Rank& rank, const Buffer& data) {
  return rank.group.all_reduce(data.view().part(0, 64), DType::f32, Reduction::sum, rank.stream);
}

TEST_F(NcclWaitsTest, ARankThatHangsIsLostAfterTheTimeoutAndTheGroupStaysFailed) {
  NcclRanks ranks(3, StreamSchedule::threads, impatient());
  Signal done;
  const auto outcomes = ranks.run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64);
    if (rank.index() == 1) {
      done.wait();
      return {};
    }
    Status lost = rank.finish(all_reduce(rank, data));
    EXPECT_EQ(lost.code(), Code::lost_peer);
    EXPECT_THAT(lost.to_string(), HasSubstr("no collective has ended for 200 ms: another rank has ended"));
    EXPECT_EQ(all_reduce(rank, data), lost);
    const std::vector<int> self = {rank.index()};
    EXPECT_EQ(rank.group.split(self).status(), lost);
    if (rank.index() == 0) done.raise();
    return lost;
  });
  EXPECT_THAT(outcomes[0].to_string(), HasSubstr("rank 0 of 3"));
}

TEST_F(NcclWaitsTest, ASplitThatOneRankDoesNotCallIsGivenUp) {
  NcclRanks ranks(2, StreamSchedule::threads, impatient());
  Signal done;
  const auto outcomes = ranks.run([&](Rank& rank) -> Status {
    const std::vector<int> both = {0, 1};
    if (rank.index() == 1) {
      done.wait();
      return {};
    }
    Status lost = rank.group.split(both).status();
    done.raise();
    return lost;
  });
  EXPECT_EQ(outcomes[0].code(), Code::lost_peer);
  EXPECT_THAT(outcomes[0].to_string(), HasSubstr("no collective has ended for 200 ms"));
}

TEST_F(NcclWaitsTest, ARankThatFailsBeforeItHasJoinedIsNotWaitedFor) {
  detail::NcclComm comm(must(detail::load_nccl(STRATA_FAKE_NCCL)), 0, 2, std::chrono::minutes(10));
  detail::NcclUniqueId id{};
  ASSERT_EQ(comm.api()->get_unique_id(&id), detail::kNcclSuccess);
  must(comm.start(id));
  const Status failed = Status::error(Code::lost_peer, "rank 1 of 2 has left the group: it was killed");
  EXPECT_EQ(comm.wait_until_joined([&] { return failed; }), failed);
}

TEST_F(NcclWaitsTest, AnErrorThatNcclNoticesEndsWhatIsQueued) {
  NcclRanks ranks(2, StreamSchedule::threads);
  Signal done;
  const auto outcomes = ranks.run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64);
    if (rank.index() == 1) {
      done.wait();
      return {};
    }
    STRATA_TRY(all_reduce(rank, data));
    fake_nccl().set_async_error(0, kRemoteError);
    Status lost = rank.backend.synchronize(rank.stream);
    done.raise();
    return lost;
  });
  EXPECT_EQ(outcomes[0].to_string(), "lost_peer: rank 0 of 2: ncclCommGetAsyncError: remote process exited");
}

// The time without work does not count for the next collective, which takes a while.
TEST_F(NcclWaitsTest, AGroupWithoutWorkWaitsForNothing) {
  NcclRanks ranks(2, StreamSchedule::threads, impatient());
  Signal never;
  ranks.must_run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64);
    STRATA_TRY(rank.finish(all_reduce(rank, data)));
    never.wait_for((rank.index() == 0 ? 3 : 3.4) * impatient().timeout);
    return rank.finish(all_reduce(rank, data));
  });
}

// Work of a stream that has failed is skipped, and other streams can use the group.
TEST_F(NcclWaitsTest, SkippedWorkIsNotWaitedFor) {
  NcclRanks ranks(1, StreamSchedule::threads, impatient());
  Signal never;
  ranks.must_run([&](Rank& rank) -> Status {
    Stream failing = must(rank.backend.create_stream(StreamRole::collective));
    const Buffer data = rank.allocate(64), all = rank.allocate(64);
    const auto fail = [](const int&, ThreadPool&) { return Status::error(Code::io_error, "a disk"); };
    STRATA_TRY(rank.backend.host_call_async(HostCall("fail", fail, 0), failing));
    STRATA_TRY(rank.group.all_gather(data.view().part(0, 64), all.view().part(0, 64), failing));
    EXPECT_EQ(rank.backend.synchronize(failing).code(), Code::io_error);
    never.wait_for(3 * impatient().timeout);
    STRATA_TRY(be_busy(rank.stream));
    return rank.finish(rank.group.all_gather(data.view().part(0, 64), all.view().part(0, 64), rank.stream));
  });
}

TEST_F(NcclWaitsTest, AGroupThatIsDestroyedEndsItsWork) {
  NcclRanks ranks(2, StreamSchedule::threads);
  Signal done;
  const auto outcomes = ranks.run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64);
    if (rank.index() == 1) {
      done.wait();
      return {};
    }
    STRATA_TRY(all_reduce(rank, data));
    rank.leave();
    done.raise();
    return rank.backend.synchronize(rank.stream);
  });
  EXPECT_EQ(outcomes[0].to_string(), "lost_peer: this rank has left the group");
}

// The caller may free its buffers then.
TEST_F(NcclWaitsTest, ACallThatFailsHasNothingLeftInItsStream) {
  NcclRanks ranks(1, StreamSchedule::threads);
  ranks.run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64), all = rank.allocate(64);
    STRATA_TRY(be_busy(rank.stream));
    const Event before = must(rank.backend.record(rank.stream));
    ranks.faults(0).fail(1, false);  // the end of the collective, when NCCL has it
    EXPECT_FALSE(rank.group.all_gather(data.view().part(0, 64), all.view().part(0, 64), rank.stream).is_ok());
    EXPECT_TRUE(rank.backend.is_complete(before));
    return {};
  });
}

// --- messages ---

TEST_F(NcclWaitsTest, AnErrorNamesTheRankTheCollectiveTheFunctionAndTheTextOfNccl) {
  NcclRanks ranks(1, StreamSchedule::threads);
  const auto outcomes = ranks.run([&](Rank& rank) -> Status {
    const Buffer data = rank.allocate(64), all = rank.allocate(64);
    fake_nccl().fail_call(2, kRemoteError);
    return rank.group.all_gather(data.view().part(0, 64), all.view().part(0, 64), rank.stream);
  });
  EXPECT_EQ(
      outcomes[0].to_string(),
      "lost_peer: all_gather of 64 bytes: rank 0 of 1: ncclAllGather: remote process exited: planted in "
      "ncclAllGather");
}

}  // namespace
}  // namespace strata
