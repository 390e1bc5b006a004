#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <strata/chunk/layout.h>
#include <strata/chunk/mover.h>
#include <strata/chunk/placement.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/memory/budget.h>

namespace strata {

class ChunkManager;

/// How a pinned payload will be used.
enum class Intent : std::uint8_t {
  read,       ///< the contents are fetched and do not change
  update,     ///< fetched and changed: all other copies become stale
  overwrite,  ///< not fetched: the user of the pin writes everything that will be read
};

/// Keeps one payload of one chunk resident in one tier: while the pin lives, the copy is not moved, evicted
/// or freed. The last use is whatever was queued on the pin's stream before the pin was destroyed; destroying
/// it does not block. Move-only.
class ChunkPin {
 public:
  ChunkPin() = default;
  ChunkPin(ChunkPin&& other) noexcept { swap(other); }
  ChunkPin& operator=(ChunkPin&& other) noexcept {
    ChunkPin taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~ChunkPin();
  BufferView view() const noexcept { return view_; }  ///< valid while the pin lives
  PayloadKey key() const noexcept { return key_; }
  explicit operator bool() const noexcept { return manager_ != nullptr; }

 private:
  friend class ChunkManager;
  void swap(ChunkPin& other) noexcept {
    std::swap(manager_, other.manager_);
    std::swap(key_, other.key_);
    std::swap(tier_, other.tier_);
    std::swap(intent_, other.intent_);
    std::swap(stream_, other.stream_);
    std::swap(view_, other.view_);
  }
  ChunkManager* manager_ = nullptr;
  PayloadKey key_;
  Tier tier_ = Tier::device;
  Intent intent_ = Intent::read;
  Stream* stream_ = nullptr;
  BufferView view_;
};

/// One use of a payload in the schedule, which is known in advance.
struct Use {
  std::int32_t position = 0;
  PayloadKey key;
  Tier tier = Tier::device;
};

/// Transfers so far; never decreases.
struct ManagerCounters {
  std::uint64_t fetches = 0, evictions = 0, write_backs = 0;
  std::array<std::uint64_t, 2> copied_bytes{};  ///< by Direction
  std::uint64_t read_bytes = 0, written_bytes = 0;
};

/// Tracks where every payload of every chunk is and has it moved to where it is needed.
///
/// One thread calls it, in schedule order. All decisions (which slot, which victim, when to write back)
/// depend on that order alone and never on how far queued work has progressed, so a dry run on the null
/// backend makes exactly the decisions of the real run. Synchronization is left to streams and fences; the
/// caller itself waits only for the NVMe tier.
class ChunkManager {
 public:
  struct Slabs {
    BufferView device, pinned;  ///< of Placement::bytes() each
  };
  /// Carves homes and windows out of `slabs` and charges them to `budgets` for the life of the manager. All
  /// references must outlive it. Errors: `invalid` for wrong slab sizes, `does_not_fit`.
  static Result<std::unique_ptr<ChunkManager>> create(const ChunkLayout& layout, const Placement& placement,
                                                      const Slabs& slabs, Backend& backend, Mover& mover,
                                                      std::array<Budget*, kTiers> budgets);
  ~ChunkManager();  ///< asserts that no pin lives

  /// Sets the uses of the schedule from here on, in order of position; position `cycle` is position 0 of the
  /// next round. Eviction picks the payload whose next use is latest. The uses are copied.
  void set_schedule(std::span<const Use> uses, std::int32_t cycle);
  /// The uses at `position` come next; each counts as pending until its payload has been pinned.
  void set_position(std::int32_t position) noexcept {
    position_ = position;
    ++epoch_;
  }

  /// Makes `key` resident in `tier` (device or pinned), ready for work queued on `stream` from now on.
  /// Errors: `does_not_fit` if every slot of its class is pinned; those of the transfers involved.
  Result<ChunkPin> pin(PayloadKey key, Tier tier, Intent intent, Stream& stream);

  /// The first failure that the end of a pin could not return. It means that the end of that pin's work is
  /// unknown, so later work could not be ordered after it: from then on all pins and transfers are refused
  /// with this Status.
  const Status& status() const noexcept { return failed_; }

  /// Begins to make `key` resident in `tier`, unless that would evict something needed sooner or a recent
  /// write-back. Returns true if the payload is there or its fetch has begun. A prefetch from nvme to the
  /// device waits for the nvme read.
  Result<bool> prefetch(PayloadKey key, Tier tier);

  /// Begins to write the newest contents to the payload's home, unless they are there already. The number of
  /// pending nvme writes is bounded by the spare slots; when there is none left, this waits for the oldest
  /// write.
  Status write_back(PayloadKey key);

  /// Takes a snapshot: the stored contents of `key`, whose home is nvme, are kept beside later write-backs
  /// until commit(), rollback() or the next snapshot(). Writes the newest contents back first if needed.
  /// Errors: those of pending transfers; then there is no snapshot.
  Status snapshot(PayloadKey key);
  bool has_snapshot(PayloadKey key) const noexcept { return has_snapshot_[index(key)]; }
  /// Waits for pending transfers of the key, then discards the snapshot. Does nothing without a snapshot.
  /// Errors: those of the transfers.
  Status commit(PayloadKey key);
  /// Makes the snapshot the newest contents again. Later contents are dropped, and errors of writing them are
  /// ignored. Does nothing without a snapshot. The key must not be pinned.
  void rollback(PayloadKey key) noexcept;

  /// Declares the contents dead and frees all slots except the home. The payload must not be pinned.
  Status drop(PayloadKey key);
  /// Makes the contents of `from` in `tier` the newest contents of `to`, which has the same size and its home
  /// in `tier`. The two exchange slots, nothing is copied, and `from` is dropped. Neither may be pinned.
  /// Errors: `internal` if `from` is not in `tier`; those of pending transfers, in which case nothing has
  /// changed.
  Status transfer(PayloadKey from, PayloadKey to, Tier tier);
  /// Releases the copy in `tier`, which must not be its home; writes it back first if it is the newest.
  Status evict(PayloadKey key, Tier tier);

  /// Submits the pending write-backs whose contents are final. Cheap; call it often.
  Status pump();
  /// Submits all pending write-backs, waiting for the work that produces their contents. The writes continue
  /// while the caller does other things.
  Status submit_write_backs();
  /// Waits for all pending write-backs.
  Status wait_write_backs();
  /// For use after a failure elsewhere: waits for all pending transfers and discards their errors, so that no
  /// later, unrelated call returns them. A read or write that failed is as if it had never begun.
  void abort_pending() noexcept;

  Residency state(PayloadKey key, Tier tier) const noexcept { return copy(key, tier).state; }
  std::uint32_t generation(PayloadKey key) const noexcept;
  std::size_t used_slots(Tier tier, std::uint32_t slot_class) const noexcept;
  /// The maximum of used_slots() so far. Like every decision, it depends on the schedule alone.
  std::size_t peak_used_slots(Tier tier, std::uint32_t slot_class) const noexcept;
  const ManagerCounters& counters() const noexcept { return counters_; }
  const ChunkLayout& layout() const noexcept { return layout_; }
  const Placement& placement() const noexcept { return placement_; }
  /// Checks every invariant listed in README.md; for tests.
  Status audit() const;

 private:
  friend class ChunkPin;

  struct Slot {
    BufferView view;
    Fence written;            ///< once these complete, the contents are valid
    Fence read;               ///< once these complete too, the contents may be overwritten
    std::int32_t owner = -1;  ///< index of the key that holds the slot; -1: free
    bool home = false;
  };
  /// The free slots of a pool, in the order they were freed: work queued on the memory of the first one is
  /// the most likely to have finished.
  struct FreeSlots {
    std::vector<std::int32_t> ring;  ///< capacity for every slot of the pool
    std::size_t first = 0, n = 0;

    bool empty() const noexcept { return n == 0; }
    std::size_t size() const noexcept { return n; }
    std::int32_t front() const noexcept { return ring[first]; }
    void push(std::int32_t slot) noexcept { ring[(first + n++) % ring.size()] = slot; }
    void pop() noexcept {
      first = (first + 1) % ring.size();
      --n;
    }
  };
  struct Pool {  ///< the slots of one (tier, class)
    std::vector<Slot> slots;
    FreeSlots free;
    std::size_t peak_used = 0;  ///< maximum number of slots in use, homes included
  };
  struct Copy {
    Residency state = Residency::absent;
    std::int32_t slot = -1;
    std::int32_t pins = 0;
    IoTicket fetch_ticket;              ///< valid while filling from nvme
    std::uint64_t last_used_epoch = 0;  ///< epoch of the last pin
    bool written = false;               ///< by the pin that is alive
  };
  struct WriteBack {  ///< a pending write to nvme
    PayloadKey key;
    IoTicket ticket;
    bool submitted = false;
  };

  ChunkManager(const ChunkLayout& layout, const Placement& placement, Backend& backend, Mover& mover,
               std::array<Budget*, kTiers> budgets);
  Status initialize(const Slabs& slabs);
  Status init_copies();
  Status init_write_back_limits();
  Status carve_slots(Tier tier, BufferView slab);
  Status charge(Tier tier, std::size_t bytes, const char* what);

  std::size_t index(PayloadKey key) const noexcept {
    return key.chunk * kPayloads + static_cast<std::size_t>(key.payload);
  }
  Copy& copy(PayloadKey key, Tier tier) noexcept {
    return copies_[index(key)][static_cast<std::size_t>(tier)];
  }
  const Copy& copy(PayloadKey key, Tier tier) const noexcept {
    return copies_[index(key)][static_cast<std::size_t>(tier)];
  }
  Pool& pool(PayloadKey key, Tier tier) noexcept {
    return pools_[static_cast<std::size_t>(tier)][class_of_[index(key)]];
  }
  Slot& slot(PayloadKey key, Tier tier) noexcept {
    return pool(key, tier).slots[static_cast<std::size_t>(copy(key, tier).slot)];
  }
  void set_state(PayloadKey key, Tier tier, Residency to);

  std::int32_t next_use(PayloadKey key, Tier tier) const noexcept;
  std::size_t slot_bytes(PayloadKey key) const noexcept {
    return placement_.classes[class_of_[index(key)]].slot_bytes;
  }
  bool valid(PayloadKey key, Tier tier) const noexcept { return copy(key, tier).state != Residency::absent; }
  PayloadKey key_of(std::int32_t owner) const noexcept {
    const auto i = static_cast<std::uint32_t>(owner);
    return {i / static_cast<std::uint32_t>(kPayloads), static_cast<Payload>(i % kPayloads)};
  }
  Result<bool> acquire_slot(PayloadKey key, Tier tier, std::int32_t needed_at);
  Result<bool> make_room(PayloadKey key, Tier tier, std::int32_t needed_at);
  void release_slot(PayloadKey key, Tier tier);
  Status release_copy(PayloadKey key, Tier tier);
  Result<bool> fetch(PayloadKey key, Tier tier, std::int32_t needed_at);
  Status copy_between(PayloadKey key, Tier from, Tier to);
  Status complete_fetch(PayloadKey key, Tier tier);
  Status wait_on(const Fence& fence, Stream& stream);
  Status wait_on_host(const Fence& fence);
  Status begin_read(PayloadKey key, Tier tier);
  void release_unfilled_slot(PayloadKey key, Tier tier);
  bool is_last_without_home(PayloadKey key, Tier tier) const noexcept;
  Status quiesce(PayloadKey key);
  Status make_ready(PayloadKey key, Tier tier, Intent intent, Stream& stream);
  void invalidate_other_copies(PayloadKey key, Tier tier);
  void mark_clean(PayloadKey key, Tier keep);
  Status begin_write_back(PayloadKey key);
  Status submit(WriteBack& pending);
  Status await(IoTicket ticket);
  Status submit_when_final(WriteBack& pending);
  Status wait_write_back(std::size_t i);
  bool is_recent_write_back(PayloadKey key) const noexcept;
  Status wait_write_back(PayloadKey key);
  void unpin(ChunkPin& pin) noexcept;

  const ChunkLayout& layout_;
  const Placement& placement_;
  Backend& backend_;
  Mover& mover_;
  std::array<Budget*, kTiers> budgets_;
  std::vector<std::uint32_t> class_of_;           // by key
  std::vector<std::array<Copy, kTiers>> copies_;  // by key
  std::vector<std::uint32_t> generation_;         // by key
  std::vector<bool> has_snapshot_;                // by key
  std::array<std::vector<Pool>, 2> pools_;        // device, pinned; by class
  std::vector<WriteBack> write_backs_;            // oldest first, capacity fixed
  std::vector<std::size_t> max_write_backs_;      // by class: limit given by the spare extents
  std::vector<std::array<std::vector<std::int32_t>, 2>>
      uses_;  // by key: positions of uses on the device and in pinned memory
  std::vector<Reservation> charges_;
  std::int32_t position_ = 0, cycle_ = 0;
  std::uint64_t epoch_ = 1;  // incremented by set_position(), since positions repeat each round
  Status failed_;            // the first failure that a destructor could not return
  ManagerCounters counters_;
};

}  // namespace strata
