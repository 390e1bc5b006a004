// Submission of requests, and everything that is not about completions.
#include "store/file_store.h"

#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

Status check_buffer(const char* doing, std::uint64_t id, const void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (bytes > 0 && bytes % kStoreAlign == 0 && address % kStoreAlign == 0) return Status::ok();
  return Status::error(Code::invalid,
                       str(doing, " id ", id, ": ", bytes, " bytes at address ", address,
                           "; the store needs a size and an address that are multiples of ", kStoreAlign));
}

}  // namespace

FileStore::~FileStore() {
  const bool drained = drain();
  STRATA_ASSERT(drained, "a store is destroyed with requests in flight");
  io_backend_.reset();  // joins the worker that reported completion: it may still hold mutex_
}

Status FileStore::register_memory(BufferView slab) {
  const auto address = reinterpret_cast<std::uintptr_t>(slab.data);
  if (slab.bytes == 0 || address % kStoreAlign != 0)
    return Status::error(Code::invalid,
                         str("registering ", slab.bytes, " bytes at address ", address,
                             "; the store needs an address that is a multiple of ", kStoreAlign));
  io_backend_->register_memory(slab);
  return Status::ok();
}

Status FileStore::check_write(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src) const {
  STRATA_TRY(check_buffer("writing", id, src.data, src.bytes));
  if (slot_class >= options_.classes.size())
    return Status::error(Code::invalid, str("writing id ", id, ": slot class ", slot_class,
                                            " does not exist; there are ", options_.classes.size()));
  if (src.bytes > options_.classes[slot_class].slot_bytes)
    return Status::error(Code::invalid, str("writing id ", id, ": ", src.bytes, " bytes, but slots of class ",
                                            slot_class, " have ", options_.classes[slot_class].slot_bytes));
  return Status::ok();
}

// Waits for a free request as well, so that the slot is used at once.
Result<SlotIndex> FileStore::wait_for_slot(std::uint64_t id, std::uint32_t slot_class) {
  STRATA_TRY(timeout_);
  for (;;) {
    if (!requests_.is_full()) {
      if (const std::optional<SlotIndex> slot = slots_.allocate(slot_class)) return *slot;
      if (slots_.n_in_flight(slot_class) == 0) {
        // Once for each new write, so that a device that stays broken ends it.
        if (const std::optional<SlotIndex> slot = slots_.allocate_bad(slot_class)) return *slot;
        return slots_.no_free_slot(slot_class).annotate(str("writing id ", id));
      }
    }
    STRATA_TRY(await_change());
  }
}

Transfer FileStore::next_transfer(std::uint32_t index) {
  StoreRequest& request = requests_[index];
  slots_.map_extents(request.slot, request.bytes, request.extents);
  checksums_.begin(index, {request.data, request.bytes});
  return {request.write, request.data, request.extents};
}

Result<IoTicket> FileStore::write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                                        WriteMode mode) {
  STRATA_TRY(check_write(id, slot_class, src));
  const std::uint64_t generation = next_generation_.fetch_add(1, std::memory_order_relaxed);
  IoTicket ticket;
  Transfer transfer;
  {
    const MutexLock lock(mutex_);
    STRATA_TRY_ASSIGN(const SlotIndex slot, wait_for_slot(id, slot_class));
    auto* data = const_cast<std::byte*>(src.data);  // writes only read it
    ticket = requests_.begin(true, id, data, src.bytes, clock_.now_ns());
    StoreRequest& request = requests_[ticket.index];
    request.generation = generation;
    request.slot = slot;
    objects_.begin_write(id, generation, mode);
    meter_.begin(request);
    transfer = next_transfer(ticket.index);
  }
  io_backend_->start(ticket.index, transfer);
  return ticket;
}

Result<IoTicket> FileStore::read_async(std::uint64_t id, BufferView dst) {
  STRATA_TRY(check_buffer("reading", id, dst.data, dst.bytes));
  IoTicket ticket;
  Transfer transfer;
  {
    const MutexLock lock(mutex_);
    STRATA_TRY(timeout_);
    while (requests_.is_full()) STRATA_TRY(await_change());
    const Version* live = objects_.live(id);
    if (live == nullptr)
      return Status::error(Code::not_found, str("reading id ", id, ": nothing is published under it"));
    if (live->bytes != dst.bytes)
      return Status::error(Code::invalid, str("reading id ", id, ": ", live->bytes,
                                              " bytes are stored, but the buffer has ", dst.bytes));
    ticket = requests_.begin(false, id, dst.data, dst.bytes, clock_.now_ns());
    StoreRequest& request = requests_[ticket.index];
    request.generation = live->generation;
    request.slot = live->slot;
    request.crc = live->crc;
    objects_.begin_read(id);
    meter_.begin(request);
    transfer = next_transfer(ticket.index);
  }
  io_backend_->start(ticket.index, transfer);
  return ticket;
}

// After a timeout of the store nothing changes any more: requests in flight never complete.
void FileStore::discard(std::uint64_t id) {
  const MutexLock lock(mutex_);
  if (!timeout_.is_ok()) return;
  for (const Version& freed : objects_.discard(id)) on_freed(freed);
}

void FileStore::commit(std::uint64_t id) {
  const MutexLock lock(mutex_);
  if (timeout_.is_ok()) on_freed(objects_.commit(id));
}

void FileStore::rollback(std::uint64_t id) {
  const MutexLock lock(mutex_);
  if (timeout_.is_ok()) on_freed(objects_.rollback(id));
}

std::optional<StoredInfo> FileStore::find(std::uint64_t id) const {
  const MutexLock lock(mutex_);
  const Version* live = objects_.live(id);
  if (live == nullptr) return std::nullopt;
  return StoredInfo{live->bytes, live->generation};
}

std::uint64_t FileStore::used_bytes() const {
  const MutexLock lock(mutex_);
  return slots_.used_bytes();
}

std::uint64_t FileStore::capacity_bytes() const {
  const MutexLock lock(mutex_);
  return slots_.capacity_bytes();
}

std::vector<NvmePath> FileStore::paths() const {
  const MutexLock lock(mutex_);
  std::vector<NvmePath> paths;
  for (std::uint32_t file = 0; file < rates_.size(); ++file)
    paths.push_back({options_.dirs[file], slots_.file_bytes(file), rates_[file]});
  return paths;
}

NvmeCounters FileStore::counters() const {
  const IoBackendCounters moved = io_backend_->counters();
  const MutexLock lock(mutex_);
  NvmeCounters counters = meter_.counters(clock_.now_ns());
  counters.resubmissions = moved.resubmissions;
  counters.stray_completions = moved.stray_completions;
  return counters;
}

}  // namespace strata::detail
