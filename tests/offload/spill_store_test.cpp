#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <strata/offload/nvme_store.h>
#include <strata/offload/placement_request.h>
#include <strata/offload/spill_store.h>
#include <strata/runtime/backend/host_backend.h>

#include "support/fault_io.h"
#include "support/memory_io.h"

namespace strata {
namespace {

constexpr std::size_t kPage = 4096;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::size_t n, std::uint64_t seed) {
  Bytes bytes(n);
  std::mt19937_64 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// What a WatchedStore does, and what it saw. For one thread.
struct Watch {
  bool hangs = false;                     ///< writes never end
  bool answers_late = false;              ///< that a read has ended is only known to who waits for it
  std::set<std::uint64_t> failing_reads;  ///< ids whose next read fails
  const std::byte* written_from = nullptr;
  std::set<std::uint64_t> reading;             ///< ids whose read has not ended
  std::vector<std::size_t> n_following_reads;  ///< by wait: reads in flight among the 7 ids after that one
};

/// Forwards to another store as a Watch says.
class WatchedStore final : public ObjectStore {
 public:
  WatchedStore(StorePtr<ObjectStore> store, Watch& watch) : store_(std::move(store)), watch_(watch) {}

  Result<IoTicket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                               WriteMode mode) override {
    watch_.written_from = src.data;
    if (watch_.hangs) return IoTicket{0, kHanging};
    return store_->write_async(id, slot_class, src, mode);
  }
  Result<IoTicket> read_async(std::uint64_t id, BufferView dst) override {
    const auto ticket = store_->read_async(id, dst);
    if (ticket.has_value()) {
      reads_[ticket->sequence] = {id, watch_.failing_reads.erase(id) > 0};
      watch_.reading.insert(id);
    }
    return ticket;
  }
  Status wait(IoTicket ticket) override {
    if (ticket.sequence == kHanging) return Status::error(Code::timeout, "a write never ends");
    const auto read = reads_.find(ticket.sequence);
    if (read == reads_.end()) return store_->wait(ticket);
    const auto& [id, fails] = read->second;
    if (watch_.reading.contains(id)) {
      const auto& reading = watch_.reading;
      watch_.n_following_reads.push_back(
          static_cast<std::size_t>(std::distance(reading.upper_bound(id), reading.upper_bound(id + 7))));
    }
    watch_.reading.erase(id);
    Status status = store_->wait(ticket);
    return fails ? Status::error(Code::io_error, "a read fails") : status;
  }
  bool wait_for(IoTicket ticket, std::int64_t ns) override {
    if (ticket.sequence == kHanging) return true;
    const auto read = reads_.find(ticket.sequence);
    if (watch_.answers_late && read != reads_.end()) return !watch_.reading.contains(read->second.first);
    return store_->wait_for(ticket, ns);
  }
  void discard(std::uint64_t id) override { store_->discard(id); }
  void commit(std::uint64_t id) override { store_->commit(id); }
  void rollback(std::uint64_t id) override { store_->rollback(id); }
  bool drain() noexcept override { return !watch_.hangs && store_->drain(); }
  Status register_memory(BufferView memory) override { return store_->register_memory(memory); }
  NvmeCounters counters() const override { return store_->counters(); }
  std::vector<NvmePath> paths() const override { return store_->paths(); }
  std::string io_description() const override { return store_->io_description(); }

 private:
  static constexpr std::uint64_t kHanging = ~std::uint64_t{0};
  StorePtr<ObjectStore> store_;
  Watch& watch_;
  std::map<std::uint64_t, std::pair<std::uint64_t, bool>> reads_;  // by sequence: id, and whether it fails
};

/// A store of `frames` pages in RAM and `slots` on NVMe, in the memory of the test.
class SpillStoreTest : public testing::Test {
 protected:
  void make(std::uint64_t frames, std::uint64_t slots, Watch* watch = nullptr) {
    SpillOptions options;
    options.pinned_bytes = frames * kPage;
    options.nvme_bytes = slots == kUnlimited ? kUnlimited : slots * kPage;
    options.page_bytes = kPage;
    options.open_store = [this, watch](const SlotClass& slot_class) -> Result<StorePtr<ObjectStore>> {
      opened_.push_back(slot_class.slots);
      NvmeOptions nvme;
      nvme.dirs = {"/nvme"};
      nvme.classes = {slot_class};
      nvme.max_requests = SpillOptions::kMaxRequests;
      STRATA_TRY_ASSIGN(StorePtr<NvmeStore> store, NvmeStore::create(faults_, nvme));
      if (watch == nullptr) return StorePtr<ObjectStore>(std::move(store));
      watched_ = new WatchedStore(std::move(store), *watch);
      return StorePtr<ObjectStore>(watched_);
    };
    store_ = must(SpillStore::create(*backend_, options));
  }
  std::uint64_t put(const Bytes& bytes) { return must(store_->put({bytes.data(), bytes.size()})); }
  Status try_put(const Bytes& bytes) { return store_->put({bytes.data(), bytes.size()}).status(); }
  Status get(std::uint64_t id, Bytes& into) { return store_->get(id, {into.data(), into.size()}); }
  Bytes get(std::uint64_t id, std::size_t n) {
    Bytes bytes(n);
    must(get(id, bytes));
    return bytes;
  }

  MemoryIo memory_;
  test::FaultIo faults_{memory_, 1};
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = must(create_host_backend({}, *pool_, clock_));
  std::vector<std::uint32_t> opened_;
  WatchedStore* watched_ = nullptr;  // the last one, of store_
  std::unique_ptr<SpillStore> store_;
};

TEST_F(SpillStoreTest, ObjectsOfARandomSequenceHaveTheirBytes) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    make(2 + below(12), seed % 4 == 0 ? 0 : 24 + below(40));
    std::map<std::uint64_t, Bytes> model;
    std::uint64_t n_refused = 0, n_put = 0;
    for (int i = 0; i < 1500; ++i) {
      const auto any = [&] {
        auto at = model.begin();
        std::advance(at, below(3) == 0 ? below(model.size()) : model.size() - 1);  // mostly the newest
        return at;
      };
      const std::uint64_t action = below(8);
      if (action < 4) {
        Bytes bytes = bytes_of(1 + below(below(10) == 0 ? 20 * kPage : 3 * kPage), random());
        const auto id = store_->put({bytes.data(), bytes.size()});
        if (id.has_value()) {
          model.emplace(*id, std::move(bytes));
          ++n_put;
        } else {
          ASSERT_EQ(id.status().code(), Code::does_not_fit) << id.status().message();
          ++n_refused;
        }
      } else if (!model.empty() && action < 6) {
        const auto at = any();
        ASSERT_EQ(get(at->first, at->second.size()), at->second);
      } else if (!model.empty() && action == 6) {
        const auto at = any();
        ASSERT_TRUE(store_->discard(at->first).is_ok());
        model.erase(at);
      } else if (!model.empty()) {
        ASSERT_TRUE(store_->prefetch(any()->first).is_ok());
      }
      std::uint64_t held = 0;
      for (const auto& [id, bytes] : model) held += bytes.size();
      const SpillStats stats = store_->stats();
      ASSERT_EQ(stats.n_objects, model.size());
      ASSERT_EQ(stats.object_bytes, held);
      ASSERT_LE(held, stats.pinned_bytes + stats.nvme_bytes);
    }
    for (const auto& [id, bytes] : model) ASSERT_EQ(get(id, bytes.size()), bytes);
    for (const auto& [id, bytes] : model) ASSERT_TRUE(store_->discard(id).is_ok());
    EXPECT_GT(n_put, 100u);
    EXPECT_GT(n_refused, 0u);
  }
}

TEST_F(SpillStoreTest, WhatRamHasRoomForIsNotWritten) {
  make(32, 100);
  for (int cycle = 0; cycle < 3; ++cycle) {
    std::vector<std::uint64_t> ids;
    for (std::uint64_t i = 0; i < 5; ++i) ids.push_back(put(bytes_of(4 * kPage, i)));
    for (; !ids.empty(); ids.pop_back()) {
      EXPECT_EQ(get(ids.back(), 4 * kPage), bytes_of(4 * kPage, ids.size() - 1));
      must(store_->discard(ids.back()));
    }
  }
  EXPECT_EQ(store_->stats().nvme_written_bytes, 0u);
  EXPECT_EQ(store_->stats().peak_pinned_bytes, 20 * kPage);
  EXPECT_EQ(store_->stats().pinned_bytes, 0u);
}

TEST_F(SpillStoreTest, TheOldestPagesAreWrittenAsSoonAsTheLastCycleSaysThatTheyWillNotFit) {
  make(32, 100);  // of which 30 are for pages that are not on NVMe
  const auto fill = [&](std::uint64_t from, std::uint64_t to) {
    std::vector<std::uint64_t> ids;
    for (std::uint64_t i = from; i < to; ++i) ids.push_back(put(bytes_of(kPage, i)));
    return ids;
  };
  const auto drain = [&](std::vector<std::uint64_t> ids) {
    for (; !ids.empty(); ids.pop_back()) {
      EXPECT_EQ(get(ids.back(), kPage), bytes_of(kPage, ids.size() - 1));
      must(store_->discard(ids.back()));
    }
    while (store_->stats().pinned_bytes > 0) std::this_thread::yield();  // until writes in flight have ended
  };
  drain(fill(0, 50));
  const std::uint64_t before = store_->stats().nvme_written_bytes;
  std::vector<std::uint64_t> ids = fill(0, 20);  // RAM has room for these
  EXPECT_EQ(store_->stats().nvme_bytes, 20 * kPage);
  const std::vector<std::uint64_t> more = fill(20, 50);
  EXPECT_EQ(store_->stats().nvme_bytes, 20 * kPage);
  ids.insert(ids.end(), more.begin(), more.end());
  drain(std::move(ids));
  EXPECT_EQ(store_->stats().nvme_written_bytes - before, 20 * kPage);
}

TEST_F(SpillStoreTest, GettingReadsWhatIsOlderAhead) {
  make(32, 100);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 90; ++i) ids.push_back(put(bytes_of(kPage, i)));
  for (int i = 0; i < 30; ++i, ids.pop_back()) {
    (void)get(ids.back(), kPage);
    must(store_->discard(ids.back()));
  }
  EXPECT_EQ(store_->stats().pinned_bytes, 32 * kPage);  // what was got is gone, and older pages are there
  EXPECT_EQ(get(ids.back(), kPage), bytes_of(kPage, 59));
}

TEST_F(SpillStoreTest, AnObjectLargerThanRamGoesThroughIt) {
  make(4, 100);
  const Bytes bytes = bytes_of(40 * kPage + 7, 3);
  const std::uint64_t id = put(bytes);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(get(id, bytes.size()), bytes);
}

TEST_F(SpillStoreTest, WhatDoesNotFitIsRefusedWithBothNumbers) {
  make(4, 8);  // one page of RAM is for reading
  const Bytes bytes = bytes_of(10 * kPage, 1);
  const std::uint64_t id = put(bytes);
  const Status refused = try_put(bytes_of(kPage + 1, 2));
  EXPECT_EQ(refused.code(), Code::does_not_fit);
  EXPECT_EQ(refused.message(),
            "object 2 of 4097 bytes needs 8192 bytes, but 4096 of 45056 are free: 12288 in RAM and 32768 on "
            "NVMe, of which 1 objects use 40960");
  EXPECT_EQ(get(id, bytes.size()), bytes);
  (void)put(bytes_of(kPage, 2));
}

TEST_F(SpillStoreTest, SpaceOnNvmeGrowsAsItIsNeeded) {
  make(8, kUnlimited);
  EXPECT_TRUE(opened_.empty());
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 50; ++i) ids.push_back(put(bytes_of(kPage, i)));
  EXPECT_EQ(opened_, (std::vector<std::uint32_t>{8, 8, 16, 32}));
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(get(ids[i], kPage), bytes_of(kPage, i));
}

TEST_F(SpillStoreTest, WrongArgumentsAreRefused) {
  make(4, 8);
  const std::uint64_t id = put(bytes_of(10, 1));
  Bytes nine(9);
  EXPECT_EQ(get(id, nine).message(), "object 1 has 10 bytes, but the memory to copy it to has 9");
  EXPECT_EQ(try_put({}).code(), Code::invalid);
  const std::byte byte{};
  for (const std::uint64_t left : {0u, 1u, 4095u, 4096u})
    EXPECT_EQ(store_->put({&byte, ~std::uint64_t{0} - left}).status().code(), Code::does_not_fit);
  must(store_->discard(id));
  EXPECT_EQ(store_->discard(id).code(), Code::not_found);
  EXPECT_EQ(store_->prefetch(id).code(), Code::not_found);
  EXPECT_EQ(get(id, nine).code(), Code::not_found);
  for (const std::uint64_t pinned : {std::uint64_t{0}, std::uint64_t{kPage}})
    EXPECT_EQ(SpillStore::create(*backend_, {.pinned_bytes = pinned, .page_bytes = kPage}).status().code(),
              Code::invalid);
  EXPECT_EQ(SpillStore::create(*backend_, {.pinned_bytes = 1 << 20, .page_bytes = 100}).status().code(),
            Code::invalid);
}

TEST_F(SpillStoreTest, AFailedWriteKeepsTheBytesAndIsReportedWhenThereIsNoRoom) {
  make(4, 100);
  faults_.add({test::IoCall::write, test::FaultKind::fail, 1, true});
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 3; ++i) ids.push_back(put(bytes_of(kPage, i)));
  const Status failed = try_put(bytes_of(kPage, 3));
  EXPECT_EQ(failed.code(), Code::io_error);
  EXPECT_NE(failed.message().find("making room for object 4: writing object "), std::string::npos)
      << failed.message();
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(get(ids[i], kPage), bytes_of(kPage, i));
  EXPECT_EQ(store_->stats().n_objects, 3u);
  faults_.clear();
  ids.push_back(put(bytes_of(kPage, 3)));  // to slots that have not failed
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(get(ids[i], kPage), bytes_of(kPage, i));
}

TEST_F(SpillStoreTest, APutEndsWhenItsOwnWritesFailUntilNoSlotIsLeft) {
  make(4, 2);
  faults_.add({test::IoCall::write, test::FaultKind::fail, 1, true});
  const Status failed = try_put(bytes_of(5 * kPage, 1));
  EXPECT_EQ(failed.code(), Code::io_error);
  EXPECT_EQ(failed.message().rfind("making room for object 1: writing object 1: ", 0), 0u)
      << failed.message();
  EXPECT_NE(failed.message().find("injected failure"), std::string::npos) << failed.message();
  EXPECT_EQ(store_->stats().n_objects, 0u);
  const std::uint64_t id = put(bytes_of(3 * kPage, 2));  // RAM is as large as before
  EXPECT_EQ(get(id, 3 * kPage), bytes_of(3 * kPage, 2));
  EXPECT_EQ(try_put(bytes_of(kPage, 3)).code(), Code::io_error);  // it fitted before slots failed
  EXPECT_EQ(try_put(bytes_of(9 * kPage, 3)).code(), Code::does_not_fit);
}

TEST_F(SpillStoreTest, MemoryThatAWriteMayStillReadIsNotGivenBack) {
  Watch watch;
  watch.hangs = true;
  make(4, 100, &watch);
  EXPECT_EQ(try_put(bytes_of(10 * kPage, 1)).code(), Code::timeout);
  store_.reset();
  backend_.reset();  // it does not count the memory any more
  auto* const page = const_cast<std::byte*>(watch.written_from);
  EXPECT_EQ(msync(page, kPage, MS_ASYNC), 0) << "the page is not mapped";
  watch.hangs = false;
  delete watched_;
}

TEST_F(SpillStoreTest, AFullFileSystemIsReportedAndTriedAgain) {
  make(4, 100);
  faults_.add({test::IoCall::allocate, test::FaultKind::fail, 1, true, Code::no_space});
  for (std::uint64_t i = 0; i < 3; ++i) (void)put(bytes_of(kPage, i));
  EXPECT_EQ(try_put(bytes_of(kPage, 3)).code(), Code::no_space);
  faults_.clear();
  const std::uint64_t id = put(bytes_of(2 * kPage, 4));
  EXPECT_EQ(get(id, 2 * kPage), bytes_of(2 * kPage, 4));
}

TEST_F(SpillStoreTest, AFailedReadNamesTheObjectAndMayBeRepeated) {
  make(4, 100);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 20; ++i) ids.push_back(put(bytes_of(kPage, i)));
  faults_.add({test::IoCall::read, test::FaultKind::fail, faults_.calls(test::IoCall::read) + 1, true});
  Bytes into(kPage);
  const Status failed = get(ids[0], into);
  EXPECT_EQ(failed.code(), Code::io_error);
  EXPECT_EQ(failed.message().rfind("reading object 1: ", 0), 0u) << failed.message();
  faults_.clear();
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(get(ids[i], kPage), bytes_of(kPage, i));
}

TEST_F(SpillStoreTest, AReadThatFailsAmongOthersInFlightIsRepeated) {
  Watch watch;
  make(64, 200, &watch);  // of which 4 are for reading
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 100; ++i) ids.push_back(put(bytes_of(kPage, i)));
  for (std::uint64_t i = 0; i < 3; ++i, ids.pop_back()) must(store_->discard(ids.back()));  // frames
  watch.answers_late = true;
  watch.failing_reads = {1};
  for (const std::size_t i : {0u, 1u, 2u}) must(store_->prefetch(ids[i]));
  EXPECT_EQ(watch.reading, (std::set<std::uint64_t>{0, 1, 2}));
  Bytes into(kPage);
  EXPECT_EQ(get(ids[1], into).message(), "reading object 2: a read fails");
  EXPECT_EQ(get(ids[1], kPage), bytes_of(kPage, 1));
}

TEST_F(SpillStoreTest, ThePagesOfAnObjectThatRamHasNoRoomForAreReadSeveralAtATime) {
  Watch watch;
  make(128, 500, &watch);  // of which 8 are for reading
  const Bytes bytes = bytes_of(400 * kPage, 1);
  const std::uint64_t id = put(bytes);
  watch.answers_late = true;
  EXPECT_EQ(get(id, bytes.size()), bytes);
  const auto& following = watch.n_following_reads;
  ASSERT_GT(following.size(), 200u);
  EXPECT_GE(*std::min_element(following.begin(), following.begin() + 200), 6u);
}

TEST_F(SpillStoreTest, ABitThatFlipsOnNvmeIsNoticed) {
  make(4, 100);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 20; ++i) ids.push_back(put(bytes_of(kPage, i)));
  faults_.add({test::IoCall::read, test::FaultKind::flip, faults_.calls(test::IoCall::read) + 1, true});
  Bytes into(kPage);
  EXPECT_EQ(get(ids[0], into).code(), Code::corrupt);
}

TEST_F(SpillStoreTest, ThreadsUseItAtTheSameTime) {
  make(16, 400);
  std::atomic<int> n_wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<std::pair<std::uint64_t, Bytes>> own;
      for (int i = 0; i < 600; ++i) {
        if (own.size() < 20 && random() % 2 == 0) {
          Bytes bytes = bytes_of(1 + random() % (4 * kPage), random());
          const std::uint64_t id = put(bytes);
          own.emplace_back(id, std::move(bytes));
        } else if (!own.empty()) {
          const auto& [id, bytes] = own.back();
          if (get(id, bytes.size()) != bytes) ++n_wrong;
          if (random() % 3 != 0) {
            must(store_->discard(id));
            own.pop_back();
          }
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0);
}

TEST_F(SpillStoreTest, AnObjectMayBeDiscardedWhileItIsRead) {
  make(8, 400);
  for (std::uint64_t round = 0; round < 30; ++round) {
    const Bytes bytes = bytes_of(30 * kPage, round);
    const std::uint64_t id = put(bytes);
    std::thread reader([&] {
      Bytes into(bytes.size());
      const Status status = get(id, into);
      if (status.is_ok())
        EXPECT_EQ(into, bytes);
      else
        EXPECT_EQ(status.code(), Code::not_found);
    });
    must(store_->discard(id));
    reader.join();
  }
  EXPECT_EQ(store_->stats().n_objects, 0u);
}

}  // namespace
}  // namespace strata
