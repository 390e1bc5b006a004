// How every transport of ProcessGroup fails.
#include <gmock/gmock.h>

#include <strata/runtime/str.h>

#include "parallel/process_group_fixture.h"

namespace strata {
namespace {

using test::Bytes;
using test::ProcessGroupTest;
using test::Rank;
using test::RankBuffer;
using test::values_of;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST_P(ProcessGroupTest, AListThatOneRankGetsWrongIsNamedByEveryRank) {
  must_run([&](Rank& rank) -> Status {
    const bool wrong = rank.index() == size() - 1;
    std::vector<int> members;
    for (int q = 0; q < size(); ++q) members.push_back(q);
    if (wrong) members.push_back(size());
    const Status refused = rank.group.split(members).status();
    EXPECT_EQ(refused.code(), Code::invalid);
    EXPECT_THAT(std::string(refused.message()),
                AnyOf(HasSubstr("there is no rank"), HasSubstr("do not list the same")));
    members.resize(n());
    const auto whole = must(rank.group.split(members));
    EXPECT_EQ(whole->rank(), rank.index());
    return {};
  });
}

TEST_P(ProcessGroupTest, ACallThatAllRanksGetWrongIsRefusedAndTheNextOnesWork) {
  must_run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(64));
    const Status wrong =
        rank.group.all_reduce(data.view().part(0, 63), DType::f32, Reduction::sum, rank.stream);
    EXPECT_EQ(wrong.code(), Code::invalid);
    EXPECT_THAT(std::string(wrong.message()),
                HasSubstr("all_reduce: 63 bytes are not a whole number of f32"));
    return rank.finish(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
  });
}

// Where ranks are processes, the others learn of it when the rank leaves the group.
TEST_P(ProcessGroupTest, FailedWorkOfOneRankFailsTheStreamsOfAll) {
  if (ranks_->on_fake_cuda()) GTEST_SKIP() << "a CUDA stream runs its kernels nevertheless";
  ranks_->run([&](Rank& rank) -> Status {
    const RankBuffer data(rank, Bytes(64));
    const bool fails = rank.index() == size() - 1;
    if (fails) {
      const auto fail = [](const int&, ThreadPool&) {
        return Status::error(Code::io_error, "the disk of one rank");
      };
      STRATA_TRY(rank.backend.host_call_async(HostCall("fail", fail, 0), rank.stream));
    }
    STRATA_TRY(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
    if (fails) {
      EXPECT_EQ(rank.backend.synchronize(rank.stream).code(), Code::io_error);
      rank.leave();
      return Status::error(Code::io_error, "this rank ends");
    }
    Status status = rank.backend.synchronize(rank.stream);
    EXPECT_THAT(status.code(), AnyOf(Code::io_error, Code::lost_peer));
    return status;
  });
}

TEST_P(ProcessGroupTest, WhoeverWaitsForARankThatHasLeftIsCancelled) {
  if (size() == 1) return;
  ranks_->run([&](Rank& rank) -> Status {
    Status gone = Status::error(Code::lost_peer, str("rank 1 of ", size(), " has left the group"));
    if (rank.index() == 1) {
      rank.leave();
      return gone;
    }
    const RankBuffer data(rank, Bytes(64));
    const auto all_reduce = [&] {
      return rank.finish(rank.group.all_reduce(data.view(), DType::f32, Reduction::sum, rank.stream));
    };
    const Status lost = all_reduce();
    EXPECT_EQ(lost.code(), Code::lost_peer);
    EXPECT_TRUE(lost == gone || !ranks_->names_who_left()) << lost.to_string();
    EXPECT_EQ(all_reduce().to_string(), lost.to_string());
    EXPECT_EQ(rank.group.receive(data.view(), 1, rank.stream).code(), Code::lost_peer);
    return gone;
  });
}

// A message that a rank has sent before it left arrives.
TEST_P(ProcessGroupTest, ARankMayLeaveWhenItsOwnPartIsDone) {
  for (int round = 0; round < 5; ++round)
    must_run([&](Rank& rank) -> Status {
      const RankBuffer data(rank, values_of(rank.index(), DType::f32, 50000));
      STRATA_TRY(rank.group.broadcast(data.view(), 0, rank.stream));
      EXPECT_EQ(data.contents(), values_of(0, DType::f32, 50000));
      rank.leave();
      return {};
    });
}

}  // namespace
}  // namespace strata
