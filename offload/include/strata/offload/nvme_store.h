#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <strata/offload/object_store.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>
#include <strata/runtime/units.h>

namespace strata {

class Trace;

namespace detail {
class StoreCore;
}

enum class IoEngine : std::uint8_t {
  automatic,  ///< io_uring, or threads if the kernel or the build lacks it; see io_description()
  uring,      ///< io_uring, or the error `unsupported`
  threads,    ///< positioned reads and writes through File
};

/// `slots` slots of `slot_bytes` (a multiple of 4096). A class needs one slot for each object and one spare
/// for each write that may be in flight, since a write never overwrites a published generation.
struct SlotClass {
  std::size_t slot_bytes = 0;
  std::uint32_t slots = 0;
};

struct NvmeOptions {
  /// Created if absent. Objects are striped over all dirs in proportion to their rates, so that their
  /// bandwidths add up.
  std::vector<std::string> dirs = {};
  /// One rate per dir; only the ratios matter. Empty: with several dirs each is measured, in a fraction of a
  /// second.
  std::vector<double> path_rates = {};
  std::vector<SlotClass> classes = {};
  IoEngine engine = IoEngine::automatic;
  int queue_depth = 24;  ///< blocks in flight in the ring, per direction and dir
  std::size_t block_bytes =
      4 * kMiB;        ///< larger requests are split into blocks of this size, a multiple of 4096
  bool direct = true;  ///< O_DIRECT where the file system supports it
  int io_threads = 2;  ///< threads per dir of IoEngine::threads
  std::uint32_t max_requests = 64;  ///< in flight; a call that submits one more blocks
  /// The store fails if no block completes for this long while requests are in flight. Longer than any driver
  /// takes to report a device that does not respond.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  Trace* trace = nullptr;  ///< receives tracks with one span per request; outlives the store
};

/// The published generation of an id.
struct StoredInfo {
  std::size_t bytes = 0;
  std::uint64_t generation = 0;  ///< rises with every write to the store
};

/// Stores objects (byte arrays) in preallocated, unlinked files, one per dir, and stripes each object over
/// all of them. Volatile: nothing outlives the store. Each write goes out of place into a free slot and is
/// published when it has completed; until then, and for reads in flight, the previous generation stays. Every
/// read is verified against a crc32c, seeded with (id, generation), that was computed from the bytes before
/// they were written and is kept in RAM: lost, misdirected and torn writes are detected as reliably as
/// flipped bits. Thread-safe. Buffers are 4096-aligned in address and size; the caller owns them and keeps
/// them valid until the ticket is complete. After creation the store neither allocates nor opens files,
/// except on failures. The destructor waits for requests in flight. If a completion never arrives, every call
/// returns `timeout` with the request that is overdue. Since the kernel may still write to that request's
/// memory, such a store is never destroyed; the process should end soon.
class NvmeStore final : public ObjectStore {
 public:
  /// Errors: `invalid` options, `no_space` with the bytes needed and free, `unsupported` if `engine` is uring
  /// and io_uring is not available.
  static Result<std::unique_ptr<NvmeStore>> create(Io& io, NvmeOptions options);
  explicit NvmeStore(std::unique_ptr<detail::StoreCore> core);  ///< for create() and tests
  ~NvmeStore() override;
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  /// Registers memory that many requests will use with the ring; the memory outlives the store. If the kernel
  /// refuses to lock it, requests work with unregistered buffers and io_description() says so; this is not an
  /// error. Errors: `invalid` alignment.
  Status register_memory(BufferView slab);

  /// Blocks while all requests, or all slots of the class, are in use by requests in flight. The I/O threads
  /// compute the checksum as they submit the blocks, so `src` must not change until the ticket is complete.
  /// Of two writes of one id in flight the later call wins, whichever completes first. Errors: `invalid`;
  /// `does_not_fit` if every slot of the class holds a published generation; `io_error` if bad slots are the
  /// reason. With WriteMode::snapshot the previous generation stays in its slot, beside the ones that follow,
  /// until commit() or rollback(); this needs one more slot in the class.
  Result<Ticket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                             WriteMode mode = WriteMode::replace) override;
  /// Reads the currently published generation, even while a newer one is being written. `dst` has exactly the
  /// stored size. Errors: `not_found`, `invalid`.
  Result<Ticket> read_async(std::uint64_t id, BufferView dst) override;

  /// Waits for the request and returns its outcome; may be called any number of times, at any later time.
  /// Errors: `io_error` with id, file and offset; `corrupt` with both checksums; `no_space`; `timeout`.
  Status wait(Ticket ticket) override;
  bool wait_for(Ticket ticket, std::int64_t ns) override;
  bool is_complete(Ticket ticket) const noexcept;

  /// Removes an id and frees its slots; unknown ids are ignored. The id has no request in flight (asserted).
  void discard(std::uint64_t id) override;
  /// Frees the snapshot of an id. Does nothing if there is none. The id has no request in flight (asserted).
  void commit(std::uint64_t id) override;
  /// Undoes the first snapshot write of an id and all writes after it: the snapshot is published again, or
  /// the id is removed if nothing was published before that write. Does nothing without a snapshot write. The
  /// id has no request in flight (asserted).
  void rollback(std::uint64_t id) override;
  std::optional<StoredInfo> find(std::uint64_t id) const;

  std::uint64_t used_bytes() const;      ///< of slots that are published, being written or still being read
  std::uint64_t capacity_bytes() const;  ///< preallocated
  std::vector<NvmePath> paths() const override;
  NvmeCounters counters() const override;
  /// "io_uring, O_DIRECT, registered buffers", or which fallback is in use and why.
  std::string io_description() const override;

 private:
  std::unique_ptr<detail::StoreCore> core_;
};

}  // namespace strata
