#include "support/fault_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include <strata/runtime/units.h>

#include "support/temp_dir.h"

namespace strata::test {
namespace {

constexpr std::size_t kBytes = 64 * kKiB;

struct alignas(4096) AlignedData {
  std::array<std::byte, kBytes> bytes{};
  explicit AlignedData(std::uint64_t seed) {
    const Rng rng(seed, 1);
    for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(rng.u32(i));
  }
};

class FaultIoTest : public testing::Test {
 protected:
  std::unique_ptr<File> open(bool direct = false) {
    auto file = must(io_.open(dir_.path(), OpenMode::scratch, direct));
    must(file->allocate(4 * kBytes));
    return file;
  }
  bool same(File& file) {
    must(read_exact(file, 0, read_.bytes));
    return read_.bytes == written_.bytes;
  }
  TempDir dir_;
  FaultIo io_{posix_io(), 42};
  AlignedData written_{1};
  AlignedData read_{2};
};

TEST_F(FaultIoTest, ShortTransfersAreContinuedToTheSameBytes) {
  io_.enforce_alignment(4096);
  io_.add({IoCall::write, FaultKind::shorten, 1, true});
  io_.add({IoCall::read, FaultKind::shorten, 1, true});
  const auto file = open(true);
  must(write_all(*file, 0, written_.bytes));
  EXPECT_TRUE(same(*file));
  EXPECT_GT(io_.calls(IoCall::write), 1u);
  EXPECT_GT(io_.calls(IoCall::read), 1u);
}

TEST_F(FaultIoTest, ShortTransfersContinueOnBufferedFilesToo) {
  io_.add({IoCall::write, FaultKind::shorten, 1, true});
  io_.add({IoCall::read, FaultKind::shorten, 1, true});
  const auto file = open();
  must(write_all(*file, 3, written_.bytes));
  must(read_exact(*file, 3, read_.bytes));
  EXPECT_EQ(read_.bytes, written_.bytes);
}

TEST_F(FaultIoTest, MisalignedRequestToADirectFileIsRefused) {
  io_.enforce_alignment(512);
  const auto file = open(true);
  EXPECT_EQ(file->write_at(0, std::span(written_.bytes).first(513)).status().code(), Code::io_error);
  EXPECT_EQ(file->write_at(256, std::span(written_.bytes).first(512)).status().code(), Code::io_error);
  EXPECT_EQ(file->read_at(0, std::span(read_.bytes).subspan(8, 512)).status().code(), Code::io_error);
}

TEST_F(FaultIoTest, OneShotFailureHitsTheNthCallOnly) {
  io_.add({IoCall::write, FaultKind::fail, 2, false, Code::no_space});
  const auto file = open();
  EXPECT_TRUE(write_all(*file, 0, written_.bytes).is_ok());
  EXPECT_EQ(write_all(*file, 0, written_.bytes).code(), Code::no_space);
  EXPECT_TRUE(write_all(*file, 0, written_.bytes).is_ok());
}

TEST_F(FaultIoTest, StickyFailureStays) {
  io_.add({IoCall::read, FaultKind::fail, 1, true});
  const auto file = open();
  EXPECT_EQ(read_exact(*file, 0, read_.bytes).code(), Code::io_error);
  EXPECT_EQ(read_exact(*file, 0, read_.bytes).code(), Code::io_error);
}

TEST_F(FaultIoTest, DamagedWritesSucceedAndReadBackWrong) {
  const auto file = open();
  std::uint64_t nth = 0;
  for (const FaultKind kind : {FaultKind::flip, FaultKind::lose, FaultKind::misdirect, FaultKind::tear}) {
    must(file->write_at(0, read_.bytes));
    nth += 2;
    io_.add({IoCall::write, kind, nth});
    must(write_all(*file, 0, written_.bytes));
    EXPECT_FALSE(same(*file)) << static_cast<int>(kind);
    read_ = AlignedData(2);
  }
  EXPECT_EQ(io_.log().size(), 4u);
}

TEST_F(FaultIoTest, AFlippedReadLeavesTheFileIntact) {
  io_.add({IoCall::read, FaultKind::flip, 1});
  const auto file = open();
  must(write_all(*file, 0, written_.bytes));
  EXPECT_FALSE(same(*file));
  EXPECT_TRUE(same(*file));
}

TEST_F(FaultIoTest, SameSeedReplaysTheSameLog) {
  const auto run = [&](std::uint64_t seed) {
    FaultIo io(posix_io(), seed);
    io.add({IoCall::write, FaultKind::shorten, 1, true});
    const auto file = must(io.open(dir_.path(), OpenMode::scratch));
    must(write_all(*file, 0, written_.bytes));
    return io.log();
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

TEST_F(FaultIoTest, AFailedAtomicWriteKeepsTheOldTextAndLeavesNoFile) {
  const std::string path = dir_.file("state");
  must(write_text_atomically(io_, path, "old"));
  std::uint64_t nth = 2;
  for (const IoCall call : {IoCall::open, IoCall::write, IoCall::sync, IoCall::rename}) {
    io_.clear();
    io_.add({call, FaultKind::fail, io_.calls(call) + 1});
    EXPECT_EQ(write_text_atomically(io_, path, "new").code(), Code::io_error) << ++nth;
    io_.clear();
    EXPECT_EQ(must(read_text(io_, path, 10)), "old");
  }
  EXPECT_EQ(must(io_.list(dir_.path())), std::vector<std::string>{"state"});
}

TEST_F(FaultIoTest, RefusedDirectOpenFallsBackToBuffered) {
  io_.refuse_direct();
  EXPECT_FALSE(open(true)->direct());
}

}  // namespace
}  // namespace strata::test
