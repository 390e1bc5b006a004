#include "offload/spill_fixture.h"

namespace strata {
namespace {

using namespace test;

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
  make(32, 100);  // 30 of these frames are for pages that are not on NVMe
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
  // The object that was got is gone, and older pages have come, but for those whose room a late write still
  // took.
  EXPECT_GE(store_->stats().pinned_bytes, 24 * kPage);
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

TEST_F(SpillStoreTest, ThePagesOfAnObjectThatRamHasNoRoomForAreReadSeveralAtATime) {
  make(128, 500, &watch_);  // 8 of these frames are for reading
  const Bytes bytes = bytes_of(400 * kPage, 1);
  const std::uint64_t id = put(bytes);
  watch_.answers_late = true;
  EXPECT_EQ(get(id, bytes.size()), bytes);
  const auto& following = watch_.n_following_reads;
  ASSERT_GT(following.size(), 200u);
  EXPECT_GE(*std::min_element(following.begin(), following.begin() + 200), 6u);
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
