#include "store/store_core.h"

#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/io/crc32c.h>
#include <strata/runtime/str.h>

namespace strata::detail {

StoreCore::~StoreCore() {
  const bool drained = drain();
  STRATA_ASSERT(drained, "a store is destroyed with requests in flight");
  io_backend_.reset();  // joins the worker that reported completion: it may still hold mutex_
}

Status StoreCore::check_buffer(const char* doing, std::uint64_t id, const void* data,
                               std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (bytes > 0 && bytes % kStoreAlign == 0 && address % kStoreAlign == 0) return Status::ok();
  return Status::error(Code::invalid,
                       str(doing, " id ", id, ": ", bytes, " bytes at address ", address,
                           "; the store needs a size and an address that are multiples of ", kStoreAlign));
}

Status StoreCore::register_memory(BufferView slab) {
  const auto address = reinterpret_cast<std::uintptr_t>(slab.data);
  if (slab.bytes == 0 || address % kStoreAlign != 0)
    return Status::error(Code::invalid,
                         str("registering ", slab.bytes, " bytes at address ", address,
                             "; the store needs an address that is a multiple of ", kStoreAlign));
  io_backend_->register_memory(slab);
  return Status::ok();
}

Ticket StoreCore::begin(bool write, std::uint64_t id, std::byte* data, std::size_t bytes) {
  const std::uint32_t index = idle_requests_.back();
  idle_requests_.pop_back();
  Request& request = requests_[index];
  request.sequence = ++last_sequence_;
  request.active = true;
  request.write = write;
  request.starved = request.reread = false;
  request.id = id;
  request.data = data;
  request.bytes = bytes;
  request.begin_ns = clock_.now_ns();
  busy_time_[write ? 1 : 0].begin(request.begin_ns);
  request.checksum.store(0, std::memory_order_relaxed);
  request.first_failure = Status::ok();
  return {index, request.sequence};
}

Status StoreCore::no_free_slot(std::uint32_t slot_class) const {
  const std::uint32_t bad = slots_.bad(slot_class);
  return Status::error(bad > 0 ? Code::io_error : Code::does_not_fit,
                       str("class ", slot_class, " has no free slot: ", slots_.slots(slot_class),
                           " slots of ", slots_.slot_bytes(slot_class), " bytes, ",
                           slots_.slots(slot_class) - bad, " hold data, ", bad, " are bad"));
}

Transfer StoreCore::transfer_of(Request& request) const {
  slots_.map_extents(request.slot, request.bytes, request.extents);
  return {request.write, request.data, request.extents};
}

Result<Ticket> StoreCore::write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                                      WriteMode mode) {
  STRATA_TRY(check_buffer("writing", id, src.data, src.bytes));
  if (slot_class >= options_.classes.size())
    return Status::error(Code::invalid, str("writing id ", id, ": slot class ", slot_class,
                                            " does not exist; there are ", options_.classes.size()));
  if (src.bytes > options_.classes[slot_class].slot_bytes)
    return Status::error(Code::invalid, str("writing id ", id, ": ", src.bytes, " bytes, but slots of class ",
                                            slot_class, " have ", options_.classes[slot_class].slot_bytes));
  const std::uint64_t generation = next_generation_.fetch_add(1, std::memory_order_relaxed);
  Ticket ticket;
  Transfer transfer;
  {
    const MutexLock lock(mutex_);
    std::optional<SlotIndex> slot;
    STRATA_TRY(timeout_);
    for (;;) {
      if (!idle_requests_.empty()) {
        slot = slots_.allocate(slot_class);
        if (slot.has_value()) break;
        if (busy_[slot_class] == 0) return no_free_slot(slot_class).annotate(str("writing id ", id));
      }
      STRATA_TRY(await_change());
    }
    ticket = begin(true, id, const_cast<std::byte*>(src.data), src.bytes);  // writes only read it
    Request& request = requests_[ticket.index];
    request.generation = generation;
    request.slot = *slot;
    IdRecord& record = ids_.find_or_add(id);
    ++record.pending;
    if (mode == WriteMode::snapshot &&
        (record.first_uncommitted == 0 || generation < record.first_uncommitted))
      record.first_uncommitted = generation;
    ++busy_[slot_class];
    counters_.endurance_bytes += src.bytes;
    transfer = transfer_of(request);
  }
  io_backend_->start(ticket.index, transfer);
  return ticket;
}

Result<Ticket> StoreCore::read_async(std::uint64_t id, BufferView dst) {
  STRATA_TRY(check_buffer("reading", id, dst.data, dst.bytes));
  Ticket ticket;
  Transfer transfer;
  {
    const MutexLock lock(mutex_);
    STRATA_TRY(timeout_);
    while (idle_requests_.empty()) STRATA_TRY(await_change());
    IdRecord* record = ids_.find(id);
    if (record == nullptr || record->live.slot == kNoSlot)
      return Status::error(Code::not_found, str("reading id ", id, ": nothing is published under it"));
    const Version& live = record->live;
    if (live.bytes != dst.bytes)
      return Status::error(Code::invalid, str("reading id ", id, ": ", live.bytes,
                                              " bytes are stored, but the buffer has ", dst.bytes));
    ticket = begin(false, id, dst.data, dst.bytes);
    Request& request = requests_[ticket.index];
    request.generation = live.generation;
    request.slot = live.slot;
    request.crc = live.crc;
    ++record->pending;
    slots_.add_reader(live.slot);
    ++busy_[slots_[live.slot].slot_class];
    transfer = transfer_of(request);
  }
  io_backend_->start(ticket.index, transfer);
  return ticket;
}

// The I/O thread computes the checksum of each block, of reads and of writes, while the device works on
// others.
void StoreCore::add_block_checksum(Request& request, std::size_t at, std::size_t bytes) noexcept {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  const std::uint32_t checksum = crc32c(0, {request.data + at, bytes});
  request.checksum.fetch_xor(crc32c_shift(checksum, request.bytes - at - bytes), std::memory_order_relaxed);
}

std::uint32_t StoreCore::object_checksum(const Request& request) noexcept {
  const std::uint32_t seed = crc32c_seed(request.id, request.generation);
  return crc32c_shift(seed, request.bytes) ^ request.checksum.load(std::memory_order_relaxed);
}

void StoreCore::on_submit(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept {
  add_block_checksum(requests_[index], at, bytes);
}

void StoreCore::on_block_read(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept {
  add_block_checksum(requests_[index], at, bytes);
}

void StoreCore::on_complete(std::uint32_t index, Status outcome) noexcept {
  Transfer transfer;
  {
    const MutexLock lock(mutex_);
    Request& request = requests_[index];
    const bool goes_on = request.write ? complete_write(index, outcome) : complete_read(request, outcome);
    if (!goes_on) return;
    if (request.starved) return;
    transfer = transfer_of(request);
  }
  io_backend_->start(index, transfer);
}

}  // namespace strata::detail
