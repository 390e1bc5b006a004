#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/thread_annotations.h>

#include "store/io/busy_time.h"
#include "store/io/io_backend.h"
#include "store/id_table.h"
#include "store/slot_allocator.h"
#include "store/store_files.h"
#include "store/store_trace.h"

namespace strata::detail {

/// The implementation of NvmeStore: requests, ids, slots, retries and checksums. It decides where bytes go;
/// an IoBackend moves them. Lock order: mutex_, then the mutex of the IoBackend.
class StoreCore final : public TransferSink {
 public:
  static Result<std::unique_ptr<StoreCore>> create(Io& io, NvmeOptions options,
                                                   const RingFactory& make_ring = make_uring);
  ~StoreCore() override STRATA_EXCLUDES(mutex_);

  Status register_memory(BufferView slab);
  Result<Ticket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src, WriteMode mode)
      STRATA_EXCLUDES(mutex_);
  Result<Ticket> read_async(std::uint64_t id, BufferView dst) STRATA_EXCLUDES(mutex_);
  Status wait(Ticket ticket) STRATA_EXCLUDES(mutex_);
  bool wait_for(Ticket ticket, std::int64_t ns) STRATA_EXCLUDES(mutex_);
  bool is_complete(Ticket ticket) const noexcept STRATA_EXCLUDES(mutex_);
  void discard(std::uint64_t id) STRATA_EXCLUDES(mutex_);
  void commit(std::uint64_t id) STRATA_EXCLUDES(mutex_);
  void rollback(std::uint64_t id) STRATA_EXCLUDES(mutex_);
  std::optional<StoredInfo> find(std::uint64_t id) const STRATA_EXCLUDES(mutex_);
  std::uint64_t used_bytes() const STRATA_EXCLUDES(mutex_);
  std::uint64_t capacity_bytes() const STRATA_EXCLUDES(mutex_);
  std::vector<NvmePath> paths() const STRATA_EXCLUDES(mutex_);
  NvmeCounters counters() const STRATA_EXCLUDES(mutex_);
  std::string io_description() const;
  /// Waits for all requests in flight. Returns false if a completion never arrives; then the store must not
  /// be destroyed.
  bool drain() noexcept STRATA_EXCLUDES(mutex_);

  void on_submit(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept override;
  void on_block_read(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept override;
  void on_progress() noexcept override { progress_count_.fetch_add(1, std::memory_order_relaxed); }
  void on_complete(std::uint32_t index, Status outcome) noexcept override STRATA_EXCLUDES(mutex_);

 private:
  struct Request {
    std::uint64_t sequence = 0;
    bool active = false;
    bool write = false;
    bool starved = false;  // a write that waits for another slot
    bool reread = false;
    std::uint64_t id = 0;
    std::uint64_t generation = 0;
    SlotIndex slot = kNoSlot;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::vector<Extent> extents;             // of the slot; capacity for one per file
    std::uint32_t crc = 0;                   // of the whole object, as published
    std::atomic<std::uint32_t> checksum{0};  // xor of the blocks' shifted crcs; the backend's lock orders it
    std::int64_t begin_ns = 0;
    Status first_failure;  // why it was retried
  };

  StoreCore(NvmeOptions options, StoreFiles files, std::span<const double> rates);
  Status allocate_files();
  Status check_buffer(const char* doing, std::uint64_t id, const void* data, std::size_t bytes) const;

  Ticket begin(bool write, std::uint64_t id, std::byte* data, std::size_t bytes) STRATA_REQUIRES(mutex_);
  Status no_free_slot(std::uint32_t slot_class) const STRATA_REQUIRES(mutex_);
  Transfer transfer_of(Request& request) const STRATA_REQUIRES(mutex_);
  std::string describe(const Request& request) const STRATA_REQUIRES(mutex_);
  void add_block_checksum(Request& request, std::size_t at, std::size_t bytes) noexcept;
  static std::uint32_t object_checksum(const Request& request) noexcept;
  // These return true if the request continues (in the IoBackend or starved), false if it is complete with
  // `outcome`.
  bool complete_read(Request& request, Status& outcome) STRATA_REQUIRES(mutex_);
  bool complete_write(std::uint32_t index, Status& outcome) STRATA_REQUIRES(mutex_);
  void publish(const Request& request) STRATA_REQUIRES(mutex_);
  IdRecord* find_idle(const char* doing, std::uint64_t id) STRATA_REQUIRES(mutex_);
  void retire(Version& version) STRATA_REQUIRES(mutex_);
  void free_version(Version& version) STRATA_REQUIRES(mutex_);
  void end(std::uint32_t index, const Status& outcome) STRATA_REQUIRES(mutex_);
  void retry_starved_writes(std::uint32_t slot_class) STRATA_REQUIRES(mutex_);
  void drop_pending(std::uint64_t id) STRATA_REQUIRES(mutex_);
  // Waits until a request ends, a slot becomes free or the device makes any progress. Returns an error, now
  // and at every later call, if none of these happens within the deadline.
  Status await_change() STRATA_REQUIRES(mutex_);

  const NvmeOptions options_;
  const std::vector<double> rates_;  // one per file
  StoreFiles files_;                 // fixed once created
  std::atomic<std::uint64_t> next_generation_{1};

  mutable Mutex mutex_;
  mutable Condition done_;                             // a request ended or a slot became free
  Status timeout_ STRATA_GUARDED_BY(mutex_);           // set once a completion is overdue; every call fails
  std::uint64_t ended_ STRATA_GUARDED_BY(mutex_) = 0;  // requests
  std::atomic<std::uint64_t> progress_count_{0};       // blocks moved; relaxed
  std::atomic<bool> abandoned_{false};                 // the memory of requests may be gone; relaxed
  SlotAllocator slots_ STRATA_GUARDED_BY(mutex_);
  IdTable ids_ STRATA_GUARDED_BY(mutex_);
  std::vector<Request> requests_;  // guarded by mutex_, except data and checksum of requests in flight
  std::vector<std::uint32_t> idle_requests_ STRATA_GUARDED_BY(mutex_);
  StoreTrace trace_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> busy_ STRATA_GUARDED_BY(mutex_);  // by slot class: requests in flight
  std::uint64_t last_sequence_ STRATA_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, Status> failures_
      STRATA_GUARDED_BY(mutex_);  // by sequence number, for late calls of wait()
  NvmeCounters counters_ STRATA_GUARDED_BY(mutex_);
  std::array<BusyTime, 2> busy_time_ STRATA_GUARDED_BY(mutex_);  // of reads, of writes
  const SteadyClock clock_;
  std::unique_ptr<IoBackend> io_backend_;  // last: its threads stop before other members are destroyed
};

}  // namespace strata::detail
