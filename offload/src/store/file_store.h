#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>

#include "store/io/io_backend.h"
#include "store/object_checksums.h"
#include "store/object_table.h"
#include "store/request_table.h"
#include "store/slot_allocator.h"
#include "store/store_files.h"
#include "store/store_meter.h"

namespace strata::detail {

/// The NvmeStore. It decides where bytes go, what is retried and who waits for what; an IoBackend moves the
/// bytes. Lock order: mutex_, then the mutex of the IoBackend.
class FileStore final : public NvmeStore, private TransferSink {
 public:
  static Result<StorePtr<NvmeStore>> create(Io& io, NvmeOptions options, const RingFactory& make_ring);
  ~FileStore() override STRATA_EXCLUDES(mutex_);

  Status register_memory(BufferView slab) override;
  Result<IoTicket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                               WriteMode mode) override STRATA_EXCLUDES(mutex_);
  Result<IoTicket> read_async(std::uint64_t id, BufferView dst) override STRATA_EXCLUDES(mutex_);
  Status wait(IoTicket ticket) override STRATA_EXCLUDES(mutex_);
  bool wait_for(IoTicket ticket, std::int64_t ns) override STRATA_EXCLUDES(mutex_);
  bool is_complete(IoTicket ticket) const noexcept override STRATA_EXCLUDES(mutex_);
  void discard(std::uint64_t id) override STRATA_EXCLUDES(mutex_);
  void commit(std::uint64_t id) override STRATA_EXCLUDES(mutex_);
  void rollback(std::uint64_t id) override STRATA_EXCLUDES(mutex_);
  bool drain() noexcept override STRATA_EXCLUDES(mutex_);

  std::optional<StoredInfo> find(std::uint64_t id) const override STRATA_EXCLUDES(mutex_);
  std::uint64_t used_bytes() const override STRATA_EXCLUDES(mutex_);
  std::uint64_t capacity_bytes() const override STRATA_EXCLUDES(mutex_);
  std::vector<NvmePath> paths() const override STRATA_EXCLUDES(mutex_);
  NvmeCounters counters() const override STRATA_EXCLUDES(mutex_);
  std::string io_description() const override;

 private:
  FileStore(NvmeOptions options, StoreFiles files, std::span<const double> rates);
  Status allocate_files();

  Status check_write(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src) const;
  Result<SlotIndex> wait_for_slot(std::uint64_t id, std::uint32_t slot_class) STRATA_REQUIRES(mutex_);
  Transfer next_transfer(std::uint32_t index) STRATA_REQUIRES(mutex_);

  void on_submit(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept override {
    checksums_.add_block(index, at, bytes);
  }
  void on_block_read(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept override {
    checksums_.add_block(index, at, bytes);
  }
  void on_progress() noexcept override { progress_count_.fetch_add(1, std::memory_order_relaxed); }
  void on_complete(std::uint32_t index, Status outcome) noexcept override STRATA_EXCLUDES(mutex_);

  // These return true if the request is to be transferred again; otherwise it has ended, or it is a write
  // that is starved.
  bool complete_read(std::uint32_t index, Status outcome) STRATA_REQUIRES(mutex_);
  bool complete_write(std::uint32_t index, Status outcome) STRATA_REQUIRES(mutex_);
  bool move_write(StoreRequest& request) STRATA_REQUIRES(mutex_);
  Status no_slot_left(const StoreRequest& request) const STRATA_REQUIRES(mutex_);
  void retry_starved_writes(std::uint32_t slot_class) STRATA_REQUIRES(mutex_);
  void end(std::uint32_t index, const Status& outcome) STRATA_REQUIRES(mutex_);
  void on_freed(const Version& version) STRATA_REQUIRES(mutex_);
  std::string describe(const StoreRequest& request) const;
  // Waits until a request ends, a slot becomes free or the device makes any progress. Returns an error, now
  // and at every later call, if none of these happens within the deadline. After that no request
  // is continued and late completions are ignored, since the owners of the memory may have freed it.
  Status await_change() STRATA_REQUIRES(mutex_);

  const NvmeOptions options_;
  const std::vector<double> rates_;  // one per file
  StoreFiles files_;                 // fixed once created
  const SteadyClock clock_;
  std::atomic<std::uint64_t> next_generation_{1};
  std::atomic<std::uint64_t> progress_count_{0};  // blocks moved; relaxed
  ObjectChecksums checksums_;

  mutable Mutex mutex_;
  Condition done_;                            // a request ended or a slot became free
  Status timeout_ STRATA_GUARDED_BY(mutex_);  // set once a completion is overdue; every call fails
  SlotAllocator slots_ STRATA_GUARDED_BY(mutex_);
  ObjectTable objects_ STRATA_GUARDED_BY(mutex_);  // refers to slots_
  RequestTable requests_ STRATA_GUARDED_BY(mutex_);
  StoreMeter meter_ STRATA_GUARDED_BY(mutex_);
  std::unique_ptr<IoBackend> io_backend_;  // last: its threads stop before other members are destroyed
};

}  // namespace strata::detail
