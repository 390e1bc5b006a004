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
#include <strata/runtime/backend.h>
#include <strata/runtime/budget.h>

namespace strata {

class ChunkManager;

/// What a pin is for.
enum class Intent : std::uint8_t {
  read,       ///< the contents are fetched and stay as they are
  update,     ///< fetched and changed: every other copy becomes stale
  overwrite,  ///< not fetched: the holder writes all that will be read
};

/// Keeps one payload of one chunk resident in one tier: while a pin lives, it is not moved, evicted or freed.
/// Its last use is whatever was queued on its stream before the pin ends; nothing blocks. Move-only.
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

/// One use of a payload in the known schedule.
struct Use {
  std::int32_t position = 0;
  PayloadKey key;
  Tier tier = Tier::device;
};

/// What moved; monotone.
struct ManagerCounters {
  std::uint64_t fetches = 0, evictions = 0, write_backs = 0;
  std::array<std::uint64_t, 2> copied_bytes{};  ///< by Direction
  std::uint64_t read_bytes = 0, written_bytes = 0;
};

/// Knows where every payload of every chunk is, and has it moved to where it is needed.
///
/// One thread calls it, in schedule order. All its decisions (which slot, which victim, what is written back
/// when) depend on that order alone and never on how far the queued work has come, so a run with a null
/// backend decides exactly what the real run will. Streams and fences carry the waiting; the caller waits
/// only for the slow tier.
class ChunkManager {
 public:
  struct Slabs {
    BufferView device, pinned;  ///< slabs of Placement::bytes() each
  };
  /// Homes and windows are laid out in `slabs` and charged to `budgets`, for as long as the manager lives.
  /// All references outlive it. Errors: `invalid` slab sizes, `does_not_fit`.
  static Result<std::unique_ptr<ChunkManager>> create(const ChunkLayout& layout, const Placement& placement,
                                                      const Slabs& slabs, Backend& backend, Mover& mover,
                                                      std::array<Budget*, kTiers> budgets);
  ~ChunkManager();  ///< asserts that no pin lives

  /// The uses of the schedule from here on, by position ascending; position `cycle` is position 0 of the next
  /// round. Eviction takes what is needed latest. The span must stay valid.
  void set_schedule(std::span<const Use> uses, std::int32_t cycle);
  /// The uses of `position` are about to be made; each counts as ahead until its payload has been pinned.
  void set_position(std::int32_t position) noexcept {
    position_ = position;
    ++epoch_;
  }

  /// Makes `key` resident in `tier` (device or pinned), ready for work queued on `stream` from now on.
  /// Errors: `does_not_fit` when every slot of its class is pinned; those of the moves it takes.
  Result<ChunkPin> pin(PayloadKey key, Tier tier, Intent intent, Stream& stream);

  /// The first failure that a pin's end could not return. From then on nobody knows when that pin's work
  /// ends, so pins and moves are refused with it for good: they would be ordered after nothing.
  const Status& status() const noexcept { return failed_; }

  /// Begins to make `key` resident in `tier` if that takes no slot from something used sooner, nor from what
  /// has only just begun its way to the slow tier. True when it is there or on its way. The read from the
  /// slow tier that a prefetch to the device needs is waited for.
  Result<bool> prefetch(PayloadKey key, Tier tier);

  /// Has the newest contents written to the payload's home, if they are not there, and queues what that
  /// takes. Writes to nvme are bounded by the spare slots: the oldest is waited for when they are out.
  Status write_back(PayloadKey key);

  /// What is stored of `key`, whose home is nvme, may be asked back: until commit(), rollback() or the next
  /// snapshot() it stays there beside what is sent home. Sends it home first where it is not there. Errors:
  /// those of what was under way, and then nothing is guarded.
  Status snapshot(PayloadKey key);
  bool has_snapshot(PayloadKey key) const noexcept { return has_snapshot_[index(key)]; }
  /// What was stored at snapshot() is given up, once what followed it is stored. Nothing where it is not
  /// guarded.
  Status commit(PayloadKey key);
  /// What was stored at snapshot() is the newest again; what followed it is dead, and failures of writing it
  /// are of no account. Nothing where it is not guarded. The key is not pinned.
  void rollback(PayloadKey key) noexcept;

  /// The contents are dead; slots other than the home are free again. Not for pinned payloads.
  Status drop(PayloadKey key);
  /// The contents of `from` in `tier` become the newest of `to`, of the same size, whose home that is: the
  /// two exchange slots, nothing is copied, and `from` is dropped. Neither is pinned. Errors: `internal`
  /// where `from` is not there; those of what was under way, and then nothing has changed.
  Status transfer(PayloadKey from, PayloadKey to, Tier tier);
  /// Gives up the copy in `tier`, which is not its home; sends it home first where it is the newest.
  Status evict(PayloadKey key, Tier tier);

  /// Submits writes whose contents have become final. Cheap; call it often.
  Status pump();
  /// Submits them all, waiting for what they contain; they go on while the caller waits for other things.
  Status submit_write_backs();
  /// Waits for everything on its way to the slow tier.
  Status wait_write_backs();
  /// After a failure elsewhere: waits for all that is under way. A read or write that fails is as if never
  /// begun, so that its error does not meet a later, unconcerned caller.
  void abort_pending() noexcept;

  Residency state(PayloadKey key, Tier tier) const noexcept { return copy(key, tier).state; }
  std::uint32_t generation(PayloadKey key) const noexcept;
  std::size_t used_slots(Tier tier, std::uint32_t slot_class) const noexcept;
  /// The most that used_slots() ever was. As every decision, a function of the schedule alone.
  std::size_t peak_used_slots(Tier tier, std::uint32_t slot_class) const noexcept;
  const ManagerCounters& counters() const noexcept { return counters_; }
  const ChunkLayout& layout() const noexcept { return layout_; }
  const Placement& placement() const noexcept { return placement_; }
  /// Checks every invariant of README.md; for tests.
  Status audit() const;

 private:
  friend class ChunkPin;

  struct Slot {
    BufferView view;
    Fence written;            ///< the contents are valid after this
    Fence read;               ///< ... and may be overwritten after this as well
    std::int32_t owner = -1;  ///< index of the key that holds it
    bool home = false;
  };
  /// The free slots of a pool, longest free first: what was queued on their memory is likeliest to be over.
  struct FreeSlots {
    std::vector<std::int32_t> ring;  ///< a place for every slot of the pool
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
    std::size_t peak_used = 0;  ///< homes and window slots held at once
  };
  struct Copy {
    Residency state = Residency::absent;
    std::int32_t slot = -1;
    std::int32_t pins = 0;
    IoTicket fetch_ticket;              ///< filling from the slow tier
    std::uint64_t last_used_epoch = 0;  ///< epoch of the last pin
    bool written = false;               ///< by the pin that lives
  };
  struct WriteBack {  ///< a write to the slow tier that has begun
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
  std::vector<std::size_t> max_write_backs_;      // by class: write-backs that the spares allow
  std::vector<std::array<std::vector<std::int32_t>, 2>>
      uses_;  // by key: positions on the device, in pinned memory
  std::vector<Reservation> charges_;
  std::int32_t position_ = 0, cycle_ = 0;
  std::uint64_t epoch_ = 1;  // counts set_position(): positions come again each round
  Status failed_;            // what a destructor could not return
  ManagerCounters counters_;
};

}  // namespace strata
