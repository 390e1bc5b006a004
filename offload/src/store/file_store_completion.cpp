// Completions of transfers, and the callers that wait for them.
#include <chrono>
#include <utility>

#include <strata/runtime/str.h>

#include "store/file_store.h"

namespace strata::detail {
namespace {

std::string hex(std::uint32_t value) { return fmt::format("{:#010x}", value); }

}  // namespace

std::string FileStore::describe(const StoreRequest& request) const {
  std::string where;
  for (const Extent& extent : request.extents)
    where += str(where.empty() ? "" : ", ", extent.bytes, " bytes in file ", extent.file, " of ",
                 files_.opened[extent.file]->path(), " at offset ", extent.offset);
  return str(request.write ? "writing" : "reading", " id ", request.id, " generation ", request.generation,
             " (", where, ")");
}

void FileStore::on_complete(std::uint32_t index, Status outcome) noexcept {
  Transfer transfer;
  {
    const MutexLock lock(mutex_);
    if (!timeout_.is_ok()) return;  // too late: every caller has the error
    const bool again = requests_[index].write ? complete_write(index, std::move(outcome))
                                              : complete_read(index, std::move(outcome));
    if (!again) return;
    transfer = next_transfer(index);
  }
  io_backend_->start(index, transfer);
}

bool FileStore::complete_read(std::uint32_t index, Status outcome) {
  StoreRequest& request = requests_[index];
  if (outcome.is_ok()) {
    const std::uint32_t checksum = checksums_.of_object(index, request.id, request.generation);
    if (checksum != request.crc)
      outcome =
          Status::error(Code::corrupt, str("crc32c is ", hex(checksum), ", expected ", hex(request.crc)));
  }
  // A wrong checksum, like EIO, may be caused by the transfer rather than by the medium: read once more.
  if (!outcome.is_ok() && !request.reread) {
    request.reread = true;
    meter_.read_again();
    return true;
  }
  if (!outcome.is_ok()) outcome = std::move(outcome).annotate(str(describe(request), ", read twice"));
  const std::uint32_t slot_class = slots_[request.slot].slot_class;
  objects_.end_read(request.id, request.slot);
  end(index, outcome);
  retry_starved_writes(slot_class);
  return false;
}

bool FileStore::complete_write(std::uint32_t index, Status outcome) {
  StoreRequest& request = requests_[index];
  const std::uint32_t slot_class = slots_[request.slot].slot_class;
  if (outcome.code() == Code::io_error) {
    // The data is still in RAM: mark the slot bad and write the whole object to another one.
    if (request.first_failure.is_ok()) request.first_failure = outcome.annotate(describe(request));
    slots_.mark_bad(request.slot);
    meter_.bad_slot();
    if (move_write(request)) return true;
    request.starved = slots_.n_in_flight(slot_class) > 0;
    if (request.starved)
      return false;  // until retry_starved_writes() finds a slot or no request in flight could free one
    outcome = no_slot_left(request);
  } else if (outcome.is_ok()) {
    objects_.publish(request.id, {request.slot, checksums_.of_object(index, request.id, request.generation),
                                  request.generation, request.bytes});
  } else {
    outcome = std::move(outcome).annotate(describe(request));
    slots_.release(request.slot);
  }
  objects_.end_write(request.id);
  end(index, outcome);
  retry_starved_writes(slot_class);
  return false;
}

/// Gives a write whose slot is bad another slot of the same class, if one is free.
bool FileStore::move_write(StoreRequest& request) {
  const std::optional<SlotIndex> slot = slots_.allocate(slots_[request.slot].slot_class);
  if (!slot.has_value()) return false;
  request.slot = *slot;
  meter_.write_again(request.bytes);
  return true;
}

Status FileStore::no_slot_left(const StoreRequest& request) const {
  const Status full = slots_.no_free_slot(slots_[request.slot].slot_class);
  return Status::error(Code::io_error, str(request.first_failure.message(), "; ", full.message()));
}

// Writes that lost their slot have priority over new ones. IoBackend::start() only queues, so it may be
// called under mutex_.
void FileStore::retry_starved_writes(std::uint32_t slot_class) {
  for (std::uint32_t index = 0; index < requests_.size(); ++index) {
    StoreRequest& request = requests_[index];
    if (!request.active || !request.starved || slots_[request.slot].slot_class != slot_class) continue;
    if (move_write(request)) {
      request.starved = false;
      io_backend_->start(index, next_transfer(index));
    } else if (slots_.n_in_flight(slot_class) == 0) {
      request.starved = false;
      objects_.end_write(request.id);
      end(index, no_slot_left(request));
    }
  }
}

void FileStore::end(std::uint32_t index, const Status& outcome) {
  meter_.end(requests_[index], outcome.is_ok(), clock_.now_ns());
  requests_.end(index, outcome);
  done_.notify_all();
}

// A starved write or another caller may be waiting for the slot.
void FileStore::on_freed(const Version& version) {
  if (version.slot == kNoSlot) return;
  retry_starved_writes(slots_[version.slot].slot_class);
  done_.notify_all();
}

Status FileStore::wait(IoTicket ticket) {
  if (!ticket.valid()) return Status::ok();
  const MutexLock lock(mutex_);
  while (requests_.is_in_flight(ticket)) STRATA_TRY(await_change());
  return requests_.outcome(ticket);
}

// Loops because other requests also notify done_. After a timeout of the store there is nothing to wait for.
bool FileStore::wait_for(IoTicket ticket, std::int64_t ns) {
  if (!ticket.valid()) return true;
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  const MutexLock lock(mutex_);
  while (requests_.is_in_flight(ticket) && timeout_.is_ok()) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    (void)done_.wait_for(mutex_, left);
  }
  return true;
}

bool FileStore::is_complete(IoTicket ticket) const noexcept {
  if (!ticket.valid()) return true;
  const MutexLock lock(mutex_);
  return !requests_.is_in_flight(ticket);
}

Status FileStore::await_change() {
  const std::uint64_t ended = requests_.n_ended(), moved = progress_count_.load(std::memory_order_relaxed);
  if (!timeout_.is_ok()) return timeout_;
  if (done_.wait_for(mutex_, options_.deadline) == std::cv_status::no_timeout ||
      requests_.n_ended() != ended || progress_count_.load(std::memory_order_relaxed) != moved)
    return Status::ok();
  timeout_ =
      Status::error(Code::timeout, str(describe(requests_.oldest()),
                                       ": no data was transferred, for this or any other request, within ",
                                       options_.deadline.count(), " ms"));
  checksums_.abandon();
  io_backend_->abandon();
  done_.notify_all();
  return timeout_;
}

bool FileStore::drain() noexcept {
  const MutexLock lock(mutex_);
  while (!requests_.is_idle())
    if (!await_change().is_ok()) return false;
  return true;
}

}  // namespace strata::detail
