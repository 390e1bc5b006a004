// How NCCL is found, and what is said when it cannot be used: with the fake, and with the real library where
// it is installed.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/backend/cuda_device.h>

#include "nccl/nccl_library.h"
#include "parallel/nccl/nccl_ranks.h"

namespace strata {
namespace {

using detail::load_nccl;
using detail::NcclApi;
using test::fake_nccl;
using ::testing::HasSubstr;

Status refusal(const std::string& library) { return load_nccl(library).status(); }

TEST(NcclLibraryTest, AFileThatIsNowhereIsReportedWithTheReason) {
  const Status refused = refusal("/nowhere/libnccl.so.2");
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("NCCL cannot be loaded; is it installed? /nowhere/libnccl.so.2"));
}

TEST(NcclLibraryTest, ALibraryWithoutTheFunctionsIsRefused) {
  EXPECT_EQ(refusal("libm.so.6").to_string(), "unsupported: libm.so.6 does not define ncclGetVersion");
}

TEST(NcclLibraryTest, AnOldLibraryIsRefusedWithBothVersions) {
  fake_nccl().set_version(21700);
  const Status refused = refusal(STRATA_FAKE_NCCL);
  fake_nccl().set_version(22809);
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is NCCL 2.17.0, but strata needs 2.18.0 or newer"));
}

TEST(NcclLibraryTest, WhatOneRankLacksIsReportedByAll) {
  test::NcclRanks ranks(3, StreamSchedule::threads);
  const auto outcomes = ranks.run([](test::Rank&) { return Status(); },
                                  [](int rank) {
                                    if (rank == 1) fake_nccl().fail_call(1, 2);
                                  });
  for (const Status& outcome : outcomes) EXPECT_EQ(outcome.code(), Code::unsupported);
  EXPECT_THAT(std::string(outcomes[0].message()), HasSubstr("rank 1: "));
  EXPECT_THAT(std::string(outcomes[1].message()), HasSubstr("ncclGetVersion: fake error"));
}

// Before any rank waits in NCCL, where nobody would tell it.
TEST(NcclLibraryTest, ARankThatCannotJoinIsKnownToAll) {
  fake_nccl().set_notices(false);
  test::NcclRanks ranks(3, StreamSchedule::threads);
  const auto outcomes = ranks.run([](test::Rank&) { return Status(); },
                                  [](int rank) {
                                    if (rank == 2) fake_nccl().fail_call(2, 2);
                                  });
  EXPECT_EQ(outcomes[0].to_string(),
            "lost_peer: rank 2: rank 2 of 3: ncclCommInitRankConfig: fake error: planted in "
            "ncclCommInitRankConfig");
}

/// All ranks of a machine with one GPU.
class OneGpu final : public detail::NcclDevice {
 public:
  Result<void*> stream_handle(Stream& stream) const override { return static_cast<void*>(&stream); }
  Status reduce_async(const detail::PieceArgs&, Stream&) const override { return {}; }
  Result<detail::GpuIdentity> identity(Stream&) const override {
    return detail::GpuIdentity{"0000:3B:00.0", 1};
  }
};

TEST(NcclLibraryTest, MoreRanksThanGpusAreRefused) {
  const OneGpu device;
  const test::RankDevice host = test::make_rank_device(0, StreamSchedule::threads);
  const auto twice = [](std::string_view text) -> Result<std::vector<std::string>> {
    return std::vector<std::string>(2, std::string(text));
  };
  const auto refused =
      detail::create_nccl_group({device, *host.backend, test::fake_nccl_options()}, 0, 2, twice);
  EXPECT_EQ(refused.status().to_string(),
            "unsupported: ranks 0 and 1 use the same GPU, 0000:3B:00.0, but NCCL needs one for each rank: 2 "
            "ranks and 1 GPU on this machine");
}

TEST(NcclLibraryTest, ABackendWithoutAGpuIsRefused) {
  const test::RankDevice host = test::make_rank_device(0, StreamSchedule::threads);
  const auto worlds = must(create_thread_worlds(1));
  const Status refused = create_nccl_group(*worlds[0], *host.backend).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(built_with_nccl() ? "moves the memory of GPUs" : "this build has no NCCL"));
}

// --- the real library ---

class RealNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto loaded = load_nccl(NcclOptions().file);
    if (!loaded.has_value()) GTEST_SKIP() << loaded.status().message();
    api_ = *loaded;
  }
  std::shared_ptr<const NcclApi> api_;
};

TEST_F(RealNcclTest, HasAVersionAndAllFunctions) {
  EXPECT_GE(api_->version, detail::kOldestNccl);
  EXPECT_THAT(detail::nccl_version_text(api_->version), HasSubstr("2."));
  EXPECT_STREQ(api_->error_string(detail::kNcclSuccess), "no error");
  EXPECT_THAT(api_->error_string(detail::kNcclInProgress), HasSubstr("progress"));
}

TEST_F(RealNcclTest, MakesUniqueIds) {
  detail::NcclUniqueId first{}, second{};
  ASSERT_EQ(api_->get_unique_id(&first), detail::kNcclSuccess);
  ASSERT_EQ(api_->get_unique_id(&second), detail::kNcclSuccess);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
}

TEST_F(RealNcclTest, RefusesACommunicatorWithoutAGpu) {
  if (cuda_available()) GTEST_SKIP() << cuda_status();
  detail::NcclUniqueId id{};
  ASSERT_EQ(api_->get_unique_id(&id), detail::kNcclSuccess);
  detail::NcclComm comm(api_, 0, 1, std::chrono::seconds(20));
  const Status started = comm.start(id);
  const Status refused = started.is_ok() ? comm.wait_until_joined({}) : started;
  EXPECT_EQ(refused.code(), Code::lost_peer);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 0 of 1: ncclCommInitRankConfig: "));
}

}  // namespace
}  // namespace strata
