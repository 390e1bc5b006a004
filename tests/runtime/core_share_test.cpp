#include <strata/runtime/threads/core_share.h>

#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLarge = "package:2 numa:2 core:8 pu:2";  // 32 cores on 4 nodes
constexpr const char* kSmallMachine = "numa:1 core:4 pu:1";

LocalRank rank_of(int rank, int size) { return {rank, size, "LOCAL_RANK"}; }

CoreShare share_of(const std::string& machine, LocalRank rank = {}, const CoreShareOptions& options = {},
                   std::vector<int> mask = {}) {
  return must(partition_cores(must(synthetic_topology(machine, mask)), rank, options));
}
std::vector<int> range(int begin, int end) {
  std::vector<int> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}
std::vector<int> indices(const CoreShare& share) {
  std::vector<int> result;
  for (const CoreShare::Node& node : share.nodes) result.push_back(node.index);
  return result;
}
std::vector<int> cpus(const CoreShare& share) {
  std::vector<int> result;
  for (const CoreShare::Node& node : share.nodes)
    result.insert(result.end(), node.cpus.begin(), node.cpus.end());
  return result;
}

TEST(CoreShareTest, ASingleProcessHasEveryCoreWithOneThreadEach) {
  const CoreShare share = share_of(kSmallMachine);
  EXPECT_EQ(share.threads(), 4);
  EXPECT_EQ(share.service_cores, 0);
  EXPECT_FALSE(share.bound);  // the system places four threads on four cores well enough
  EXPECT_EQ(share.why,
            "4 threads on NUMA node 0; all 4 cores of this machine; none kept for launch and I/O threads");
}

TEST(CoreShareTest, ALargeMachineKeepsServiceCoresFromDifferentNodes) {
  const CoreShare share = share_of(kLarge);
  EXPECT_EQ(share.threads(), 30);
  EXPECT_EQ(share.service_cores, 2);
  EXPECT_TRUE(share.bound);
  EXPECT_THAT(indices(share), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(share.nodes[0].threads, 7);
  EXPECT_EQ(share.nodes[0].cpus, range(2, 16));  // without CPUs 0 and 1 of service core 0
  EXPECT_EQ(share.nodes[1].cpus, range(18, 32));
  EXPECT_EQ(share.nodes[3].cpus, range(48, 64));
  EXPECT_THAT(share.why, HasSubstr("30 threads on NUMA nodes 0-3"));
  EXPECT_THAT(share.why, HasSubstr("2 cores kept for launch and I/O threads"));
}

TEST(CoreShareTest, RanksUpToTheNodesGetWholeNodes) {
  EXPECT_THAT(indices(share_of(kLarge, rank_of(0, 2))), ElementsAre(0, 1));
  EXPECT_THAT(indices(share_of(kLarge, rank_of(1, 2))), ElementsAre(2, 3));
  EXPECT_THAT(indices(share_of(kLarge, rank_of(0, 3))), ElementsAre(0));
  EXPECT_THAT(indices(share_of(kLarge, rank_of(2, 3))), ElementsAre(2, 3));
  const CoreShare third = share_of(kLarge, rank_of(2, 4));
  EXPECT_EQ(third.nodes[0].cpus, range(34, 48));
  EXPECT_EQ(third.threads(), 7);
  EXPECT_EQ(third.service_cores, 1);
  EXPECT_THAT(third.why, HasSubstr("local rank 2 of 4 (LOCAL_RANK) has 8 of 32 cores"));
}

TEST(CoreShareTest, MoreRanksThanNodesGetContiguousCoresOfOne) {
  const CoreShare share = share_of(kLarge, rank_of(3, 8));
  EXPECT_THAT(indices(share), ElementsAre(1));
  EXPECT_EQ(share.nodes[0].cpus, range(24, 32));
  EXPECT_EQ(share.threads(), 4);
  EXPECT_TRUE(share.bound);
}

TEST(CoreShareTest, RanksFollowTheCoresOfUnequalNodes) {
  Topology machine;
  for (int cpu = 0; cpu < 8; ++cpu) machine.usable_cores.push_back({0, cpu < 2 ? 0 : 1, {cpu}});
  machine.hardware_threads = machine.usable_threads = 8;
  std::vector<std::vector<int>> shares;
  for (int r = 0; r < 4; ++r) shares.push_back(cpus(must(partition_cores(machine, rank_of(r, 4)))));
  EXPECT_THAT(shares,
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
}

TEST(CoreShareTest, EveryCoreGoesToExactlyOneRank) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13, 31, 32}) {
    std::multiset<int> assigned;
    for (int r = 0; r < ranks; ++r)
      for (const int cpu : cpus(share_of(kLarge, rank_of(r, ranks), {.service_cores = 0})))
        assigned.insert(cpu);
    EXPECT_EQ(std::vector<int>(assigned.begin(), assigned.end()), range(0, 64)) << ranks << " ranks";
  }
}

TEST(CoreShareTest, MoreRanksThanCoresShareCoresAndSaySo) {
  const CoreShare share = share_of(kSmallMachine, rank_of(5, 6));
  EXPECT_EQ(share.threads(), 1);
  EXPECT_EQ(cpus(share), range(1, 2));
  EXPECT_THAT(share.why, HasSubstr("has 1 of 4 cores, shared with other ranks"));
}

TEST(CoreShareTest, TheLaunchersAffinityMaskIsNotDividedAgain) {
  const CoreShare share = share_of(kLarge, rank_of(1, 2), {}, range(16, 24));
  EXPECT_EQ(share.threads(), 4);
  EXPECT_EQ(cpus(share), range(16, 24));
  EXPECT_FALSE(share.bound);  // the launcher has bound it already
  EXPECT_THAT(share.why, HasSubstr("the affinity mask leaves 4 cores (8 of 64 hardware threads)"));
}

TEST(CoreShareTest, AMaskOverTwoNodesIsStillBoundByNode) {
  const CoreShare share = share_of("numa:2 core:4 pu:1", {}, {}, {2, 3, 4});
  ASSERT_THAT(indices(share), ElementsAre(0, 1));
  EXPECT_TRUE(share.bound);
  EXPECT_EQ(share.nodes[0].threads, 2);
  EXPECT_EQ(share.nodes[1].threads, 1);
}

TEST(CoreShareTest, ZeroThreadsMeansEveryHardwareThread) {
  EXPECT_EQ(share_of("numa:1 core:4 pu:2").threads(), 4);
  EXPECT_EQ(share_of("numa:1 core:4 pu:2", {}, {.threads = 0}).threads(), 8);
}

TEST(CoreShareTest, FewThreadsSpreadOverTheNodesAndTooManyAreUnbound) {
  const CoreShare few = share_of("numa:2 core:6 pu:1", {}, {.threads = 4, .service_cores = 0});
  EXPECT_EQ(few.nodes[0].threads, 2);
  EXPECT_EQ(few.nodes[1].threads, 2);
  EXPECT_TRUE(few.bound);
  const CoreShare many = share_of("numa:2 core:6 pu:1", {}, {.threads = 40});
  EXPECT_EQ(many.threads(), 40);
  EXPECT_FALSE(many.bound);
  EXPECT_EQ(many.service_cores, 0);
  EXPECT_THAT(many.why, HasSubstr("not bound: only 11 hardware threads available"));
}

TEST(CoreShareTest, ReadingItsOwnNumbersBackGivesTheSameShare) {
  for (const char* machine : {kSmallMachine, kLarge, "numa:1 core:16 pu:2"}) {
    const CoreShare share = share_of(machine);
    const CoreShare again =
        share_of(machine, {}, {.threads = share.threads(), .service_cores = share.service_cores});
    EXPECT_EQ(again.why, share.why);
    EXPECT_EQ(cpus(again), cpus(share));
    EXPECT_EQ(again.bound, share.bound);
  }
}

TEST(CoreShareTest, ACpuQuotaIsSharedByTheRanksAndBindsNothing) {
  const CoreShare share = share_of(kLarge, rank_of(1, 2), {.cpu_quota = 9.5});
  EXPECT_EQ(share.threads(), 4);
  EXPECT_FALSE(share.bound);
  EXPECT_THAT(share.why, HasSubstr("the cgroup has a CPU quota of 9.5 CPUs for 2 ranks"));
  EXPECT_EQ(share_of(kSmallMachine, {}, {.cpu_quota = 0.5}).threads(), 1);
  EXPECT_EQ(share_of(kSmallMachine, {}, {.cpu_quota = 64}).threads(), 4);
}

TEST(CoreShareTest, AShareThatCannotBeBoundSaysSo) {
  Topology machine = must(synthetic_topology(kLarge));
  machine.can_bind = false;
  const CoreShare share = must(partition_cores(machine, {}));
  EXPECT_FALSE(share.bound);
  EXPECT_EQ(share.nodes.size(), 1u);
  EXPECT_THAT(share.why, HasSubstr("does not let threads choose their cores"));
}

TEST(CoreShareTest, OptionsThatLeaveNoCoreAreRefusedWithBothNumbers) {
  const Topology machine = must(synthetic_topology(kSmallMachine));
  const Status service = partition_cores(machine, {}, {.service_cores = 4}).status();
  EXPECT_EQ(service.code(), Code::invalid);
  EXPECT_THAT(service.message(), HasSubstr("cpu.service_cores is 4; this process has 4 cores"));
  EXPECT_EQ(partition_cores(machine, {}, {.threads = -1}).status().code(), Code::invalid);
  EXPECT_EQ(partition_cores(machine, rank_of(2, 2)).status().code(), Code::invalid);
  EXPECT_EQ(synthetic_topology("nonsense").status().code(), Code::invalid);
  EXPECT_EQ(synthetic_topology(kSmallMachine, std::vector<int>{99}).status().code(), Code::invalid);
}

TEST(CoreShareTest, ThisMachineHasACoreShare) {
  const CoreShare share = must(process_core_share({}));
  EXPECT_GE(share.threads(), 1);
  EXPECT_LE(share.threads(), must(read_topology()).usable_threads);
  EXPECT_FALSE(share.why.empty());
}

LocalRank found(const std::vector<std::string>& environment) { return must(local_rank(environment)); }
std::string refused(const std::vector<std::string>& environment) {
  return std::string(local_rank(environment).status().message());
}

TEST(LocalRankTest, EveryLaunchersVariablesAreRead) {
  EXPECT_EQ(found({"HOME=/"}).size, 1);
  for (const auto& [rank, size] : {std::pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
                                   {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                   {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                   {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}}) {
    const LocalRank local = found({str(size, "=4"), str(rank, "=3")});
    EXPECT_EQ(local.rank, 3) << rank;
    EXPECT_EQ(local.size, 4) << rank;
    EXPECT_EQ(local.variable, rank);
  }
}

TEST(LocalRankTest, TheInnerLauncherCountsAndSlurmIsLast) {
  EXPECT_EQ(found({"OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "LOCAL_RANK=2",
                   "LOCAL_WORLD_SIZE=8"})
                .rank,
            2);
  EXPECT_EQ(found({"SLURM_LOCALID=0", "SLURM_NTASKS_PER_NODE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=8"}).size,
            8);
  EXPECT_EQ(found({"SLURM_LOCALID=0"}).size, 1);  // a batch script
}

TEST(LocalRankTest, InconsistentVariablesAreNamed) {
  EXPECT_THAT(refused({"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"}),
              HasSubstr("LOCAL_RANK is 4, but LOCAL_WORLD_SIZE is 4"));
  EXPECT_THAT(refused({"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=0"}), HasSubstr("LOCAL_WORLD_SIZE is 0"));
  EXPECT_THAT(refused({"SLURM_LOCALID=1"}), HasSubstr("SLURM_NTASKS_PER_NODE is not set"));
  EXPECT_THAT(refused({"LOCAL_RANK=x", "LOCAL_WORLD_SIZE=4"}), HasSubstr("LOCAL_RANK is \"x\""));
  EXPECT_THAT(refused({"LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2(x3)"}),
              HasSubstr("LOCAL_WORLD_SIZE is \"2(x3)\""));
  EXPECT_THAT(refused({"MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4"}),
              HasSubstr("MPI_LOCALRANKID says rank 1 of 4 on this machine, LOCAL_RANK says 2 of 4"));
}

}  // namespace
}  // namespace strata
