#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <strata/offload/nvme_options.h>
#include <strata/offload/object_store.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>

namespace strata {

struct SpillOptions {
  /// At most this many requests are in flight in a store.
  static constexpr std::uint32_t kMaxRequests = 4096;

  std::uint64_t pinned_bytes = 0;
  std::uint64_t nvme_bytes = 0;  ///< 0: all objects are in RAM; kUnlimited: as many as needed
  std::size_t page_bytes = 0;    ///< a multiple of 4096; 0: chosen by pinned_bytes
  /// Opens a further part of the NVMe tier. Called when the parts that are open are full.
  std::function<Result<StorePtr<ObjectStore>>(const SlotClass&)> open_store = {};
};

struct SpillStats {
  std::uint64_t n_objects = 0, object_bytes = 0;
  std::uint64_t pinned_bytes = 0, nvme_bytes = 0;            ///< pages in use now
  std::uint64_t peak_pinned_bytes = 0, peak_nvme_bytes = 0;  ///< at most so far
  std::uint64_t n_gets = 0;
  std::uint64_t n_late_gets = 0;  ///< gets that waited for NVMe
  std::uint64_t nvme_read_bytes = 0, nvme_written_bytes = 0;
  /// Summed over the parts of the NVMe tier, which may be busy at the same time.
  std::int64_t nvme_read_busy_ns = 0, nvme_write_busy_ns = 0;
};

/// Keeps objects (byte arrays) of any sizes that are mostly used last in, first out, such as what backward
/// needs of forward: in pinned memory as far as its budget goes, the oldest on NVMe. Writes begin before RAM
/// is full, and what is needed next is read ahead, so that both overlap with the caller's work. Thread-safe;
/// calls of several threads run at the same time. See "Spilling" in the README of offload.
class SpillStore {
 public:
  virtual ~SpillStore() = default;

  /// Allocates the pinned memory at once. The backend outlives the store. Errors: `invalid`;
  /// `out_of_memory`.
  static Result<std::unique_ptr<SpillStore>> create(Backend& backend, SpillOptions options);

  /// Copies an object, and returns its id, which is never used again. Blocks while RAM is full of pages that
  /// are being written. Errors, after which the object is not there and all others are: `invalid` if it is
  /// empty; `does_not_fit`; those of NVMe if a failed write is the reason why there is no room.
  virtual Result<std::uint64_t> put(ConstBufferView bytes) = 0;
  /// Copies an object to `into`, which has its size, and begins to read those that were put before it.
  /// Errors: `not_found`, `invalid`; those of NVMe, after which the call may be repeated.
  virtual Status get(std::uint64_t id, BufferView into) = 0;
  /// Begins to read an object, as far as there is room. Errors: `not_found`.
  virtual Status prefetch(std::uint64_t id) = 0;
  /// Errors: `not_found`.
  virtual Status discard(std::uint64_t id) = 0;
  /// Pages of discarded objects still count while they have a request in flight.
  virtual SpillStats stats() = 0;
};

}  // namespace strata
