// The world of ranks that torchrun has started and that have nothing but NCCL.
#include <stdlib.h>  // setenv

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/parallel/agree.h>
#include <strata/parallel/nccl_world.h>
#include <strata/runtime/backend/cuda_device.h>
#include <strata/runtime/str.h>

#include "nccl/nccl_world.h"
#include "parallel/nccl/nccl_ranks.h"

namespace strata {
namespace {

using detail::read_torchrun;
using test::fake_nccl;
using ::testing::HasSubstr;
using Environment = std::vector<std::string>;

const Environment kSecondOfFour = {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=node-1",
                                   "MASTER_PORT=29500"};

Environment with(Environment environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& word) { return word.starts_with(name + "="); });
  if (!value.empty()) environment.push_back(name + "=" + value);
  return environment;
}

TEST(TorchrunTest, TheVariablesSayWhichRankThisIsAndWhereRankZeroListens) {
  const auto rank = must(read_torchrun(kSecondOfFour));
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.comm_id, "node-1:29501");  // torchrun listens at MASTER_PORT
  EXPECT_EQ(must(read_torchrun(with(kSecondOfFour, "MASTER_ADDR", "fe80::1"))).comm_id, "[fe80::1]:29501");
  EXPECT_EQ(must(read_torchrun(with(kSecondOfFour, "NCCL_COMM_ID", "a:7"))).comm_id, "a:7");
}

TEST(TorchrunTest, AVariableThatIsWrongOrMissingIsNamed) {
  for (const auto& [name, value] :
       {std::pair("RANK", "4"), std::pair("RANK", ""), std::pair("WORLD_SIZE", "0"),
        std::pair("LOCAL_RANK", "-1"), std::pair("MASTER_ADDR", ""), std::pair("MASTER_PORT", "65535"),
        std::pair("MASTER_PORT", "http")}) {
    const Status refused = read_torchrun(with(kSecondOfFour, name, value)).status();
    EXPECT_EQ(refused.code(), Code::invalid);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(name));
  }
}

TEST(TorchrunTest, AMachineWithoutAGpuIsRefused) {
  if (cuda_available()) GTEST_SKIP() << cuda_status();
  const Status refused = open_nccl_world(kSecondOfFour).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(built_with_nccl() ? "LOCAL_RANK=1: " : "this build has no NCCL"));
}

class NcclWorldTest : public ::testing::TestWithParam<int> {
 protected:
  using Body = std::function<void(World&, Backend&)>;
  void SetUp() override {
    fake_nccl().set_polls(1);
    fake_nccl().set_notices(true);
    // Each test has another id, as each run has.
    const std::string id =
        str(::testing::UnitTest::GetInstance()->current_test_info()->name(), " with ", GetParam());
    ASSERT_EQ(::setenv("NCCL_COMM_ID", id.c_str(), 1), 0);
  }
  void TearDown() override { ::unsetenv("NCCL_COMM_ID"); }

  /// Runs `body` for every rank with its world, and a backend on the GPU of the world.
  void on_every_rank(const Body& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < GetParam(); ++rank) threads.emplace_back([&, rank] { run(rank, body); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static void run(int rank, const Body& body) {
    test::RankDevice home = test::make_rank_device(rank, StreamSchedule::threads),
                     device = test::make_rank_device(rank, StreamSchedule::threads);
    const auto world =
        must(detail::create_nccl_world({rank, GetParam(), rank, "id"}, *home.device, std::move(home.pool),
                                       std::move(home.backend), test::fake_nccl_options()));
    EXPECT_EQ(world->rank(), rank);
    EXPECT_EQ(world->size(), GetParam());
    body(*world, *device.backend);
  }
};

TEST_P(NcclWorldTest, EveryRankLearnsTheTextsOfAll) {
  std::vector<std::string> want;
  for (int rank = 0; rank < GetParam(); ++rank)
    want.push_back(str("I am ", rank, std::string(static_cast<std::size_t>(700 * rank), 'x')));
  on_every_rank([&](World& world, Backend&) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(must(world.all_gather(want[static_cast<std::size_t>(world.rank())])), want);
      EXPECT_EQ(must(world.all_gather("")), std::vector<std::string>(want.size()));
    }
    EXPECT_THAT(world.description(), HasSubstr(str("rank ", world.rank(), " of ", GetParam())));
  });
}

TEST_P(NcclWorldTest, AGroupOfAllRanksExchangesData) {
  on_every_rank([&](World& world, Backend& backend) {
    const auto group = must(world.create_group(backend));
    EXPECT_EQ(group->rank(), world.rank());
    Stream stream = must(backend.create_stream(StreamRole::collective));
    const Buffer data = must(backend.allocate(MemoryKind::pinned, sizeof(float)));
    auto& value = *reinterpret_cast<float*>(data.view().data);
    value = static_cast<float>(world.rank() + 1);
    must(group->all_reduce(data.view(), DType::f32, Reduction::sum, stream));
    must(backend.synchronize(stream));
    EXPECT_EQ(value, static_cast<float>(world.size() * (world.size() + 1)) / 2);
  });
}

TEST_P(NcclWorldTest, AnErrorOfOneRankIsThatOfAll) {
  on_every_rank([&](World& world, Backend&) {
    const bool fails = world.rank() == world.size() - 1;
    const Status outcome = agree(&world, fails ? Status::error(Code::io_error, "a disk") : Status());
    EXPECT_EQ(outcome.code(), Code::io_error);
    EXPECT_THAT(std::string(outcome.message()), HasSubstr("a disk"));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclWorldTest, ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace strata
