#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/io/io_ticket.h>
#include <strata/runtime/status.h>

namespace strata {

/// The effect of a write on the previous generation.
enum class WriteMode : std::uint8_t {
  replace,   ///< its slot is freed when the new generation is published
  snapshot,  ///< it stays in its slot until commit() or rollback()
};

/// Counted since the store was created.
struct NvmeCounters {
  std::uint64_t reads = 0;  ///< successful requests
  std::uint64_t writes = 0;
  std::uint64_t bytes_read = 0;  ///< bytes of successful requests
  std::uint64_t bytes_written = 0;
  std::uint64_t verified_bytes = 0;     ///< read with the right checksum
  std::uint64_t endurance_bytes = 0;    ///< bytes sent to the devices, retried writes included
  std::uint64_t read_retries = 0;       ///< whole requests read again after EIO or a wrong checksum
  std::uint64_t write_retries = 0;      ///< whole requests moved to another slot after EIO
  std::uint64_t bad_slots = 0;          ///< set aside after a failed write, until no other slot is free
  std::uint64_t resubmissions = 0;      ///< ring: after EAGAIN, EINTR and short transfers
  std::uint64_t stray_completions = 0;  ///< ring: completions that match no request in flight; dropped
  std::uint64_t files_opened = 0;
  std::int64_t read_busy_ns = 0;  ///< time with at least one read in flight
  std::int64_t write_busy_ns = 0;
};

/// One dir of the store and its part of the store's capacity.
struct NvmePath {
  std::string dir;
  std::uint64_t bytes = 0;  ///< preallocated
  double rate = 0;          ///< as given, or measured in bytes per second; 0: the only dir, not measured
};

/// Interface of the NVMe tier: objects by id, of which a read returns the newest published generation.
/// NvmeStore stores them on disk; SimStore stores nothing and only simulates the time.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  /// The caller owns `src` and does not change it until the ticket is complete.
  virtual Result<IoTicket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                                       WriteMode mode) = 0;
  /// Reads the currently published generation.
  virtual Result<IoTicket> read_async(std::uint64_t id, BufferView dst) = 0;
  /// Waits for the request and returns its outcome; may be called any number of times, at any later time.
  virtual Status wait(IoTicket ticket) = 0;
  /// Waits for at most `ns` nanoseconds. Returns whether wait() would return at once.
  virtual bool wait_for(IoTicket ticket, std::int64_t ns) = 0;

  /// Removes an id and frees its slots; unknown ids are ignored. Like commit() and rollback() it requires
  /// that the id has no request in flight (asserted).
  virtual void discard(std::uint64_t id) = 0;
  /// Frees the snapshot of an id. Does nothing if there is none.
  virtual void commit(std::uint64_t id) = 0;
  /// Undoes the first snapshot write of an id and all writes after it: the snapshot is published again, or
  /// the id is removed if nothing was published before that write. Does nothing without a snapshot write.
  virtual void rollback(std::uint64_t id) = 0;

  /// Waits for all requests in flight. Returns false if a completion never arrives: then the kernel and the
  /// store's threads may still use the store, so it must not be destroyed.
  virtual bool drain() noexcept = 0;

  /// Announces memory that many requests will use; it outlives the store.
  virtual Status register_memory(BufferView) { return {}; }

  virtual NvmeCounters counters() const = 0;
  virtual std::vector<NvmePath> paths() const = 0;
  /// How requests are carried out, as text for people: "io_uring, O_DIRECT, registered buffers", or which
  /// fallback is in use and why.
  virtual std::string io_description() const = 0;
};

/// Destroys a store once its requests have completed, and leaks it if one never does.
struct StoreDeleter {
  void operator()(ObjectStore* store) const noexcept {
    if (store->drain()) delete store;
  }
};
template <class Store>
using StorePtr = std::unique_ptr<Store, StoreDeleter>;

}  // namespace strata
