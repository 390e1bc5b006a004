#include <strata/runtime/io/io.h>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "support/memory_io.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::bytes_of;
using test::TempDir;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0);
  return info.st_mode & 07777;
}

TEST(PosixIoTest, TextRoundTrips) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("a"), "hello"));
  EXPECT_EQ(must(read_text(posix_io(), dir.file("a"), 100)), "hello");
}

TEST(PosixIoTest, AnAtomicWriteReplacesTheFileAndLeavesNoOther) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("a"), "old text"));
  must(write_text_atomically(posix_io(), dir.file("a"), "new"));
  EXPECT_EQ(must(read_text(posix_io(), dir.file("a"), 100)), "new");
  EXPECT_EQ(must(posix_io().list(dir.path())), std::vector<std::string>{"a"});
}

// Sets the umask for its lifetime.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  const mode_t before_;
};

TEST(PosixIoTest, FilesAndDirectoriesGetTheUmasksPermissions) {
  for (const mode_t mask : {022u, 027u, 077u}) {
    const TempDir dir;
    const Umask here(mask);
    must(posix_io().make_dirs(dir.file("x/y")));
    must(posix_io().open(dir.file("x/y/new"), OpenMode::create));
    must(posix_io().open(dir.file("x/y/emptied"), OpenMode::truncate));
    must(posix_io().open(dir.file("x/y/log"), OpenMode::append));
    must(write_text_atomically(posix_io(), dir.file("x/y/text"), "a"));
    for (const char* folder : {"x", "x/y"}) EXPECT_EQ(mode_of(dir.file(folder)), 0777u & ~mask) << folder;
    for (const char* file : {"x/y/new", "x/y/emptied", "x/y/log", "x/y/text"})
      EXPECT_EQ(mode_of(dir.file(file)), 0666u & ~mask) << file;
  }
}

TEST(PosixIoTest, AScratchFileIsPrivateWhateverTheUmask) {
  const TempDir dir;
  const Umask none(0);
  const auto file = must(posix_io().open(dir.path(), OpenMode::scratch));
  struct stat info {};
  ASSERT_EQ(::fstat(file->descriptor(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST(PosixIoTest, CreateRefusesAnExistingFile) {
  const TempDir dir;
  must(posix_io().open(dir.file("f"), OpenMode::create));
  const Status status = posix_io().open(dir.file("f"), OpenMode::create).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("EEXIST"), std::string_view::npos) << status.message();
}

TEST(PosixIoTest, TruncateDoesNotFollowASymlink) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("precious"), "keep"));
  ASSERT_EQ(::symlink(dir.file("precious").c_str(), dir.file("link").c_str()), 0);
  EXPECT_EQ(posix_io().open(dir.file("link"), OpenMode::truncate).status().code(), Code::invalid);
  EXPECT_EQ(must(read_text(posix_io(), dir.file("precious"), 100)), "keep");
}

TEST(PosixIoTest, ReadRefusesNonRegularFiles) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(posix_io().open(dir.path(), OpenMode::read).status().code(), Code::invalid);
  EXPECT_EQ(posix_io().open(dir.file("fifo"), OpenMode::read).status().code(), Code::invalid);
  EXPECT_EQ(posix_io().open("/dev/zero", OpenMode::read).status().code(), Code::invalid);
}

TEST(PosixIoTest, MissingFileIsNotFoundAndNamed) {
  const TempDir dir;
  const Status status = read_text(posix_io(), dir.file("nothing"), 10).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_NE(status.message().find(dir.file("nothing")), std::string_view::npos) << status.message();
}

TEST(PosixIoTest, TextPastItsLimitIsInvalidWithBothNumbers) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("a"), "123456"));
  const Status status = read_text(posix_io(), dir.file("a"), 5).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("6 bytes, at most 5"), std::string_view::npos) << status.message();
}

TEST(PosixIoTest, ScratchFileHasNoName) {
  const TempDir dir;
  const auto file = must(posix_io().open(dir.path(), OpenMode::scratch));
  must(write_all(*file, 0, bytes_of("data")));
  EXPECT_EQ(must(file->size()), 4u);
  EXPECT_TRUE(must(posix_io().list(dir.path())).empty());
}

TEST(PosixIoTest, ADirectFileReportsItsAlignment) {
  const TempDir dir;
  const auto file = must(posix_io().open(dir.path(), OpenMode::scratch, true));
  if (!file->direct()) GTEST_SKIP() << "O_DIRECT is refused in " << dir.path();
  must(file->allocate(8192));
  alignas(4096) static std::array<std::byte, 4096> block{};
  must(write_all(*file, 4096, block));
  EXPECT_GE(file->alignment().offset, 512u);
  EXPECT_EQ(must(file->size()), 8192u);
}

TEST(PosixIoTest, AppendWritesAtTheEnd) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("log"), "one,"));
  must(write_all(*must(posix_io().open(dir.file("log"), OpenMode::append)), 0, bytes_of("two")));
  EXPECT_EQ(must(read_text(posix_io(), dir.file("log"), 100)), "one,two");
}

TEST(PosixIoTest, ReadingPastTheEndIsCorruptWithBothSizes) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("a"), "12345"));
  std::array<std::byte, 9> into{};
  const Status status = read_exact(*must(posix_io().open(dir.file("a"), OpenMode::read)), 0, into);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_NE(status.message().find("9 bytes expected, the file ends after 5"), std::string_view::npos)
      << status.message();
}

TEST(PosixIoTest, AllocationBeyondTheDiskSaysNeededAndFree) {
  const TempDir dir;
  const auto file = must(posix_io().open(dir.path(), OpenMode::scratch));
  const std::uint64_t needed = must(posix_io().free_bytes(dir.path())) + (std::uint64_t{1} << 40);
  const Status status = file->allocate(needed);
  if (status.code() == Code::io_error)
    GTEST_SKIP() << "the file system caps a file below its size: " << status.message();
  EXPECT_EQ(status.code(), Code::no_space) << status.message();
  EXPECT_NE(status.message().find(std::to_string(needed)), std::string_view::npos) << status.message();
  EXPECT_NE(status.message().find("free"), std::string_view::npos) << status.message();
}

TEST(PosixIoTest, ALockedFileIsRefusedUntilItsHolderCloses) {
  const TempDir dir;
  auto holder = must(posix_io().open(dir.file("lock"), OpenMode::append));
  const auto other = must(posix_io().open(dir.file("lock"), OpenMode::append));
  EXPECT_TRUE(holder->lock().is_ok());
  EXPECT_EQ(other->lock().code(), Code::invalid);
  holder.reset();
  EXPECT_TRUE(other->lock().is_ok());
}

TEST(PosixIoTest, ListIsSortedAndRemoveAllRemovesDirectories) {
  const TempDir dir;
  must(posix_io().make_dirs(dir.file("b/c")));
  must(write_text_atomically(posix_io(), dir.file("a"), ""));
  EXPECT_EQ(must(posix_io().list(dir.path())), (std::vector<std::string>{"a", "b"}));
  must(posix_io().remove_all(dir.file("b")));
  EXPECT_FALSE(posix_io().exists(dir.file("b")));
}

TEST(PosixIoTest, MakeDirsOverAFileIsInvalid) {
  const TempDir dir;
  must(write_text_atomically(posix_io(), dir.file("f"), ""));
  EXPECT_EQ(posix_io().make_dirs(dir.file("f")).code(), Code::invalid);
}

}  // namespace
}  // namespace strata
