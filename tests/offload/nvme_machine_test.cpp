// A store on the real file system and kernel, with resource limits, signals, other processes and corruption
// of the file itself.
#include <strata/offload/nvme_store.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <charconv>

#include <strata/runtime/str.h>

#include "store_fixture.h"
#include "support/child.h"
#include "support/seccomp.h"

namespace strata::test {
namespace {

/// Opens a second, buffered descriptor of the unlinked file that a store of this process has in `folder`.
int open_scratch_of(const std::string& folder) {
  for (const std::string& name : must(posix_io().list("/proc/self/fd"))) {
    const std::string link = "/proc/self/fd/" + name;
    std::array<char, 512> target{};
    if (::readlink(link.c_str(), target.data(), target.size() - 1) > 0 &&
        std::string_view(target.data()).starts_with(folder + "/"))
      return ::open(link.c_str(), O_RDWR | O_CLOEXEC);
  }
  return -1;
}

class NvmeMachineTest : public testing::TestWithParam<TestIoBackend> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == TestIoBackend::uring && !uring_works(&why)) GTEST_SKIP() << why;
  }
  NvmeOptions options(std::uint32_t slots = 4) const {
    return {.dirs = {dir_.path()},
            .classes = {{kSlotBytes, slots}},
            .engine = GetParam() == TestIoBackend::uring ? IoEngine::uring : IoEngine::threads,
            .block_bytes = kSlotBytes};
  }
  StorePtr<NvmeStore> make(const NvmeOptions& options) {
    return must(NvmeStore::create(posix_io(), options));
  }
  /// Runs `body` in a child process and compares its output; skips the test if the child says so.
  void expect_in_child(const std::function<std::string()>& body, const std::string& said) {
    const ChildResult child = run_in_child(body);
    if (has(child.output, "skip:")) GTEST_SKIP() << child.output;
    EXPECT_EQ(child.exit_code, 0) << child.output;
    EXPECT_EQ(child.output, said);
  }

  TempDir dir_;
  AlignedBuffer first_{kSlotBytes, 1};
  AlignedBuffer second_{kSlotBytes, 2};
  AlignedBuffer read_{kSlotBytes};
};

INSTANTIATE_TEST_SUITE_P(IoBackends, NvmeMachineTest,
                         testing::Values(TestIoBackend::uring, TestIoBackend::threads),
                         [](const auto& engine) { return name_of(engine.param); });

// Slots 1 and 0 are free, in that order, and the limit is in the middle of slot 1: the kernel writes half of
// the object and refuses the rest.
TEST_P(NvmeMachineTest, AShortWriteThatTheKernelThenRefusesMovesToAnotherSlot) {
  expect_in_child(
      [&]() -> std::string {
        const auto store = make(options());
        for (std::uint64_t id = 0; id < 4; ++id) must(write_and_wait(*store, id, first_));
        store->discard(1);
        store->discard(0);
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{kSlotBytes * 3 / 2, kSlotBytes * 3 / 2};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "skip: the limit cannot be set";
        must(write_and_wait(*store, 7, second_));
        must(read_and_wait(*store, 7, read_));
        return str(read_ == second_ ? "same bytes, " : "other bytes, ", store->counters().bad_slots, " bad");
      },
      "same bytes, 1 bad");
}

std::atomic<int> interrupts{0};

// The signal is delivered only to the I/O threads, whose system calls are not restarted.
TEST_P(NvmeMachineTest, SignalsAThousandTimesASecondChangeNothing) {
  expect_in_child(
      [&]() -> std::string {
        struct sigaction action {};
        action.sa_handler = [](int) { ++interrupts; };
        ::sigaction(SIGALRM, &action, nullptr);
        const auto store = make(options());
        sigset_t alarm;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
        const itimerval every{{0, 1000}, {0, 1000}};
        ::setitimer(ITIMER_REAL, &every, nullptr);
        for (std::uint64_t i = 1; interrupts < 200; ++i) {
          must(write_and_wait(*store, i % 3, i % 2 == 0 ? first_ : second_));
          must(read_and_wait(*store, i % 3, read_));
          if (!(read_ == (i % 2 == 0 ? first_ : second_))) return "other bytes";
        }
        const NvmeCounters counters = store->counters();
        return str("same bytes, ", counters.bad_slots + counters.read_retries, " retries");
      },
      "same bytes, 0 retries");
}

TEST_P(NvmeMachineTest, ATruncatedFileIsCorruptAndNeverPadded) {
  const auto store = make(options());
  must(write_and_wait(*store, 7, first_));
  const int fd = open_scratch_of(dir_.path());
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, kSlotBytes / 2), 0);
  ::close(fd);
  const Status status = read_and_wait(*store, 7, read_);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_TRUE(has(status.to_string(), "262144 bytes")) << status.to_string();
  EXPECT_TRUE(has(status.to_string(), "after 131072")) << status.to_string();
}

TEST_P(NvmeMachineTest, ABitFlippedInTheFileIsFoundAndTouchesNoOtherId) {
  const auto store = make(options());
  must(write_and_wait(*store, 1, first_));
  must(write_and_wait(*store, 2, second_));
  const int fd = open_scratch_of(dir_.path());
  ASSERT_GE(fd, 0);
  unsigned char byte = 0;
  ASSERT_EQ(::pread(fd, &byte, 1, 12345), 1);
  byte ^= 4;
  ASSERT_EQ(::pwrite(fd, &byte, 1, 12345), 1);
  ASSERT_EQ(::fsync(fd), 0);
  ::close(fd);
  const Status status = read_and_wait(*store, 1, read_);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_TRUE(has(status.to_string(), "id 1 generation 1")) << status.to_string();
  must(read_and_wait(*store, 2, read_));
  EXPECT_TRUE(read_ == second_);
  must(write_and_wait(*store, 1, first_));
  must(read_and_wait(*store, 1, read_));
  EXPECT_TRUE(read_ == first_);
}

// Far more requests and blocks than the ring has entries.
TEST_P(NvmeMachineTest, ADeviceQueueOfOneServesManyRequests) {
  NvmeOptions small = options(130);
  small.queue_depth = 1;
  small.block_bytes = 8 * kKiB;
  small.max_requests = 128;
  const auto store = make(small);
  std::vector<IoTicket> tickets;
  for (std::uint64_t id = 0; id < 64; ++id)
    tickets.push_back(must(store->write_async(id, 0, (id % 2 == 0 ? first_ : second_).view())));
  for (const IoTicket ticket : tickets) must(store->wait(ticket));
  for (std::uint64_t id = 0; id < 64; ++id) {
    must(read_and_wait(*store, id, read_));
    ASSERT_TRUE(read_ == (id % 2 == 0 ? first_ : second_)) << id;
  }
  EXPECT_EQ(store->counters().stray_completions, 0u);
}

// Both stores exist before either writes, and both use the same ids.
TEST_P(NvmeMachineTest, TwoProcessesOnOneFolderDoNotInterfere) {
  void* const shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const ready = new (shared) std::atomic<int>(0);
  const auto job = [&](std::uint64_t seed) -> std::string {
    const auto store = make(options(6));
    for (++*ready; *ready < 2;) ::usleep(100);
    AlignedBuffer from(kSlotBytes);
    for (std::uint64_t i = 0; i < 60; ++i) {
      from.fill(seed + i);
      must(write_and_wait(*store, i % 4, from));
      must(read_and_wait(*store, i % 4, read_));
      if (!(read_ == from)) return str("other bytes in round ", i);
    }
    return "same bytes";
  };
  const std::array<std::function<std::string()>, 2> jobs = {[&] { return job(1000); },
                                                            [&] { return job(2000); }};
  const std::vector<ChildResult> results = test::run_in_children(jobs);
  for (const ChildResult& result : results) EXPECT_EQ(result.output, "same bytes");
  EXPECT_TRUE(must(posix_io().list(dir_.path())).empty());
  ::munmap(shared, 4096);
}

// The process is killed many times with writes in flight: no files and no allocated space remain.
TEST_P(NvmeMachineTest, KillsLeaveNothing) {
  for (int kill = 0; kill < 20; ++kill) {
    StorePtr<NvmeStore> store;
    kill_after([&] {
      store = make(options(40));
      for (int i = 0; i < kill; ++i)
        must(store->write_async(static_cast<std::uint64_t>(i), 0, first_.view()));
    });
    ASSERT_TRUE(must(posix_io().list(dir_.path())).empty()) << "after " << kill << " writes";
  }
}

// On file systems without O_TMPFILE the file is created and unlinked immediately.
TEST_P(NvmeMachineTest, WithoutTmpfileSupportTheFolderStaysEmptyToo) {
  expect_in_child(
      [&]() -> std::string {
        if (!refuse_open_flag(kTmpfileFlag, EOPNOTSUPP)) return "skip: seccomp is refused";
        if (::open(dir_.path().c_str(), O_TMPFILE | O_RDWR, 0600) >= 0) return "the filter does nothing";
        const auto store = make(options());
        must(write_and_wait(*store, 7, first_));
        must(read_and_wait(*store, 7, read_));
        return str(read_ == first_ ? "same bytes, " : "other bytes, ",
                   must(posix_io().list(dir_.path())).size(), " files");
      },
      "same bytes, 0 files");
}

struct BadFolder {
  const char* name;
  const char* path;
  const char* says;
};

// Runs as an unprivileged user, since root ignores permissions.
TEST(NvmeFolderTest, FoldersThatCannotServeAreRefusedByNameBeforeAnythingIsMade) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("a_file"), ""));
  ASSERT_EQ(::symlink("loop", dir.file("loop").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", dir.file("dangling").c_str()), 0);
  must(posix_io().make_dirs(dir.file("closed")));
  ASSERT_EQ(::chmod(dir.file("closed").c_str(), 0555), 0);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  const std::string long_name(300, 'x');
  const BadFolder table[] = {{"a file", "a_file", "ENOTDIR"},
                             {"below a file", "a_file/swap", "ENOTDIR"},
                             {"a symlink to itself", "loop", "ELOOP"},
                             {"a symlink to nothing", "dangling", "ENOENT"},
                             {"not writable", "closed", "EACCES"},
                             {"parent not writable", "closed/swap", "EACCES"},
                             {"name too long", long_name.c_str(), "ENAMETOOLONG"}};
  const ChildResult child = run_in_child([&]() -> std::string {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0))
      return "skip: the user cannot be changed";
    std::string wrong;
    for (const BadFolder& bad : table) {
      const std::string path = dir.file(bad.path);
      const Status status = NvmeStore::create(posix_io(), {.dirs = {path}, .classes = {{4096, 1}}}).status();
      if (status.is_ok() || !has(status.to_string(), bad.says) || !has(status.to_string(), dir.path()))
        wrong += str(bad.name, ": ", status.to_string(), "\n");
    }
    return wrong;
  });
  if (has(child.output, "skip:")) GTEST_SKIP() << child.output;
  EXPECT_EQ(child.output, "");
  EXPECT_EQ(must(posix_io().list(dir.path())).size(), 4u);
}

}  // namespace
}  // namespace strata::test
