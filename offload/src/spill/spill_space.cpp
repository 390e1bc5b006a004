#include "spill/spill_space.h"

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::uint64_t kMaxPartSlots = std::uint64_t{1} << 24;
constexpr std::uint64_t kMinPartSlots = 16;                  // less is not worth a part
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;  // so that sums of bytes do not overflow

}  // namespace

SpillSpace::SpillSpace(const SpillOptions& options, std::size_t page_bytes, std::uint32_t first_slots,
                       BufferView memory)
    : open_store_(options.open_store),
      page_bytes_(page_bytes),
      first_slots_(first_slots),
      max_slots_(std::min(options.nvme_bytes, kMaxBytes) / page_bytes),
      memory_(memory) {}

Result<std::uint32_t> SpillSpace::reserve() {
  for (std::size_t part = 0; part < parts_.size(); ++part)
    if (parts_[part].used < parts_[part].slots) {
      ++parts_[part].used;
      return static_cast<std::uint32_t>(part);
    }
  const std::uint64_t left = max_slots_ - n_slots_;
  if (left == 0)
    return Status::error(Code::does_not_fit,
                         str("all ", n_slots_ * page_bytes_, " bytes of nvme_bytes are in use"));
  std::uint64_t slots = std::min({left, std::max<std::uint64_t>(n_slots_, first_slots_), kMaxPartSlots});
  Status opened = open(slots);
  while (opened.code() == Code::no_space && slots > kMinPartSlots) {
    slots = std::max(slots / 4, kMinPartSlots);
    opened = open(slots);
  }
  STRATA_TRY(opened);
  parts_.back().used = 1;
  return static_cast<std::uint32_t>(parts_.size() - 1);
}

Status SpillSpace::open(std::uint64_t slots) {
  STRATA_TRY_ASSIGN(StorePtr<ObjectStore> store,
                    open_store_({page_bytes_, static_cast<std::uint32_t>(slots)}));
  STRATA_TRY(store->register_memory(memory_));
  parts_.push_back({std::move(store), static_cast<std::uint32_t>(slots), 0});
  n_slots_ += slots;
  return {};
}

void SpillSpace::retire(std::uint32_t part) noexcept {
  --parts_[part].used;
  --parts_[part].slots;
  --n_slots_;
  --max_slots_;
  ++n_retired_;
}

bool SpillSpace::drain() noexcept {
  bool drained = true;
  for (const Part& part : parts_) drained &= part.store->drain();
  return drained;
}

std::uint64_t SpillSpace::n_used() const noexcept {
  std::uint64_t used = 0;
  for (const Part& part : parts_) used += part.used;
  return used;
}

NvmeCounters SpillSpace::counters() const {
  NvmeCounters sum;
  for (const Part& part : parts_) {
    const NvmeCounters counters = part.store->counters();
    sum.bytes_read += counters.bytes_read;
    sum.bytes_written += counters.bytes_written;
    sum.read_busy_ns += counters.read_busy_ns;
    sum.write_busy_ns += counters.write_busy_ns;
  }
  return sum;
}

}  // namespace strata::detail
