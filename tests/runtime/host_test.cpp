#include <strata/runtime/config/json.h>
#include <strata/runtime/log.h>
#include <strata/runtime/signals.h>
#include <strata/runtime/config/suggest.h>
#include <strata/runtime/threads/topology.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/units.h>
#include <strata/runtime/utf8.h>

namespace strata {
namespace {

using ::testing::ElementsAre;

TEST(SignalsTest, ASignalSetsTheFlagAndItStays) {
  const auto signals = must(install_signals());
  EXPECT_FALSE(signals->stop_requested());
  ::raise(SIGTERM);
  EXPECT_TRUE(signals->stop_requested());
  EXPECT_EQ(signals->signal_number(), SIGTERM);
}

TEST(SignalsTest, ANewOwnerStartsWithoutARequest) {
  {
    const auto first = must(install_signals());
    ::raise(SIGINT);
  }
  EXPECT_FALSE(must(install_signals())->stop_requested());
}

TEST(SignalsTest, OnlyOneOwnerAtATime) {
  const auto first = must(install_signals());
  EXPECT_EQ(install_signals().status().code(), Code::invalid);
}

TEST(SignalsTest, AnIgnoredInterruptIsHandledAndThenRestored) {
  ::signal(SIGINT, SIG_IGN);
  {
    const auto signals = must(install_signals());
    ::raise(SIGINT);
    EXPECT_TRUE(signals->stop_requested());
  }
  EXPECT_EQ(::signal(SIGINT, SIG_DFL), SIG_IGN);
}

TEST(SignalsTest, SighupStopsUnlessItWasIgnored) {
  {
    const auto signals = must(install_signals());
    ::raise(SIGHUP);
    ::raise(SIGHUP);  // a closing terminal sends it again, and the shell may too
    EXPECT_EQ(signals->signal_number(), SIGHUP);
  }
  ::signal(SIGHUP, SIG_IGN);
  {
    const auto signals = must(install_signals());
    ::raise(SIGHUP);
    EXPECT_FALSE(signals->stop_requested());
  }
  EXPECT_EQ(::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

TEST(SignalsTest, Sigusr1StopsHoweverOftenItComes) {
  const auto signals = must(install_signals());
  ::raise(SIGUSR1);
  ::raise(SIGUSR1);  // a launcher forwards it, and the scheduler may send it to all processes
  EXPECT_EQ(signals->signal_number(), SIGUSR1);
}

TEST(SignalsDeathTest, AfterSighupTheFirstSigtermWaitsAndTheSecondEnds) {
  const auto signals = must(install_signals());
  EXPECT_EXIT(
      {
        ::raise(SIGHUP);
        ::raise(SIGTERM);
        ::raise(SIGHUP);
        ::write(STDERR_FILENO, "still here", 10);
        ::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "still here");
}

TEST(SignalsDeathTest, TheFirstSignalPrintsTheAnswerImmediately) {
  const auto signals = must(install_signals());
  signals->set_answer("finishing step 7");
  EXPECT_EXIT(
      {
        ::raise(SIGTERM);
        ::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "^finishing step 7\n$");
}

TEST(SignalsTest, ManualSignalsStopOnRequest) {
  ManualSignals signals;
  EXPECT_FALSE(signals.stop_requested());
  signals.request_stop(SIGTERM);
  EXPECT_EQ(signals.signal_number(), SIGTERM);
}

TEST(SignalsDeathTest, TheSecondSignalEndsTheProcessWithItsNumber) {
  const auto signals = must(install_signals());
  EXPECT_EXIT(
      {
        ::raise(SIGTERM);
        ::raise(SIGINT);
      },
      ::testing::ExitedWithCode(128 + SIGINT), "");
  EXPECT_EXIT(
      {
        ::raise(SIGINT);
        ::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(LogTest, LinesBelowTheLevelAreDropped) {
  std::vector<std::string> lines;
  const auto log =
      must(Log::create(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); }));
  log->info("quiet");
  log->warn("chunk ", 3, " is {slow}");
  log->error("no");
  EXPECT_THAT(lines, ElementsAre("chunk 3 is {slow}", "no"));
}

TEST(LogTest, AThrowingSinkStopsNothing) {
  const auto log = must(Log::create(LogLevel::debug, [](LogLevel, std::string_view) { throw 1; }));
  log->error("lost");
}

TEST(LogTest, LevelsAreReadByName) {
  EXPECT_EQ(must(parse_log_level("debug")), LogLevel::debug);
  EXPECT_EQ(parse_log_level("loud").status().message(), "'loud' is not one of debug, info, warn, error, off");
}

TEST(SuggestTest, ATypoFindsItsWordAndNonsenseFindsNone) {
  constexpr std::string_view kWords[] = {"device", "pinned", "nvme"};
  EXPECT_EQ(nearest("devcie", kWords), "device");
  EXPECT_EQ(nearest("pined", kWords), "pinned");
  EXPECT_EQ(nearest("nvem", kWords), "nvme");
  EXPECT_EQ(nearest("zzzzzz", kWords), "");
  EXPECT_EQ(nearest(std::string(100000, 'd'), kWords), "");
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abcd", "abdc"), 1);
}

TEST(JsonTest, AnyBytesBecomeAValidString) {
  EXPECT_EQ(json_string("a\"\\\n\x01"), "\"a\\\"\\\\\\u000a\\u0001\"");
  EXPECT_EQ(json_string("\xC3\xA9"), "\"\xC3\xA9\"");
  EXPECT_EQ(json_string("\xC3"), "\"\xEF\xBF\xBD\"");
  EXPECT_FALSE(is_utf8("\xED\xA0\x80"));  // a surrogate
  EXPECT_FALSE(is_utf8("\xC0\x80"));      // overlong
  EXPECT_TRUE(is_utf8("\xF0\x9F\x98\x80"));
}

/// A directory with the given files that stands in for "/".
class FakeRoot {
 public:
  explicit FakeRoot(std::initializer_list<std::pair<const char*, const char*>> files) {
    char name[] = "/tmp/strata_root_XXXXXX";
    path_ = ::mkdtemp(name);
    for (const auto& [file, text] : files) {
      std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
      std::ofstream(path_ + file) << text;
    }
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr const char* kMeminfo =
    "MemTotal:       8000000 kB\nMemFree: 5 kB\nMemAvailable:   6000000 kB\n"
    "HugePages_Total:      10\nHugePages_Free:        4\nHugepagesize:       2048 kB\n";

TEST(HostFactsTest, MemoryAndHugePagesComeFromProc) {
  const FakeRoot root({{"/proc/meminfo", kMeminfo},
                       {"/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"}});
  const HostFacts facts = read_host_facts(root.path());
  EXPECT_EQ(facts.total_ram_bytes, 8000000u * kKiB);
  EXPECT_EQ(facts.usable_ram_bytes(), 6000000u * kKiB);
  EXPECT_EQ(facts.huge_pages.transparent, "madvise");
  EXPECT_EQ(facts.huge_pages.reserved_bytes, 20 * kMiB);
  EXPECT_EQ(facts.huge_pages.free_bytes, 8 * kMiB);
  EXPECT_FALSE(facts.cgroup_limit_bytes.has_value());
}

TEST(HostFactsTest, TheSmallestLimitUpTheCgroupTreeCounts) {
  const FakeRoot root({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/cgroup", "0::/pod/job\n"},
                       {"/sys/fs/cgroup/pod/job/memory.max", "max\n"},
                       {"/sys/fs/cgroup/pod/memory.max", "1048576\n"},
                       {"/sys/fs/cgroup/pod/memory.current", "48576\n"},
                       {"/sys/fs/cgroup/pod/job/cpu.max", "150000 100000\n"}});
  const HostFacts facts = read_host_facts(root.path());
  EXPECT_EQ(facts.cgroup_limit_bytes, 1048576u);
  EXPECT_EQ(facts.usable_ram_bytes(), 1000000u);
  EXPECT_DOUBLE_EQ(facts.cgroup_cpus.value(), 1.5);
}

TEST(HostFactsTest, CgroupV1IsReadToo) {
  const FakeRoot root({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/a\n0::/\n"},
                       {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2097152\n"},
                       {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "97152\n"},
                       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                       {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n"},
                       {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}});
  const HostFacts facts = read_host_facts(root.path());
  EXPECT_EQ(facts.cgroup_limit_bytes, 2097152u);
  EXPECT_EQ(facts.usable_ram_bytes(), 2000000u);
  EXPECT_FALSE(facts.cgroup_cpus.has_value());
}

// The kernel reclaims file cache before it kills anything, in both cgroup versions.
TEST(HostFactsTest, FileCacheOfACgroupIsFree) {
  const FakeRoot now({{"/proc/meminfo", kMeminfo},
                      {"/proc/self/cgroup", "0::/job\n"},
                      {"/sys/fs/cgroup/job/memory.max", "1048576\n"},
                      {"/sys/fs/cgroup/job/memory.current", "1000000\n"},
                      {"/sys/fs/cgroup/job/memory.stat",
                       "anon 100000\nfile 900000\nshmem 20000\ninactive_file 500000\nactive_file 300000\n"}});
  EXPECT_EQ(read_host_facts(now.path()).usable_ram_bytes(), 1048576u - 200000u);
  const FakeRoot before({{"/proc/meminfo", kMeminfo},
                         {"/proc/self/cgroup", "4:memory:/a\n"},
                         {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n"},
                         {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000000\n"},
                         {"/sys/fs/cgroup/memory/a/memory.stat",
                          "cache 9\nactive_file 7\ntotal_inactive_file 500000\ntotal_active_file 300000\n"}});
  EXPECT_EQ(read_host_facts(before.path()).usable_ram_bytes(), 1048576u - 200000u);
}

// A sibling may use up what a parent with the larger limit allows.
TEST(HostFactsTest, TheCgroupWithTheLeastFreeMemoryCounts) {
  const FakeRoot root({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/cgroup", "0::/pod/job\n"},
                       {"/sys/fs/cgroup/pod/job/memory.max", "1048576\n"},
                       {"/sys/fs/cgroup/pod/job/memory.current", "48576\n"},
                       {"/sys/fs/cgroup/pod/memory.max", "2097152\n"},
                       {"/sys/fs/cgroup/pod/memory.current", "2000000\n"}});
  const HostFacts facts = read_host_facts(root.path());
  EXPECT_EQ(facts.cgroup_limit_bytes, 1048576u);
  EXPECT_EQ(facts.usable_ram_bytes(), 97152u);
}

TEST(HostFactsTest, AnonymousRssExcludesFilePages) {
  const FakeRoot root(
      {{"/proc/self/status", "VmRSS:\t 900 kB\nRssAnon:\t 500 kB\nRssFile:\t 300 kB\nRssShmem:\t 100 kB\n"}});
  EXPECT_EQ(read_host_facts(root.path()).anonymous_rss_bytes, 600 * kKiB);
}

TEST(HostFactsTest, AnEmptyRootHasNoFactsAndNoFailure) {
  const FakeRoot root({});
  EXPECT_EQ(read_host_facts(root.path()).total_ram_bytes, 0u);
}

TEST(TopologyTest, ThisMachineHasCoresAndANode) {
  const Topology topology = must(read_topology());
  EXPECT_GE(topology.usable_threads, 1);
  EXPECT_GE(topology.cores, 1);
  ASSERT_FALSE(topology.numa.empty());
  EXPECT_GT(read_host_facts().total_ram_bytes, 0u);
}

TEST(CpuFeaturesTest, TheIsaIsTheWidestWithAllItsFeatures) {
  CpuFeatures cpu;
  EXPECT_STREQ(cpu.isa(), "scalar");
  cpu.sse42 = cpu.avx2 = true;
  EXPECT_STREQ(cpu.isa(), "sse4");
  cpu.f16c = true;
  EXPECT_STREQ(cpu.isa(), "avx2");
  cpu.avx512f = cpu.avx512bw = cpu.avx512dq = true;
  EXPECT_STREQ(cpu.isa(), "avx2");
  cpu.avx512vl = true;
  EXPECT_STREQ(cpu.isa(), "avx512");
  CpuFeatures arm;
  arm.neon = true;
  EXPECT_STREQ(arm.isa(), "neon");
}

#if defined(__x86_64__)
TEST(CpuFeaturesTest, CpuidAgreesWithTheCompilersOwnReading) {
  const CpuFeatures cpu = read_cpu_features();
  EXPECT_EQ(cpu.sse42, __builtin_cpu_supports("sse4.2") != 0);
  EXPECT_EQ(cpu.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(cpu.avx512bw, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(cpu.avx512dq, __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(cpu.avx512vl, __builtin_cpu_supports("avx512vl") != 0);
}
#endif

TEST(NumaTest, MemoryIsBoundToTheRequestedNode) {
  const int node = must(read_topology()).numa.front().index;
  constexpr std::size_t kBytes = 1 << 20;
  void* const data = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  EXPECT_EQ(must(numa_binding(data, kBytes)), kAllNumaNodes);
  const Status bound = bind_to_numa(data, kBytes, node);
  if (bound.code() == Code::unsupported) GTEST_SKIP() << bound.message();
  EXPECT_TRUE(bound.is_ok()) << bound.message();
  EXPECT_EQ(must(numa_binding(data, kBytes)), node);
  ::munmap(data, kBytes);
}

TEST(NumaTest, AMissingNodeIsNamed) {
  std::byte byte{};
  const Status status = bind_to_numa(&byte, 1, 4096);
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("4096"));
}

}  // namespace
}  // namespace strata
