#include <strata/profile/memory_budgets.h>
#include <strata/runtime/memory/host_memory.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/units.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

HostFacts with_free(std::uint64_t bytes) {
  HostFacts facts;
  facts.total_ram_bytes = 8 * kGiB;
  facts.available_ram_bytes = bytes;
  facts.anonymous_rss_bytes = kProcessOverheadBytes;
  return facts;
}

TEST(HostMemoryTest, AllFreeMemoryIsAllowedAndOneByteMoreIsNot) {
  EXPECT_TRUE(check_host_memory(kGiB, 2, with_free(kGiB)).is_ok());
  const Status refused = check_host_memory(kGiB + 1, 2, with_free(kGiB));
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("1073741825"), HasSubstr("room for only 1073741824"), HasSubstr("8.0 GiB"),
                    HasSubstr("memory.pinned")));
  EXPECT_TRUE(check_host_memory(kGiB, 2, HostFacts{}).is_ok()) << "nothing is known";
}

TEST(HostMemoryTest, RoomIsReservedForTheProcessOverhead) {
  HostFacts facts = with_free(kGiB);
  facts.anonymous_rss_bytes = 8 * kMiB;
  EXPECT_TRUE(check_host_memory(kGiB - kProcessOverheadBytes + 8 * kMiB, 2, facts).is_ok());
  EXPECT_FALSE(check_host_memory(kGiB - kProcessOverheadBytes + 8 * kMiB + 1, 2, facts).is_ok());
}

TEST(HostMemoryTest, ACgroupLimitBelowTheRamIsTheOneThatCounts) {
  HostFacts facts = with_free(4 * kGiB);
  facts.cgroup_limit_bytes = 256 * kMiB;
  facts.cgroup_free_bytes = 56 * kMiB;
  EXPECT_TRUE(check_host_memory(56 * kMiB, 2, facts).is_ok());
  const Status refused = check_host_memory(56 * kMiB + 4096, 2, facts);
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("56.0 MiB are free in the memory cgroup, whose limit is 256.0 MiB"));
}

TEST(HostMemoryTest, MemoryOfTheOldPlanIsAvailableToTheNewOne) {
  HostFacts facts = with_free(kGiB);
  facts.anonymous_rss_bytes = 2 * kGiB + kProcessOverheadBytes;
  EXPECT_TRUE(check_host_memory(3 * kGiB, 2, facts, 2 * kGiB).is_ok());
  EXPECT_FALSE(check_host_memory(3 * kGiB + 1, 2, facts, 2 * kGiB).is_ok());
}

TEST(HostMemoryTest, TheProposedBudgetsFitTheRun) {
  const ProgramSet programs = test::tiny_programs();
  SessionOptions options;
  options.budgets = {2 * kMiB, 2 * kMiB, 8 * kMiB};
  const auto plan = must(Engine::plan(programs, options));
  const std::uint64_t ram = (plan->planned_peak[0] + plan->planned_peak[1]) / 4 * 3;
  const auto nearest = fit_budgets(*plan, ram, true);
  ASSERT_TRUE(nearest.has_value());
  EXPECT_LE((*nearest)[0] + (*nearest)[1], ram);
  options.budgets = *nearest;
  const auto smaller = must(Engine::plan(programs, options));
  EXPECT_LE(smaller->planned_peak[0] + smaller->planned_peak[1], ram);
  EXPECT_FALSE(fit_budgets(*plan, 4096, true).has_value()) << "nothing so small holds it";
}

TEST(HostMemoryTest, AnAddressSpaceWithoutRoomForLibrariesIsRefused) {
  HostFacts facts = with_free(8 * kGiB);
  facts.address_space_limit_bytes = 2 * kGiB;
  facts.address_space_used_bytes = 100 * kMiB;
  EXPECT_TRUE(check_host_memory(kGiB, 2, facts).is_ok());
  const Status refused = check_host_memory(kGiB + 100 * kMiB, 2, facts);
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("ulimit -v"), HasSubstr("2147483648"), HasSubstr("1.9 GiB")));
  facts.address_space_used_bytes = 3 * kGiB;  // the limit was lowered below what is already mapped
  EXPECT_EQ(check_host_memory(0, 2, facts).code(), Code::does_not_fit);
}

}  // namespace
}  // namespace strata
