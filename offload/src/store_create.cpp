// Making a store: options, files, engine.
#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

#include "ring_engine.h"
#include "store_core.h"

namespace strata::detail {
namespace {

constexpr std::size_t kAlign = 4096;

Status in_range(const char* name, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return Status::ok();
  return Status::error(Code::invalid,
                       str("NVMe store: ", name, " is ", value, "; it takes ", low, " to ", high));
}

Status aligned(const char* name, std::size_t value) {
  if (value % kAlign == 0 && value > 0) return Status::ok();
  return Status::error(Code::invalid,
                       str("NVMe store: ", name, " is ", value, "; it takes a multiple of ", kAlign));
}

Status check(const NvmeOptions& options) {
  STRATA_TRY(in_range("number of dirs", options.dirs.size(), 1, 64));
  STRATA_TRY(in_range("number of slot classes", options.classes.size(), 1, 4096));
  STRATA_TRY(in_range("queue_depth", static_cast<std::uint64_t>(options.queue_depth), 1, 4096));
  STRATA_TRY(in_range("io_threads", static_cast<std::uint64_t>(options.io_threads), 1, 64));
  STRATA_TRY(in_range("request_slots", options.request_slots, 1, 65536));
  STRATA_TRY(in_range("block_bytes", options.block_bytes, kAlign, 256 * kMiB));
  STRATA_TRY(aligned("block_bytes", options.block_bytes));
  std::uint64_t slots = 0;
  for (const SlotClass& c : options.classes) {
    STRATA_TRY(aligned("slot_bytes", c.slot_bytes));
    STRATA_TRY(in_range("slot_bytes", c.slot_bytes, kAlign, std::uint64_t{1} << 40));
    slots += c.slots;
  }
  return in_range("number of slots", slots, 1, std::uint64_t{1} << 31);
}

std::size_t count_slots(const NvmeOptions& options) {
  std::size_t slots = 0;
  for (const SlotClass& c : options.classes) slots += c.slots;
  return slots;
}

}  // namespace

StoreCore::StoreCore(NvmeOptions options, std::uint32_t files)
    : options_(std::move(options)),
      slots_(options_.classes, files),
      ids_(count_slots(options_)),
      requests_(options_.request_slots),
      trace_(options_.trace),
      busy_(options_.classes.size()) {
  idle_requests_.reserve(requests_.size());
  for (std::uint32_t i = options_.request_slots; i > 0; --i) idle_requests_.push_back(i - 1);
}

Result<std::unique_ptr<StoreCore>> StoreCore::create(Io& io, NvmeOptions options,
                                                     const RingFactory& make_ring) {
  STRATA_TRY(check(options));
  const auto files = static_cast<std::uint32_t>(options.dirs.size());
  std::unique_ptr<StoreCore> core(new StoreCore(std::move(options), files));
  STRATA_TRY(core->open_files(io).annotate("creating the NVMe store"));
  STRATA_TRY(core->start_engine(make_ring).annotate("creating the NVMe store"));
  return core;
}

Status StoreCore::open_files(Io& io) {
  const MutexLock lock(mutex_);  // nobody else knows us yet; for the analysis
  for (std::uint32_t i = 0; i < options_.dirs.size(); ++i) {
    const std::string& dir = options_.dirs[i];
    STRATA_TRY(io.make_dirs(dir));
    STRATA_TRY_ASSIGN(std::unique_ptr<File> file, io.open(dir, OpenMode::scratch, options_.direct));
    ++counters_.files_opened;
    const DirectAlignment needs = file->alignment();
    if (file->direct() && (needs.offset > kAlign || needs.memory > kAlign)) {
      fallback_note_ +=
          str(" (", dir, " asks for ", std::max(needs.offset, needs.memory), "-byte alignment)");
      STRATA_TRY_ASSIGN(file, io.open(dir, OpenMode::scratch, false));
      ++counters_.files_opened;
    }
    STRATA_TRY(file->allocate(slots_.file_bytes(i)));
    files_.push_back(std::move(file));
  }
  return Status::ok();
}

Status StoreCore::start_engine(const RingFactory& make_ring) {
  std::vector<int> descriptors;
  std::vector<RingFile> ring_files;
  std::vector<File*> files;
  for (const std::unique_ptr<File>& file : files_) {
    descriptors.push_back(file->descriptor());
    ring_files.push_back({file->path(), file->direct() ? kAlign : 1});
    files.push_back(file.get());
  }
  if (options_.engine != IoEngine::threads) {
    const bool bare = std::find(descriptors.begin(), descriptors.end(), -1) == descriptors.end();
    auto ring = bare ? make_ring(descriptors, 2 * static_cast<std::uint32_t>(options_.queue_depth))
                     : Status::error(Code::unsupported, "io_uring: the files have no descriptors");
    if (ring.has_value()) {
      STRATA_TRY_ASSIGN(engine_, make_ring_engine(std::move(*ring), std::move(ring_files), *this,
                                                  options_.request_slots, options_.block_bytes));
      return Status::ok();
    }
    if (options_.engine == IoEngine::uring) return ring.status();
    fallback_note_ += str(" (", ring.status().message(), ")");
  }
  STRATA_TRY_ASSIGN(engine_, make_thread_engine(std::move(files), *this, options_.request_slots,
                                                options_.block_bytes, options_.io_threads));
  return Status::ok();
}

std::string StoreCore::engine_note() const {
  const auto direct =
      std::count_if(files_.begin(), files_.end(), [](const auto& file) { return file->direct(); });
  const auto all = static_cast<std::ptrdiff_t>(files_.size());
  const std::string memory = engine_->memory_note();
  return str(engine_->note(), ", ",
             direct == all ? "O_DIRECT"
             : direct == 0 ? "buffered"
                           : "partly buffered",
             !options_.direct ? " as asked"
             : direct < all   ? ", O_DIRECT refused"
                              : "",
             memory.empty() ? "" : ", ", memory, fallback_note_);
}

}  // namespace strata::detail
