#pragma once

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

namespace strata::test {

inline constexpr std::size_t kPage = 4096;
using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::size_t n, std::uint64_t seed) {
  Bytes bytes(n);
  std::mt19937_64 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Tells a WatchedStore what to do, and holds what it saw. For one thread.
struct Watch {
  bool hangs = false;                     ///< writes never end
  bool answers_late = false;              ///< that a read has ended is only known to who waits for it
  std::set<std::uint64_t> failing_reads;  ///< ids whose next read fails
  const std::byte* written_from = nullptr;
  std::set<std::uint64_t> reading;  ///< ids whose read has not ended
  /// For each wait: reads in flight among the 7 ids after that one.
  std::vector<std::size_t> n_following_reads;
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
  // Keyed by sequence number: id, and whether it fails.
  std::map<std::uint64_t, std::pair<std::uint64_t, bool>> reads_;
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

  Watch watch_;  // watches the store, which it outlives
  MemoryIo memory_;
  test::FaultIo faults_{memory_, 1};
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = must(create_host_backend({}, *pool_, clock_));
  std::vector<std::uint32_t> opened_;
  WatchedStore* watched_ = nullptr;  // the last one, of store_
  std::unique_ptr<SpillStore> store_;
};

}  // namespace strata::test
