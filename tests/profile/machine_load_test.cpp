// Detects from the kernel's CPU counters whether other load disturbed a measurement.
#include <strata/profile/machine_load.h>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

CpuTime later(double busy_s, double stolen_s, double own_s) { return {busy_s, stolen_s, own_s, 10, 4}; }
std::string note(double busy_s, double stolen_s, double own_s) {
  return busy_note({0, 0, 0, 0, 4}, later(busy_s, stolen_s, own_s));
}

TEST(MachineLoadTest, AnIdleMachineHasNoNote) {
  EXPECT_EQ(note(40, 0, 40), "");
  EXPECT_EQ(note(41.9, 0.7, 40), "") << "others a twentieth, stolen a fiftieth";
  EXPECT_EQ(note(0, 0, 0), "");
}

TEST(MachineLoadTest, OtherLoadIsReportedInCpus) {
  EXPECT_THAT(note(35, 0, 20),
              AllOf(HasSubstr("other programs used 1.5 of its 4 CPUs"), Not(HasSubstr("hypervisor"))));
}

TEST(MachineLoadTest, StealTimeIsReportedToo) {
  EXPECT_THAT(note(20, 2, 20), AllOf(HasSubstr("its hypervisor gave 0.2 of 4 CPUs to other machines"),
                                     Not(HasSubstr("programs"))));
  EXPECT_THAT(note(35, 2, 20), HasSubstr("1.5 of its 4 CPUs, and its hypervisor gave 0.2 of 4 CPUs"));
}

TEST(MachineLoadTest, WithoutKernelCountersThereIsNoNote) {
  const test::TempDir dir;
  const CpuTime time = read_cpu_time(dir.path());
  EXPECT_EQ(time.cpus, 0);
  EXPECT_EQ(busy_note(time, {100, 100, 0, time.wall_s + 1, 0}), "");
}

TEST(MachineLoadTest, ProcStatIsParsedByColumns) {
  const test::TempDir dir;
  must(posix_io().make_dirs(dir.file("proc")));
  const long tick = ::sysconf(_SC_CLK_TCK);
  const auto s = [&](int seconds) { return str(seconds * tick, " "); };
  must(write_text_atomically(posix_io(), dir.file("proc/stat"),
                             str("cpu  ", s(1), s(2), s(4), s(1000), s(2000), s(8), s(16), s(32), s(1), s(0),
                                 "\n", "cpu0 1 2\ncpu1 1 2\nintr 5 6\n")));
  const CpuTime time = read_cpu_time(dir.path());
  EXPECT_DOUBLE_EQ(time.busy_s, 31);
  EXPECT_DOUBLE_EQ(time.stolen_s, 32);
  EXPECT_EQ(time.cpus, 2);
}

}  // namespace
}  // namespace strata
