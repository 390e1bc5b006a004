// Stores over several directories.
#include <strata/offload/nvme_store.h>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <map>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "store_fixture.h"
#include "support/child.h"

namespace strata::test {
namespace {

class NvmePathsTest : public testing::TestWithParam<TestIoBackend> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == TestIoBackend::uring && !uring_works(&why)) GTEST_SKIP() << why;
  }
  std::vector<std::string> dirs() const { return {fixture_.dir(), second_dir_.path(), third_dir_.path()}; }
  /// Options with all three dirs, where the second one has a small share and the third almost none.
  NvmeOptions uneven(std::vector<SlotClass> classes) const {
    return {.dirs = dirs(), .path_rates = {10, 3, 0.5}, .classes = std::move(classes)};
  }
  StoreFixture fixture_{GetParam()};
  TempDir second_dir_, third_dir_;
  AlignedBuffer first_{kMiB, 1}, second_{kMiB, 2}, read_{kMiB};
};

class NvmePathFaultTest : public NvmePathsTest {};

INSTANTIATE_TEST_SUITE_P(IoBackends, NvmePathsTest,
                         testing::Values(TestIoBackend::uring, TestIoBackend::threads,
                                         TestIoBackend::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });
INSTANTIATE_TEST_SUITE_P(IoBackends, NvmePathFaultTest,
                         testing::Values(TestIoBackend::threads, TestIoBackend::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });

TEST_P(NvmePathsTest, BytesComeBackAtEverySize) {
  const auto store = fixture_.make(uneven({{2 * kMiB, 3}, {100 * kKiB, 9}}));
  for (const std::size_t bytes : {4 * kKiB, 68 * kKiB, 100 * kKiB, kMiB + 4 * kKiB, 2 * kMiB}) {
    const AlignedBuffer from(bytes, bytes), into(bytes);
    for (std::uint64_t id = 0; id < 3; ++id) {
      const std::uint32_t slot_class = bytes <= 100 * kKiB ? 1 : 0;
      store->discard(id);
      must(write_and_wait(*store, id, from, slot_class));
      must(read_and_wait(*store, id, into));
      ASSERT_TRUE(from == into) << bytes << " bytes, id " << id;
    }
    for (std::uint64_t id = 0; id < 3; ++id) store->discard(id);
  }
}

TEST_P(NvmePathsTest, EachPathHoldsItsShareByTheGivenRates) {
  const auto store =
      fixture_.make({.dirs = dirs(), .path_rates = {6, 3, 1}, .classes = {{10 * 128 * kKiB, 4}}});
  const std::vector<NvmePath> paths = store->paths();
  ASSERT_EQ(paths.size(), 3u);
  EXPECT_EQ(paths[0].bytes, 4 * 6 * 128 * kKiB);
  EXPECT_EQ(paths[1].bytes, 4 * 3 * 128 * kKiB);
  EXPECT_EQ(paths[2].bytes, 4 * 1 * 128 * kKiB);
  EXPECT_EQ(paths[1].dir, second_dir_.path());
  EXPECT_EQ(paths[1].rate, 3);
}

TEST_P(NvmePathsTest, RatesThatAreNotGivenAreMeasured) {
  const auto store = fixture_.make({.dirs = dirs(), .classes = {{kMiB, 12}}});
  std::uint64_t bytes = 0;
  for (const NvmePath& path : store->paths()) {
    EXPECT_GT(path.rate, 0) << path.dir;
    bytes += path.bytes;
    EXPECT_TRUE(must(posix_io().list(path.dir)).empty());
  }
  EXPECT_EQ(bytes, store->capacity_bytes());
  EXPECT_EQ(bytes, 12 * kMiB);
  must(write_and_wait(*store, 7, first_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
}

TEST_P(NvmePathsTest, OnePathIsNotMeasured) {
  const auto store = fixture_.make();
  EXPECT_EQ(store->paths().at(0).rate, 0);
  EXPECT_EQ(store->counters().files_opened, 1u);
}

TEST_P(NvmePathsTest, BehavesAsAMapUnderRandomOperationsOfSeveralSizes) {
  constexpr std::uint64_t kIds = 5, kSeed = 12;
  const auto store = fixture_.make(uneven({{512 * kKiB, 9}}));
  const Rng rng(kSeed, 0);
  std::map<std::uint64_t, std::pair<std::size_t, std::uint64_t>> model;  // id -> size, seed of its bytes
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t id = rng.below(3 * i, kIds);
    if (rng.below(3 * i + 1, 10) < 5 || !model.contains(id)) {
      const std::size_t bytes = (1 + rng.below(3 * i + 2, 128)) * 4 * kKiB;
      must(write_and_wait(*store, id, AlignedBuffer(bytes, i)));
      model[id] = {bytes, i};
    } else {
      const AlignedBuffer into(model[id].first);
      must(read_and_wait(*store, id, into));
      ASSERT_TRUE(into == AlignedBuffer(model[id].first, model[id].second))
          << "seed " << kSeed << " step " << i;
    }
    ASSERT_EQ(store->used_bytes(), model.size() * 512 * kKiB) << "seed " << kSeed << " step " << i;
  }
}

TEST_P(NvmePathFaultTest, WriteThatFailsOnOnePathGoesToAnotherSlotAsAWhole) {
  const auto store = fixture_.make(uneven({{kMiB, 4}}));
  fixture_.faults().add({IoCall::write, FaultKind::fail, fixture_.faults().calls(IoCall::write) + 2});
  must(write_and_wait(*store, 7, first_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
  EXPECT_EQ(store->counters().bad_slots, 1u);
  EXPECT_EQ(store->counters().write_retries, 1u);
}

TEST_P(NvmePathFaultTest, AFailureOfAnyOneCallNeverReturnsWrongBytes) {
  for (std::uint64_t nth = 1; nth <= 12; ++nth) {
    StoreFixture fixture(GetParam(), nth);
    fixture.faults().add({IoCall::write, FaultKind::fail, nth});
    fixture.faults().add({IoCall::read, FaultKind::fail, nth});
    NvmeOptions options = uneven({{kMiB, 8}});
    options.block_bytes = 128 * kKiB;
    const auto store = fixture.make(options);
    must(write_and_wait(*store, 7, first_));
    must(read_and_wait(*store, 7, read_));
    ASSERT_TRUE(read_ == first_) << "call " << nth;
  }
}

TEST_P(NvmePathFaultTest, ReadThatAlwaysFailsNamesEveryExtentOfTheObject) {
  const auto store = fixture_.make(uneven({{kMiB, 2}}));
  must(write_and_wait(*store, 6, first_));
  must(write_and_wait(*store, 7, first_));
  fixture_.faults().add({IoCall::read, FaultKind::fail, 1, true});
  const std::string said = read_and_wait(*store, 7, read_).to_string();
  EXPECT_TRUE(has(said, "id 7 generation 2")) << said;
  EXPECT_TRUE(has(said, str("917504 bytes in file 0 of ", fixture_.dir()))) << said;
  EXPECT_TRUE(has(said, str("131072 bytes in file 1 of ", second_dir_.path()))) << said;
}

// One of the two extents of each object is corrupted.
TEST_P(NvmePathFaultTest, CorruptionInOneExtentIsDetected) {
  for (const FaultKind kind : {FaultKind::flip, FaultKind::lose, FaultKind::tear})
    for (std::uint64_t nth = 1; nth <= 2; ++nth) {
      StoreFixture fixture(GetParam(), nth);
      fixture.faults().add({IoCall::write, kind, nth});
      const auto store = fixture.make({.dirs = {dirs()[0], dirs()[1]},
                                       .path_rates = {1, 1},
                                       .classes = {{kMiB, 2}},
                                       .block_bytes = kMiB});
      must(write_and_wait(*store, 7, first_));
      EXPECT_EQ(read_and_wait(*store, 7, read_).code(), Code::corrupt)
          << static_cast<int>(kind) << " " << nth;
    }
}

TEST_P(NvmePathFaultTest, PathThatCannotBeMeasuredIsNamed) {
  fixture_.faults().add({IoCall::read, FaultKind::fail, 1, true});
  const Status status = fixture_.try_make({.dirs = dirs(), .classes = {{kMiB, 4}}}).status();
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_TRUE(has(status.to_string(), str("measuring ", fixture_.dir()))) << status.to_string();
}

class NvmePathCreateTest : public testing::Test {
 protected:
  NvmeOptions options() const {
    return {.dirs = {dir_.path(), second_dir_.path()}, .path_rates = {3, 1}, .classes = {{kMiB, 4}}};
  }
  TempDir dir_, second_dir_;
};

TEST_F(NvmePathCreateTest, InvalidRatesAreRefused) {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& bad :
       {std::vector<double>{1}, {1, 2, 3}, {1, 0}, {-1, 1}, {infinite, 1}, {1, std::nan("")}}) {
    NvmeOptions asked = options();
    asked.path_rates = bad;
    EXPECT_EQ(NvmeStore::create(posix_io(), asked).status().code(), Code::invalid) << bad.front();
  }
}

// The message reports the second path's share of 1 MiB, without the 3 MiB of the first.
TEST_F(NvmePathCreateTest, PathThatIsFullIsRefusedByNameWithNeededAndFree) {
  const ChildResult child = run_in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", second_dir_.path().c_str(), "tmpfs", 0, "size=512k") != 0)
      return str("skip: mounting needs root: errno ", errno);
    return NvmeStore::create(posix_io(), options()).status().to_string();
  });
  if (has(child.output, "skip:")) GTEST_SKIP() << child.output;
  EXPECT_TRUE(has(child.output, "no_space")) << child.output;
  EXPECT_TRUE(has(child.output, second_dir_.path())) << child.output;
  EXPECT_TRUE(has(child.output, "1048576 bytes (1.0 MiB) needed")) << child.output;
  EXPECT_TRUE(has(child.output, "524288 (512.0 KiB) free")) << child.output;
}

TEST_F(NvmePathCreateTest, PathTooSlowToHoldAnythingGetsNothingAndTheRestWorks) {
  NvmeOptions asked = options();
  asked.path_rates = {1, 10000};
  const auto store = must(NvmeStore::create(posix_io(), asked));
  EXPECT_EQ(store->paths().at(0).bytes, 0u);
  must(write_and_wait(*store, 1, AlignedBuffer(kMiB, 1)));
}

// The probe waits no longer than the store's deadline.
TEST_F(NvmePathCreateTest, PathThatNeverAnswersWhileItIsMeasuredIsATimeout) {
  const ChildResult child = run_in_child([&] {
    StoreFixture fixture(TestIoBackend::fake_ring);
    fixture.ring().on_op = [](const detail::RingOp& op, std::uint64_t) {
      return op.file == 1 ? RingFaults::kDrop : RingFaults::kExecute;
    };
    NvmeOptions asked = options();
    asked.path_rates.clear();
    asked.deadline = std::chrono::milliseconds(500);
    return fixture.try_make(asked).status().to_string();
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(has(child.output, "timeout")) << child.output;
  EXPECT_TRUE(has(child.output, str("measuring ", second_dir_.path()))) << child.output;
}

}  // namespace
}  // namespace strata::test
