// The thread that calls MPI, with an MPI whose only other rank is never heard of.
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/mpi_thread.h"
#include "support/temp_dir.h"

namespace strata::detail {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// An MpiApi has no state, so that of the fake is static.
struct FakeMpi {
  static inline std::atomic<bool> throws{false}, fails{false};

  static int init(MpiInfo* info) {
    *info = {.rank = 0, .size = 2, .largest_tag = kLargestTag, .host = "a"};
    return 0;
  }
  static int isend(MpiChannel, const void*, std::size_t, int, int, MpiRequest*) { return 0; }
  static int irecv(MpiChannel, void*, std::size_t, int, int, MpiRequest*) { return 0; }
  static int test(MpiRequest*, int* done, MpiReceived*) {
    if (throws) throw std::runtime_error("planted");
    *done = fails ? 1 : 0;
    return *done;
  }
  static int end(MpiRequest*) { return 0; }
  static int finalize() { return 0; }
  static void describe(int error, char* text, std::size_t bytes) {
    std::snprintf(text, bytes, "error %d", error);
  }
  static constexpr MpiApi kApi{init, isend, irecv, test, end, end, finalize, describe};
};

class MpiThreadTest : public ::testing::Test {
 protected:
  void SetUp() override { FakeMpi::throws = FakeMpi::fails = false; }
  void TearDown() override { FakeMpi::throws = FakeMpi::fails = false; }

  /// Waits for a byte of the other rank.
  Status receive(bool throws = false) {
    Exchange exchange;
    std::byte data{};
    exchange.start_over(thread_->world(), 0);
    exchange.receive(1, &data, 1);
    thread_->begin(exchange);
    FakeMpi::throws = throws;
    return thread_->wait(exchange);
  }
  void start_watch() { thread_->start_watch({{"a", 0, 7, "here"}, {"a", 0, 8, "here"}}); }

  std::shared_ptr<MpiThread> thread_ =
      must(MpiThread::start(FakeMpi::kApi, {.leave_wait = milliseconds(20)}));
};

TEST_F(MpiThreadTest, WhoWaitsForAThreadThatHasEndedByAnErrorIsTold) {
  for (int i = 0; i < 2; ++i)  // then it has ended before the exchange begins
    EXPECT_EQ(receive(true).to_string(), "internal: the MPI thread threw: planted");
}

TEST_F(MpiThreadTest, AWarningThatThrowsDoesNotEndTheThread) {
  start_watch();
  thread_->set_watch({.patience_s = 0.4, .warn = [](std::string_view) { throw std::runtime_error("warn"); }});
  const Status lost = receive();
  EXPECT_EQ(lost.code(), Code::lost_peer);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("rank 1 of 2 has left the group: on host a, nothing"));
}

// A group over NCCL lives on, and asks for failures of other ranks.
TEST_F(MpiThreadTest, ARankThatHasLeftTheWorldIsNoFailure) {
  thread_->leave(thread_->world());
  while (thread_->failure(thread_->world()).is_ok()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(thread_->peer_failure().is_ok()) << thread_->peer_failure().to_string();
}

TEST_F(MpiThreadTest, SharedMemoryIsRemovedIfTheOthersDoNotLeave) {
  const test::TempDir folder;
  const std::string file = folder.path() + "/vader_segment.a.7";
  std::ofstream(file) << std::string(4096, 'x');
  std::FILE* const opened = std::fopen(file.c_str(), "r");
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, ::fileno(opened), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  start_watch();
  thread_.reset();
  EXPECT_FALSE(std::filesystem::exists(file));
  ::munmap(mapped, 4096);
  (void)std::fclose(opened);
}

TEST_F(MpiThreadTest, AnErrorIsNoHeartbeat) {
  Heartbeats heartbeats(FakeMpi::kApi, 0, 2);
  int heard = 0;
  const auto receive = [&] { heartbeats.receive([&](int, const RankPosition&) { ++heard; }); };
  receive();  // posts it
  FakeMpi::fails = true;
  for (int i = 0; i < 3; ++i) receive();
  EXPECT_EQ(heard, 0);
  EXPECT_EQ(heartbeats.take_bytes().received, 0U);
}

}  // namespace
}  // namespace strata::detail
