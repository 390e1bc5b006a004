// What strata bench measures RAM over, and which stored profiles are used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/profile/measure.h>
#include <strata/profile/profile_cache.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/topology.h>
#include <strata/runtime/units.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RamWorkingSetTest, IsLargerThanTheCaches) {
  constexpr std::uint64_t kFree = 1024 * kGiB;
  EXPECT_EQ(ram_working_set(32 * kMiB, kFree), kGiB);
  EXPECT_EQ(ram_working_set(320 * kMiB, kFree), 8 * 320 * kMiB);
  EXPECT_EQ(ram_working_set(320 * kMiB, 4 * kGiB), kGiB) << "a quarter of the free RAM";
  EXPECT_EQ(ram_working_set(0, 0), 64 * kMiB);
  if (const auto here = read_topology(); here.has_value()) {
    EXPECT_GE(ram_working_set(here->l3_bytes, kFree), 8 * here->l3_bytes / kMiB * kMiB);
  }
}

TEST(CachedProfileTest, OneOfAnEarlierVersionIsNotUsed) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/machine.toml";
  MachineProfile profile = must(load_machine_profile("h200"));
  profile.name = "here";
  profile.source = "measured by strata bench";
  ASSERT_TRUE(write_text_atomically(posix_io(), path, to_toml(profile)).is_ok());
  const CachedProfile old = must(load_cached_profile(posix_io(), path, "here"));
  EXPECT_FALSE(old.profile.has_value());
  EXPECT_THAT(old.warning,
              AllOf(HasSubstr(path), HasSubstr("measure again with strata bench; it is not used")));

  profile.format = MachineProfile::kMeasuredFormat;
  ASSERT_TRUE(store_profile(posix_io(), profile, path).is_ok());
  const CachedProfile now = must(load_cached_profile(posix_io(), path, "here"));
  EXPECT_TRUE(now.profile.has_value());
  EXPECT_EQ(now.warning, "");
}

}  // namespace
}  // namespace strata
