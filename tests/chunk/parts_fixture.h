#pragma once

#include <strata/chunk/pending_fetches.h>

#include "chunk/chunk_fixture.h"

namespace strata::test {

/// The parts of a chunk manager without the manager.
class PartsFixture : public ChunkEnvironment {
 public:
  PartsFixture(const ChunkLayout& layout_in, Placement placement_in)
      : ChunkEnvironment(layout_in, std::move(placement_in)),
        residency(layout.n_chunks()),
        slots(must(SlotPool::create(layout, placement, slabs(), all_budgets()))),
        write_backs(placement, residency, slots, *backend, mover),
        fetches(residency, slots, write_backs, *backend, mover) {}
  ~PartsFixture() { synchronize(); }

  /// Makes `key` resident with a clean copy in `tier`.
  void place_clean(PayloadKey key, Tier tier) {
    EXPECT_TRUE(slots.acquire(key, tier));
    residency.set_state(key, tier, Residency::filling);
    residency.set_state(key, tier, Residency::clean);
  }
  /// Makes the copy in `tier` the newest one of `key`, written by work queued on `stream`.
  void place_written(PayloadKey key, Tier tier, Stream& stream) {
    EXPECT_TRUE(slots.acquire(key, tier));
    PayloadSlot& slot = slots.slot(key, tier);
    HostCall call("write", &fill, slot.view);
    call.writes(slot.view.data, slot.view.bytes);
    must(backend->host_call_async(call, stream));
    slot.set_writer(stream.role(), must(backend->record(stream)));
    residency.make_newest(key, tier);
  }
  /// Makes the write of new contents of `key` to nvme pending.
  void push_written(PayloadKey key, Stream& stream, std::uint64_t n_positions = 1) {
    place_written(key, Tier::pinned, stream);
    write_backs.push(key, n_positions);
  }
  /// Stores `key` on nvme, with no copy in memory.
  void store(PayloadKey key) {
    push_written(key, cpu);
    must(write_backs.wait(key));
    residency.set_state(key, Tier::pinned, Residency::absent);
    slots.release(key, Tier::pinned);
    mover.writes = 0;
  }

  ResidencyTable residency;
  SlotPool slots;
  WriteBackQueue write_backs;
  PendingFetches fetches;

 private:
  static void fill(const BufferView& view, ThreadPool&) { std::memset(view.data, 0x5A, view.bytes); }
};

}  // namespace strata::test
