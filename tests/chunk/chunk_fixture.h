#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <strata/chunk/audit.h>
#include <strata/chunk/chunk_manager.h>
#include <strata/runtime/backend/host_backend.h>

#include "chunk/fake_mover.h"

namespace strata::test {

/// A layout of `small` chunks of 4096 elements followed by `large` chunks of 8192; an f32 group then has two
/// slot classes.
inline ChunkLayout small_layout(int small, int large = 0, const GroupKey& group = {}) {
  std::vector<LayoutTensor> tensors;
  for (int i = 0; i < small; ++i) tensors.push_back({str("small.", i), 4096, group});
  for (int i = 0; i < large; ++i) tensors.push_back({str("large.", i), 8192, group});
  LayoutOptions options;
  options.chunk_elems = 4096;
  return must(ChunkLayout::create(tensors, options));
}

/// A placement without any homes. Every class has windows of `device` and `pinned` slots and `spares` on
/// nvme.
inline Placement bare_placement(const ChunkLayout& layout, std::uint32_t device, std::uint32_t pinned,
                                std::uint32_t spares = 1) {
  Placement placement;
  placement.classes = slot_classes(layout);
  for (SizeClass& slots : placement.classes) slots.window = {device, pinned, spares};
  placement.homes.resize(layout.n_chunks());
  return placement;
}

inline Placement with_homes(Placement placement, Payload payload, Tier tier) {
  for (auto& homes : placement.homes) homes[static_cast<std::size_t>(payload)] = tier;
  return placement;
}

inline PayloadKey param(ChunkId chunk) { return {chunk, Payload::param}; }

/// The objects that a chunk manager and its parts need: a host backend under latest_legal with the
/// happens-before check, a mover, and memory and budgets of the placement's size.
class ChunkEnvironment {
 public:
  ChunkEnvironment(const ChunkLayout& layout_in, Placement placement_in)
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
        device(memory(MemoryKind::device, Tier::device)),
        pinned(memory(MemoryKind::pinned, Tier::pinned)),
        uses(layout.n_chunks()) {}

  SlotPool::Slabs slabs() const {
    return {device.view().part(0, placement.bytes(layout, Tier::device)),
            pinned.view().part(0, placement.bytes(layout, Tier::pinned))};
  }
  std::array<Budget*, kTiers> all_budgets() { return {&budgets[0], &budgets[1], &budgets[2]}; }
  /// Runs all queued work. Fixtures call it before they destroy what that work uses.
  void synchronize() {
    for (Stream* stream : {&compute, &h2d, &d2h, &cpu}) (void)backend->synchronize(*stream);
  }

  const ChunkLayout layout;
  const Placement placement;
  SteadyClock clock;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  Stream compute, h2d, d2h, cpu;
  FakeMover mover;
  std::array<Budget, kTiers> budgets = {sized_budget(Tier::device), sized_budget(Tier::pinned),
                                        sized_budget(Tier::nvme)};
  Buffer device, pinned;
  UseSchedule uses;

 private:
  Budget sized_budget(Tier tier) const {
    return Budget(std::string(to_string(tier)), placement.bytes(layout, tier));
  }
  Buffer memory(MemoryKind kind, Tier tier) const {
    return must(backend->allocate(kind, std::max<std::size_t>(placement.bytes(layout, tier), 4096)));
  }
};

/// A chunk manager in its environment.
class ChunkFixture : public ChunkEnvironment {
 public:
  ChunkFixture(const ChunkLayout& layout_in, Placement placement_in)
      : ChunkEnvironment(layout_in, std::move(placement_in)),
        manager(
            must(ChunkManager::create(layout, placement, uses, slabs(), *backend, mover, all_budgets()))) {}
  ~ChunkFixture() { synchronize(); }

  Stream& stream_of(Tier tier) { return tier == Tier::device ? compute : cpu; }

  /// Queues a write of the whole payload with the contents that belong to `version`.
  void write(const ChunkPin& pin, Stream& stream, std::uint32_t version) {
    HostCall call("write", &fill, Job{pin.view(), version, nullptr});
    call.writes(pin.view().data, pin.view().bytes);
    must(backend->host_call_async(call, stream));
  }
  /// Queues a comparison with the contents of write(version); `differences` counts the mismatches.
  void expect(const ChunkPin& pin, Stream& stream, std::uint32_t version) {
    HostCall call("compare", &compare, Job{pin.view(), version, &differences});
    call.reads(pin.view().data, pin.view().bytes);
    must(backend->host_call_async(call, stream));
  }
  void put(PayloadKey key, Tier tier, std::uint32_t version, Intent intent = Intent::overwrite) {
    Stream& stream = stream_of(tier);
    const ChunkPin pin = must(manager->pin(key, tier, intent, stream));
    write(pin, stream, version);
  }
  void check(PayloadKey key, Tier tier, std::uint32_t version) {
    Stream& stream = stream_of(tier);
    {
      const ChunkPin pin = must(manager->pin(key, tier, Intent::read, stream));
      expect(pin, stream, version);
    }
    must(backend->synchronize(stream));
  }

  /// Bytes of the homes and of the window slots in use.
  std::size_t held_bytes(Tier tier) const {
    std::size_t bytes = 0;
    for (std::uint32_t c = 0; c < placement.classes.size(); ++c)
      bytes += manager->slots().used(tier, c) * placement.classes[c].slot_bytes;
    return bytes;
  }
  std::size_t charged_bytes(Tier tier) const {
    const Budget& budget = budgets[static_cast<std::size_t>(tier)];
    return budget.used_bytes() + budget.reserved_bytes();
  }
  Status audit() const {
    for (const Tier tier : {Tier::device, Tier::pinned})
      if (placement.bytes(layout, tier) != charged_bytes(tier))
        return Status::error(Code::internal,
                             str(to_string(tier), ": slots have ", placement.bytes(layout, tier),
                                 " bytes, the budget says ", charged_bytes(tier)));
    return strata::audit(manager->residency(), manager->slots());
  }

  std::unique_ptr<ChunkManager> manager;
  int differences = 0;

 private:
  struct Job {
    BufferView view;
    std::uint32_t version;
    int* differences;
  };
  static std::uint32_t word(std::uint32_t version, std::size_t i) {
    return version * 2654435761u + static_cast<std::uint32_t>(i);
  }
  static void fill(const Job& job, ThreadPool&) {
    auto* words = reinterpret_cast<std::uint32_t*>(job.view.data);
    for (std::size_t i = 0; i < job.view.bytes / 4; ++i) words[i] = word(job.version, i);
  }
  static void compare(const Job& job, ThreadPool&) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(job.view.data);
    for (std::size_t i = 0; i < job.view.bytes / 4; ++i)
      *job.differences += words[i] != word(job.version, i) ? 1 : 0;
  }
};

/// Parameters with their home in pinned memory, each written once, and `window` slots on the device.
inline std::unique_ptr<ChunkFixture> parameters_in_ram(int chunks, std::uint32_t window) {
  const ChunkLayout layout = small_layout(chunks);
  auto fixture = std::make_unique<ChunkFixture>(
      layout, with_homes(bare_placement(layout, window, 1), Payload::param, Tier::pinned));
  for (ChunkId c = 0; c < static_cast<ChunkId>(chunks); ++c) fixture->put(param(c), Tier::pinned, c);
  return fixture;
}
/// Like parameters_in_ram, but with the homes on nvme and no copies elsewhere.
inline std::unique_ptr<ChunkFixture> parameters_on_nvme(int chunks, std::uint32_t device,
                                                        std::uint32_t pinned, std::uint32_t spares = 1) {
  const ChunkLayout layout = small_layout(chunks);
  auto fixture = std::make_unique<ChunkFixture>(
      layout, with_homes(bare_placement(layout, device, pinned, spares), Payload::param, Tier::nvme));
  for (ChunkId c = 0; c < static_cast<ChunkId>(chunks); ++c) {
    fixture->put(param(c), Tier::pinned, c);
    must(fixture->manager->write_back(param(c)));
  }
  must(fixture->manager->write_backs().wait_all());
  for (ChunkId c = 0; c < static_cast<ChunkId>(chunks); ++c)
    if (fixture->manager->residency().state(param(c), Tier::pinned) != Residency::absent)
      must(fixture->manager->evict(param(c), Tier::pinned));
  fixture->mover.writes = fixture->mover.reads = 0;
  return fixture;
}

}  // namespace strata::test
