#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <strata/offload/nvme_options.h>
#include <strata/offload/object_store.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

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
/// except on failures. If a completion never arrives, every call returns `timeout` with the request that is
/// overdue. Since the kernel may still write to that request's memory, such a store is never destroyed (see
/// StoreDeleter); the process should end soon.
class NvmeStore : public ObjectStore {
 public:
  /// Errors: `invalid` options, `no_space` with the bytes needed and free, `unsupported` if `engine` is uring
  /// and io_uring is not available.
  static Result<StorePtr<NvmeStore>> create(Io& io, NvmeOptions options);

  /// Registers memory that many requests will use with the ring; the memory outlives the store. If the kernel
  /// refuses to lock it, requests work with unregistered buffers and io_description() says so; this is not an
  /// error. Errors: `invalid` alignment.
  Status register_memory(BufferView slab) override = 0;

  /// Blocks while all requests, or all slots of the class, are in use by requests in flight. The I/O threads
  /// compute the checksum as they submit the blocks, so `src` must not change until the ticket is complete.
  /// Of two writes of one id in flight the later call wins, whichever completes first. Errors: `invalid`;
  /// `does_not_fit` if every slot of the class holds a published generation; `io_error` if bad slots are the
  /// reason. With WriteMode::snapshot the previous generation stays in its slot, in addition to the ones that
  /// follow, until commit() or rollback(); this needs one more slot in the class.
  Result<IoTicket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                               WriteMode mode = WriteMode::replace) override = 0;
  /// Reads the currently published generation, even while a newer one is being written. `dst` has exactly the
  /// stored size. Errors: `not_found`, `invalid`.
  Result<IoTicket> read_async(std::uint64_t id, BufferView dst) override = 0;
  /// Errors: `io_error` with id, file and offset; `corrupt` with both checksums; `no_space`; `timeout`.
  Status wait(IoTicket ticket) override = 0;
  virtual bool is_complete(IoTicket ticket) const noexcept = 0;

  virtual std::optional<StoredInfo> find(std::uint64_t id) const = 0;
  /// Counts slots that are published, being written or still being read.
  virtual std::uint64_t used_bytes() const = 0;
  virtual std::uint64_t capacity_bytes() const = 0;  ///< preallocated
};

}  // namespace strata
