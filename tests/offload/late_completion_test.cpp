// Tests requests that complete after the store has given up on them, and whose memory may be freed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <semaphore>

#include <strata/runtime/str.h>

#include "store/io/ring_io_backend.h"
#include "store_fixture.h"
#include "support/child.h"

namespace strata::test {
namespace {

/// A device whose reads hang until `answers`.
struct HangingDevice {
  std::latch asked{1};
  std::latch answers{1};
  std::atomic<int> reads{0};
};

/// Reads no data. Each read returns the same count, if so many bytes were requested.
class HangingFile final : public File {
 public:
  HangingFile(HangingDevice& device, std::size_t count) : device_(device), count_(count) {}
  Result<std::size_t> read_at(std::uint64_t, std::span<std::byte> into) override {
    if (device_.reads.fetch_add(1) == 0) device_.asked.count_down();
    device_.answers.wait();
    return std::min(count_, into.size());
  }
  Result<std::size_t> write_at(std::uint64_t, std::span<const std::byte> from) override {
    return from.size();
  }
  Status sync() override { return Status::ok(); }
  Result<std::uint64_t> size() override { return std::uint64_t{0}; }
  Status allocate(std::uint64_t) override { return Status::ok(); }
  const std::string& path() const noexcept override { return path_; }
  bool direct() const noexcept override { return true; }
  DirectAlignment alignment() const noexcept override { return {4096, 4096}; }
  int descriptor() const noexcept override { return -1; }

 private:
  HangingDevice& device_;
  const std::size_t count_;
  const std::string path_ = "hanging";
};

class CountingSink final : public detail::TransferSink {
 public:
  void on_submit(std::uint32_t, std::size_t, std::size_t) noexcept override {}
  void on_block_read(std::uint32_t, std::size_t, std::size_t) noexcept override {}
  void on_progress() noexcept override {}
  void on_complete(std::uint32_t, Status) noexcept override { ++completed; }
  std::atomic<int> completed{0};
};

constexpr std::size_t kBlockBytes = 32 * kKiB;

/// Both I/O backends with one read at a time; that of the ring is short.
class AbandonTest : public testing::TestWithParam<TestIoBackend> {
 protected:
  std::unique_ptr<detail::IoBackend> make() {
    if (GetParam() == TestIoBackend::threads)
      return must(detail::make_thread_io_backend({&file_}, sink_, 2, kBlockBytes, 1));
    std::vector<std::unique_ptr<File>> files;
    files.push_back(std::make_unique<HangingFile>(device_, 4096));
    RingFaults faults;
    faults.capacity = 2;
    auto ring = std::make_unique<FakeRing>(std::move(files), faults, std::make_shared<RingStats>());
    return must(detail::make_ring_io_backend(std::move(ring), {{"hanging", 4096}}, sink_, 2, kBlockBytes));
  }
  void start_read(detail::IoBackend& backend, std::uint32_t index) {
    const detail::Extent extent{0, 0, kSlotBytes};
    backend.start(index, {false, memory_.view().data, {&extent, 1}});
  }
  HangingDevice device_;
  HangingFile file_{device_, kBlockBytes};
  CountingSink sink_;
  AlignedBuffer memory_{kSlotBytes};
};

INSTANTIATE_TEST_SUITE_P(IoBackends, AbandonTest,
                         testing::Values(TestIoBackend::threads, TestIoBackend::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });

TEST_P(AbandonTest, NeitherTheNextBlockNorTheRestOfAShortOneIsReadAndNothingIsReported) {
  auto backend = make();
  start_read(*backend, 0);
  device_.asked.wait();
  backend->abandon();
  start_read(*backend, 1);
  device_.answers.count_down();
  backend.reset();
  EXPECT_EQ(device_.reads, 1);
  EXPECT_EQ(sink_.completed, 0);
}

/// Reads an object in blocks of `block_bytes`. Those in flight hang until the store has given up, and are
/// then reported as successful. Returns the number of blocks read by then, and of whole reads begun again.
std::string late_read(std::size_t block_bytes) {
  StoreFixture fixture(TestIoBackend::fake_ring);
  std::latch given_up(1);
  std::counting_semaphore<> entered(0);
  std::atomic<int> reads{0};
  fixture.ring().on_op = [&](const detail::RingOp& op, std::uint64_t) {
    if (op.write) return RingFaults::kExecute;
    ++reads;
    given_up.wait();
    return static_cast<int>(op.bytes);
  };
  fixture.ring().on_enter = [&](std::uint64_t) {
    if (given_up.try_wait()) entered.release();
    return 0;
  };
  const auto store = fixture.make({.block_bytes = block_bytes, .deadline = std::chrono::seconds(1)});
  must(write_and_wait(*store, 7, AlignedBuffer(kSlotBytes, 1)));
  const AlignedBuffer into(kSlotBytes);
  const Status status = store->wait(must(store->read_async(7, into.view())));
  const bool drained = store->drain();
  given_up.count_down();
  entered.acquire();  // the completions were handled before
  entered.acquire();  // so was the end of the request
  return str(to_string(status.code()), drained ? ", drained, " : ", ", reads.load(), " blocks, ",
             store->counters().read_retries, " again");
}

TEST(LateCompletionTest, ALateReadIsNeitherContinuedNorBegunAgain) {
  const std::vector<std::function<std::string()>> bodies = {[] { return late_read(kBlockBytes); },
                                                            [] { return late_read(kSlotBytes); }};
  const std::vector<ChildResult> children = run_in_children(bodies);
  // A direction has half of the ring's 8 entries.
  EXPECT_EQ(children[0].output, "timeout, 4 blocks, 0 again");
  EXPECT_EQ(children[1].output, "timeout, 1 blocks, 0 again");
}

}  // namespace
}  // namespace strata::test
