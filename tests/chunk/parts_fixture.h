#pragma once

#include <memory>

#include <strata/chunk/pending_fetches.h>
#include <strata/chunk/use_schedule.h>

#include "chunk/chunk_fixture.h"

namespace strata::test {

/// The parts of a chunk manager without the manager, over a backend that runs queued work only when somebody
/// waits for it.
class PartsFixture {
 public:
  PartsFixture(const ChunkLayout& layout_in, Placement placement_in)
      : layout(layout_in),
        placement(std::move(placement_in)),
        pool(must(ThreadPool::create(1))),
        backend(must(
            create_host_backend({.schedule = StreamSchedule::latest_legal, .check = true}, *pool, clock))),
        compute(must(backend->create_stream(StreamRole::compute))),
        h2d(must(backend->create_stream(StreamRole::h2d))),
        d2h(must(backend->create_stream(StreamRole::d2h))),
        cpu(must(backend->create_stream(StreamRole::cpu))),
        mover(*backend, h2d, d2h),
        device(must(backend->allocate(MemoryKind::device, placement.bytes(layout, Tier::device)))),
        pinned(must(backend->allocate(MemoryKind::pinned, placement.bytes(layout, Tier::pinned)))),
        uses(layout.n_chunks()),
        residency(layout.n_chunks()),
        slots(must(SlotPool::create(layout, placement, {device.view(), pinned.view()},
                                    {&budgets[0], &budgets[1], &budgets[2]}))),
        write_backs(placement, residency, slots, *backend, mover),
        fetches(residency, slots, write_backs, *backend, mover) {}
  ~PartsFixture() {
    for (Stream* stream : {&compute, &h2d, &d2h, &cpu}) (void)backend->synchronize(*stream);
  }

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
  void push_written(PayloadKey key, Stream& stream) {
    place_written(key, Tier::pinned, stream);
    write_backs.push(key);
  }
  /// Stores `key` on nvme, with no copy in memory.
  void store(PayloadKey key) {
    push_written(key, cpu);
    must(write_backs.wait(key));
    residency.set_state(key, Tier::pinned, Residency::absent);
    slots.release(key, Tier::pinned);
    mover.writes = 0;
  }

  const ChunkLayout layout;
  const Placement placement;
  SteadyClock clock;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  Stream compute, h2d, d2h, cpu;
  FakeMover mover;
  Buffer device, pinned;
  std::array<Budget, kTiers> budgets = {Budget("device"), Budget("pinned"), Budget("nvme")};
  UseSchedule uses;
  ResidencyTable residency;
  SlotPool slots;
  WriteBackQueue write_backs;
  PendingFetches fetches;

 private:
  static void fill(const BufferView& view, ThreadPool&) { std::memset(view.data, 0x5A, view.bytes); }
};

}  // namespace strata::test
