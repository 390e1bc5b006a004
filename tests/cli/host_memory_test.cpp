#include "training/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

HostFacts with_ram(std::uint64_t bytes) {
  HostFacts facts;
  facts.total_ram_bytes = bytes;
  return facts;
}

TEST(HostMemoryTest, AllOfTheRamIsAllowedAndAByteMoreIsNot) {
  EXPECT_TRUE(check_host_memory(kGiB, 2, with_ram(kGiB)).is_ok());
  const Status refused = check_host_memory(kGiB + 1, 2, with_ram(kGiB));
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("1073741825"), HasSubstr("there are 1073741824"), HasSubstr("memory.pinned")));
  EXPECT_TRUE(check_host_memory(kGiB, 2, HostFacts{}).is_ok()) << "nothing is known";
}

// What the cgroup holds already may be cache that gives way, so its limit alone counts.
TEST(HostMemoryTest, ACgroupBelowTheRamIsWhatCounts) {
  HostFacts facts = with_ram(8 * kGiB);
  facts.cgroup_limit_bytes = 256 * kMiB;
  facts.cgroup_used_bytes = 200 * kMiB;
  EXPECT_TRUE(check_host_memory(256 * kMiB, 2, facts).is_ok());
  const Status refused = check_host_memory(256 * kMiB + 4096, 2, facts);
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the cgroup's limit is 268435456 (256.0 MiB)"));
}

TEST(HostMemoryTest, AnAddressSpaceWithoutRoomForLibrariesIsRefused) {
  HostFacts facts = with_ram(8 * kGiB);
  facts.address_space_limit_bytes = 2 * kGiB;
  facts.address_space_used_bytes = 100 * kMiB;
  EXPECT_TRUE(check_host_memory(kGiB, 2, facts).is_ok());
  const Status refused = check_host_memory(kGiB + 100 * kMiB, 2, facts);
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("ulimit -v"), HasSubstr("2147483648"), HasSubstr("1.9 GiB")));
  facts.address_space_used_bytes = 3 * kGiB;  // the limit was lowered below what is mapped
  EXPECT_EQ(check_host_memory(0, 2, facts).code(), Code::does_not_fit);
}

}  // namespace
}  // namespace strata::cli
