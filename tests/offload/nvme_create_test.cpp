// Creating a store on a machine that refuses something.
#include <strata/offload/nvme_store.h>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <strata/runtime/str.h>

#include "store_fixture.h"
#include "support/child.h"
#include "support/seccomp.h"

namespace strata::test {
namespace {

class NvmeCreateTest : public testing::Test {
 protected:
  NvmeOptions options() const { return {.dirs = {dir_.path()}, .classes = {{kSlotBytes, 4}}}; }
  Status create(const NvmeOptions& options) { return NvmeStore::create(io_, options).status(); }
  TempDir dir_;
  FaultIo io_{posix_io(), 1};
};

// Writes and reads an object on a new store. Returns "same bytes, <io_description>".
std::string use(const NvmeOptions& options, bool with_registration = false) {
  const auto store = must(NvmeStore::create(posix_io(), options));
  const AlignedBuffer from(kSlotBytes, 1), into(kSlotBytes);
  if (with_registration) must(store->register_memory(into.view()));
  must(write_and_wait(*store, 7, from));
  must(read_and_wait(*store, 7, into));
  return str(from == into ? "same bytes, " : "other bytes, ", store->io_description());
}

void must_refuse_uring() {
  if (!refuse_uring()) must(Status::error(Code::unsupported, str("seccomp is refused: errno ", errno)));
}

TEST_F(NvmeCreateTest, OptionsOutOfRangeAreInvalidAndNamed) {
  NvmeOptions bad = options();
  bad.classes[0].slot_bytes = 5000;
  EXPECT_EQ(create(bad).code(), Code::invalid);
  EXPECT_NE(create(bad).message().find("slot_bytes is 5000"), std::string_view::npos);
  bad = options();
  bad.dirs.clear();
  EXPECT_EQ(create(bad).code(), Code::invalid);
  bad = options();
  bad.queue_depth = 0;
  EXPECT_EQ(create(bad).code(), Code::invalid);
  bad = options();
  bad.block_bytes = 1000;
  EXPECT_EQ(create(bad).code(), Code::invalid);
}

TEST_F(NvmeCreateTest, AbsentFolderIsCreated) {
  NvmeOptions asked = options();
  asked.dirs = {dir_.file("a/b")};
  must(create(asked));
  struct stat info {};
  ASSERT_EQ(::stat(dir_.file("a/b").c_str(), &info), 0);
  EXPECT_TRUE(S_ISDIR(info.st_mode));
}

TEST_F(NvmeCreateTest, FolderThatIsAFileIsInvalid) {
  must(write_text_atomically(posix_io(), dir_.file("f"), ""));
  NvmeOptions asked = options();
  asked.dirs = {dir_.file("f")};
  EXPECT_EQ(create(asked).code(), Code::invalid);
}

TEST_F(NvmeCreateTest, FullDiskIsNoSpace) {
  io_.add({IoCall::allocate, FaultKind::fail, 1, false, Code::no_space});
  EXPECT_EQ(create(options()).code(), Code::no_space);
}

TEST_F(NvmeCreateTest, SmallTmpfsSaysNeededAndFree) {
  const ChildResult child = run_in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", dir_.path().c_str(), "tmpfs", 0, "size=512k") != 0)
      return str("skip: mounting needs root: errno ", errno);
    return NvmeStore::create(posix_io(), options()).status().to_string();
  });
  if (has(child.output, "skip:")) GTEST_SKIP() << child.output;
  EXPECT_TRUE(has(child.output, "no_space")) << child.output;
  EXPECT_TRUE(has(child.output, "1048576 bytes (1.0 MiB) needed")) << child.output;
  EXPECT_TRUE(has(child.output, "524288 (512.0 KiB) free")) << child.output;
}

TEST_F(NvmeCreateTest, RefusedDirectIsBufferedAndReportedOnce) {
  io_.refuse_direct();
  const auto store = must(NvmeStore::create(io_, options()));
  EXPECT_TRUE(has(store->io_description(), "buffered, O_DIRECT refused")) << store->io_description();
}

TEST_F(NvmeCreateTest, AlignmentBeyondTheSlotsIsBufferedAndReported) {
  io_.enforce_alignment(16384);
  const auto store = must(NvmeStore::create(io_, options()));
  EXPECT_TRUE(has(store->io_description(), "requires 16384-byte alignment")) << store->io_description();
}

TEST_F(NvmeCreateTest, FilesWithoutDescriptorsUseThreads) {
  EXPECT_TRUE(has(must(NvmeStore::create(io_, options()))->io_description(), "2 threads"));
  NvmeOptions insisting = options();
  insisting.engine = IoEngine::uring;
  EXPECT_EQ(create(insisting).code(), Code::unsupported);
}

TEST_F(NvmeCreateTest, RefusedUringFallsBackToThreadsWithTheSameBytes) {
  const ChildResult child = run_in_child([&] {
    must_refuse_uring();
    return use(options());
  });
  if (has(child.output, "seccomp is refused")) GTEST_SKIP() << child.output;
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(has(child.output, "same bytes, 2 threads")) << child.output;
  EXPECT_TRUE(has(child.output, "io_uring")) << child.output;
}

TEST_F(NvmeCreateTest, RefusedUringIsUnsupportedIfRequired) {
  const ChildResult child = run_in_child([&] {
    must_refuse_uring();
    NvmeOptions insisting = options();
    insisting.engine = IoEngine::uring;
    return NvmeStore::create(posix_io(), insisting).status().to_string();
  });
  if (has(child.output, "seccomp is refused")) GTEST_SKIP() << child.output;
  EXPECT_TRUE(has(child.output, "unsupported: ")) << child.output;
}

TEST_F(NvmeCreateTest, RefusedRegistrationWorksUnregisteredAndSaysSo) {
  std::string why;
  if (!uring_works(&why)) GTEST_SKIP() << why;
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);
  const ChildResult child = run_in_child([&]() -> std::string {
    const rlimit small{64 * kKiB, 64 * kKiB};
    if (::setrlimit(RLIMIT_MEMLOCK, &small) != 0) return "skip: the limit cannot be set";
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0))
      return "skip: the user cannot be changed";
    return use(options(), true);
  });
  if (has(child.output, "skip:")) GTEST_SKIP() << child.output;
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(has(child.output, "same bytes, io_uring")) << child.output;
  EXPECT_TRUE(has(child.output, "ENOMEM")) << child.output;
  EXPECT_TRUE(has(child.output, "RLIMIT_MEMLOCK 65536")) << child.output;
}

TEST_F(NvmeCreateTest, FewDescriptorsSuffice) {
  const ChildResult child = run_in_child([&] {
    const rlimit few{24, 24};
    ::setrlimit(RLIMIT_NOFILE, &few);
    NvmeOptions many = options();
    many.classes = {{4096, 2000}, {kSlotBytes, 4}};
    const auto store = must(NvmeStore::create(posix_io(), many));
    const AlignedBuffer from(4096, 1);
    for (std::uint64_t id = 0; id < 1500; ++id) must(write_and_wait(*store, id, from));
    return str(store->counters().files_opened, " file");
  });
  EXPECT_EQ(child.output, "1 file");
}

}  // namespace
}  // namespace strata::test
