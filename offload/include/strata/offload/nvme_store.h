#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <strata/offload/object_store.h>
#include <strata/runtime/backend.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>
#include <strata/runtime/units.h>

namespace strata {

class Trace;

namespace detail {
class StoreCore;
}

enum class IoEngine : std::uint8_t {
  automatic,  ///< io_uring, or threads where it is refused or not built; io_description() says which and why
  uring,      ///< io_uring or `unsupported`
  threads,    ///< positioned reads and writes through File
};

/// `slots` places of `slot_bytes` (a multiple of 4096). Count one place for each object and, for each write
/// that may be in flight, one spare: writes never overwrite what is published.
struct SlotClass {
  std::size_t slot_bytes = 0;
  std::uint32_t slots = 0;
};

struct NvmeOptions {
  /// Created if absent. Objects are striped over several by their rates, so that together they are as fast as
  /// the sum of them.
  std::vector<std::string> dirs = {};
  /// One a dir, of which only the ratios count. Empty: several are measured, in a fraction of a second each.
  std::vector<double> path_rates = {};
  std::vector<SlotClass> classes = {};
  IoEngine engine = IoEngine::automatic;
  int queue_depth = 24;  ///< blocks in flight in the ring, of each direction of each dir
  std::size_t block_bytes =
      4 * kMiB;        ///< larger requests are split into blocks of this size, a multiple of 4096
  bool direct = true;  ///< O_DIRECT where the file system takes it
  int io_threads = 2;  ///< of the threads engine, for each dir
  std::uint32_t max_requests = 64;  ///< requests in flight; submitting blocks while all are taken
  /// A store in which no block is moved for this long, while something is in flight, is given up. Longer than
  /// any driver takes to report a device that does not answer.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  Trace* trace = nullptr;  ///< gets tracks with a span for each request; outlives the store
};

/// What is published under an id.
struct StoredInfo {
  std::size_t bytes = 0;
  std::uint64_t generation = 0;  ///< rises with every write to the store
};

/// Objects of bytes in preallocated, nameless files, one a folder, over which each object is striped.
/// Volatile: nothing outlives the store. Each write goes out of place into a free slot and is published when
/// it has completed; until then, and for reads already under way, the previous generation stays. Every read
/// is verified against the crc32c, seeded with (id, generation), that was taken of the bytes to be written
/// and kept in RAM: lost, misdirected and torn writes are found as surely as flipped bits. Thread-safe.
/// Buffers are 4096-aligned in address and size, and the caller's until the ticket is complete. After
/// creation nothing allocates and no file is opened, failures aside. The destructor waits for what is in
/// flight. Where a completion never comes, every call answers `timeout` with the request that is overdue,
/// since its memory may still be written to; such a store is left to the end of the process, which should be
/// near.
class NvmeStore final : public ObjectStore {
 public:
  /// Errors: `invalid` options, `no_space` with the bytes needed and free, `unsupported` for an engine
  /// insisted on.
  static Result<std::unique_ptr<NvmeStore>> create(Io& io, NvmeOptions options);
  explicit NvmeStore(std::unique_ptr<detail::StoreCore> core);  ///< for create() and tests
  ~NvmeStore() override;
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  /// Tells the ring of memory that many requests will use; it outlives the store. Where the kernel refuses to
  /// lock it the requests work unregistered and io_description() says so, which is no error. Errors:
  /// `invalid` alignment.
  Status register_memory(BufferView slab);

  /// Blocks while the request table or the class is full of work in flight. The sum is taken by the engine's
  /// threads as they submit; `src` keeps its bytes until the ticket is complete. Two writes of one id in
  /// flight: the later call wins, whichever completes first. Errors: `invalid`; `does_not_fit` when every
  /// slot of the class holds something published; `io_error` when bad slots are the reason.
  /// A keeping write makes the generation before it stay in its slot, beside those that follow, until
  /// commit() or rollback(): count a slot more for it.
  Result<Ticket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                             WriteMode mode = WriteMode::replace) override;
  /// Reads the generation published now, also when a newer one is being written. `dst` has exactly the stored
  /// size. Errors: `not_found`, `invalid`.
  Result<Ticket> read_async(std::uint64_t id, BufferView dst) override;

  /// The outcome of that request, however often and late it is asked for. Errors: `io_error` naming id, file
  /// and offset; `corrupt` with both sums; `no_space`; `timeout`.
  Status wait(Ticket ticket) override;
  bool wait_for(Ticket ticket, std::int64_t ns) override;
  bool is_complete(Ticket ticket) const noexcept;

  /// Forgets an id and frees its slot; unknown ids are ignored. No request on it may be in flight (asserted).
  void discard(std::uint64_t id) override;
  /// Retires what was kept since the first keeping write of an id. Where there was none, nothing happens. No
  /// request on it may be in flight (asserted).
  void commit(std::uint64_t id) override;
  /// Takes back the first keeping write of an id and all after it: the generation before it is published
  /// again, or nothing where there was none. No request on it may be in flight (asserted).
  void rollback(std::uint64_t id) override;
  std::optional<StoredInfo> find(std::uint64_t id) const;

  std::uint64_t used_bytes() const;      ///< of slots that hold, are getting, or are still being read
  std::uint64_t capacity_bytes() const;  ///< preallocated
  std::vector<NvmePath> paths() const override;
  NvmeCounters counters() const override;
  /// "io_uring, O_DIRECT, registered buffers", or what was degraded and why.
  std::string io_description() const override;

 private:
  std::unique_ptr<detail::StoreCore> core_;
};

}  // namespace strata
