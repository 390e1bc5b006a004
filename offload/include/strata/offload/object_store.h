#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/runtime/backend.h>
#include <strata/runtime/status.h>

namespace strata {

/// Names one request. A value; a default one is complete and ok.
struct Ticket {
  std::uint32_t index = 0;
  std::uint64_t sequence = 0;
};

/// What a write does with the generation before it.
enum class WriteMode : std::uint8_t {
  replace,   ///< its slot comes free when the new one is published
  snapshot,  ///< it stays in its slot until commit() or rollback()
};

/// Since the store was created.
struct NvmeCounters {
  std::uint64_t reads = 0;  ///< requests that ended well
  std::uint64_t writes = 0;
  std::uint64_t bytes_read = 0;  ///< of these
  std::uint64_t bytes_written = 0;
  std::uint64_t verified_bytes = 0;     ///< read and found to have the right sum
  std::uint64_t endurance_bytes = 0;    ///< all that was sent to the devices, repeated writes included
  std::uint64_t read_retries = 0;       ///< whole requests read again after EIO or a wrong sum
  std::uint64_t write_retries = 0;      ///< whole requests moved to another slot after EIO
  std::uint64_t bad_slots = 0;          ///< given up after a failed write
  std::uint64_t resubmissions = 0;      ///< ring: EAGAIN, EINTR and the rests of short transfers
  std::uint64_t stray_completions = 0;  ///< ring: completions that belong to no request in flight; dropped
  std::uint64_t files_opened = 0;
  std::int64_t read_busy_ns = 0;  ///< time in which at least one was under way
  std::int64_t write_busy_ns = 0;
};

/// One of the store's dirs, and what it holds of the whole.
struct NvmePath {
  std::string dir;
  std::uint64_t bytes = 0;  ///< preallocated
  double rate = 0;          ///< as given, or measured in bytes per second; 0: the only dir, not measured
};

/// The slow tier as a run sees it: objects by id, each in the newest generation that was written. NvmeStore
/// keeps them on disk; SimStore keeps nothing and takes their time.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  /// The memory is the caller's, still, until the ticket is complete.
  virtual Result<Ticket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                                     WriteMode mode) = 0;
  /// The generation published now.
  virtual Result<Ticket> read_async(std::uint64_t id, BufferView dst) = 0;
  /// The outcome of that request, however often and late it is asked for.
  virtual Status wait(Ticket ticket) = 0;
  /// Waits for so many nanoseconds at most: whether wait() would return at once.
  virtual bool wait_for(Ticket ticket, std::int64_t ns) = 0;

  /// Forgets an id; unknown ones are ignored. Of all three: no request on the id is in flight.
  virtual void discard(std::uint64_t id) = 0;
  /// Gives up what was kept since the first keeping write of an id.
  virtual void commit(std::uint64_t id) = 0;
  /// Takes back the first keeping write of an id and all after it.
  virtual void rollback(std::uint64_t id) = 0;

  virtual NvmeCounters counters() const = 0;
  virtual std::vector<NvmePath> paths() const = 0;
  /// What carries the requests, and how: for people.
  virtual std::string io_description() const = 0;
};

}  // namespace strata
