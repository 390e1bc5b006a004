#include "measure_parts.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

constexpr std::size_t kSlot = 16 * kMiB, kInFlight = 4;
constexpr std::size_t kSmall = 64 * kKiB;
constexpr std::uint32_t kRequests = 16;

double core_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Writes and reads objects through the store, kInFlight at a time.
class DiskRounds {
 public:
  struct Buffers {
    BufferView out, in;
  };
  static Result<Buffers> buffers(BenchFixture& fixture) {
    Buffers buffers;
    STRATA_TRY_ASSIGN(buffers.out, fixture.memory(MemoryKind::pinned, kInFlight * kSlot));
    STRATA_TRY_ASSIGN(buffers.in, fixture.memory(MemoryKind::pinned, kInFlight * kSlot));
    return buffers;
  }
  static Result<DiskRounds> create(NvmeOptions options, std::uint32_t objects, const Buffers& buffers) {
    options.classes = {{kSlot, objects + static_cast<std::uint32_t>(kInFlight)}, {kSmall, 2 * kRequests}};
    DiskRounds rounds;
    rounds.objects_ = objects;
    rounds.buffers_ = buffers;
    STRATA_TRY_ASSIGN(rounds.store_, NvmeStore::create(posix_io(), std::move(options)));
    STRATA_TRY(rounds.store_->register_memory(buffers.out));
    STRATA_TRY(rounds.store_->register_memory(buffers.in));
    return rounds;
  }
  NvmeStore& store() noexcept { return *store_; }
  double bytes() const noexcept { return static_cast<double>(objects_) * kSlot; }

  // Reads are half a round away from writes, so that a cache cannot serve what was just written.
  Status round(bool writes, bool reads) {
    std::array<IoTicket, kInFlight> written{}, read{};
    for (std::uint32_t id = 0; id < objects_; ++id) {
      const std::size_t place = id % kInFlight;
      if (writes) {
        STRATA_TRY(store_->wait(written[place]));
        STRATA_TRY_ASSIGN(written[place],
                          store_->write_async(id, 0, buffers_.out.part(place * kSlot, kSlot)));
      }
      if (reads) {
        STRATA_TRY(store_->wait(read[place]));
        STRATA_TRY_ASSIGN(read[place], store_->read_async((id + objects_ / 2) % objects_,
                                                          buffers_.in.part(place * kSlot, kSlot)));
      }
    }
    for (const IoTicket ticket : written) STRATA_TRY(store_->wait(ticket));
    for (const IoTicket ticket : read) STRATA_TRY(store_->wait(ticket));
    return {};
  }
  // Small writes, each of which is waited for before the next one.
  Status small_writes() {
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      STRATA_TRY_ASSIGN(const IoTicket ticket,
                        store_->write_async(objects_ + i, 1, buffers_.out.part(0, kSmall)));
      STRATA_TRY(store_->wait(ticket));
    }
    return {};
  }

 private:
  std::uint32_t objects_ = 0;
  Buffers buffers_;
  StorePtr<NvmeStore> store_;
};

// Rates of each directory by block size and queue depth.
Status sweep_block_and_depth(BenchFixture& fixture, const MeasureOptions& options,
                             const DiskRounds::Buffers& buffers, MachineProfile& p) {
  // Slow disks transfer fewer objects per round.
  constexpr double kRoundS = 0.06;
  constexpr int kFiles = 2;  // one file of a disk may be half as fast as another; the faster is used
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto objects = static_cast<std::uint32_t>(std::clamp(
      kRoundS * p.write_bytes_per_s / static_cast<double>(kSlot * options.nvme_dirs.size()), 4.0, 8.0));
  p.disk_paths = options.nvme_dirs;
  p.disk_blocks = {256.0 * kKiB, 1.0 * kMiB, 4.0 * kMiB};
  p.disk_depths = {1, 4, static_cast<double>(NvmeOptions{}.queue_depth)};
  if (options.quick) {
    p.disk_blocks.erase(p.disk_blocks.begin());
    p.disk_depths.erase(p.disk_depths.begin());
  }
  for (const std::string& path : p.disk_paths)
    for (const double block : p.disk_blocks)
      for (const double depth : p.disk_depths) {
        NvmeOptions of;
        of.dirs = {path};
        of.block_bytes = static_cast<std::size_t>(block);
        of.queue_depth = static_cast<int>(depth);
        double read_s = kNever, write_s = kNever;
        for (int file = 0; file < (options.quick ? 1 : kFiles); ++file) {
          STRATA_TRY_ASSIGN(DiskRounds rounds, DiskRounds::create(of, objects, buffers));
          STRATA_TRY_ASSIGN(const double w, fixture.seconds([&] { return rounds.round(true, false); }));
          STRATA_TRY_ASSIGN(const double r, fixture.seconds([&] { return rounds.round(false, true); }));
          write_s = std::min(write_s, w);
          read_s = std::min(read_s, r);
        }
        p.reads_by_path.push_back(objects * static_cast<double>(kSlot) / read_s);
        p.writes_by_path.push_back(objects * static_cast<double>(kSlot) / write_s);
      }
  return {};
}

}  // namespace

Status measure_disk(BenchFixture& fixture, const MeasureOptions& options, MachineProfile& p) {
  for (const std::string& dir : options.nvme_dirs) STRATA_TRY(posix_io().make_dirs(dir));
  STRATA_TRY_ASSIGN(const DiskRounds::Buffers buffers, DiskRounds::buffers(fixture));
  {
    NvmeOptions all;
    all.dirs = options.nvme_dirs;
    STRATA_TRY_ASSIGN(DiskRounds rounds, DiskRounds::create(all, options.quick ? 16 : 64, buffers));
    p.source += str("; NVMe tier with ", rounds.store().io_description());
    STRATA_TRY_ASSIGN(const double write_s, fixture.seconds([&] { return rounds.round(true, false); }));
    STRATA_TRY_ASSIGN(const double read_s, fixture.seconds([&] { return rounds.round(false, true); }));
    const double cores_before = core_seconds();
    const NvmeCounters before = rounds.store().counters();
    STRATA_TRY_ASSIGN(const double both_s, fixture.seconds([&] { return rounds.round(true, true); }));
    const NvmeCounters after = rounds.store().counters();
    const double cores_used = core_seconds() - cores_before;
    STRATA_TRY_ASSIGN(const double small_s, fixture.seconds([&] { return rounds.small_writes(); }));
    p.write_bytes_per_s = rounds.bytes() / write_s;
    p.read_bytes_per_s = rounds.bytes() / read_s;
    p.disk_bytes_per_s = combined_rate(2 * rounds.bytes() / both_s, p.write_bytes_per_s, p.read_bytes_per_s);
    p.disk_latency_s = std::max(0.0, small_s / kRequests - static_cast<double>(kSmall) / p.write_bytes_per_s);
    p.disk_cpu_s_per_byte = cores_used / static_cast<double>(after.bytes_read + after.bytes_written -
                                                             before.bytes_read - before.bytes_written);
  }
  STRATA_TRY(sweep_block_and_depth(fixture, options, buffers, p));
  fixture.release_buffers();
  return {};
}

}  // namespace strata
