// Handling of completions and of callers that wait for them.
#include <algorithm>
#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "store/store_core.h"

namespace strata::detail {
namespace {

std::string hex(std::uint32_t value) { return fmt::format("{:#010x}", value); }

}  // namespace

std::string StoreCore::describe(const Request& request) const {
  std::string where;
  for (const Extent& extent : request.extents)
    where += str(where.empty() ? "" : ", ", extent.bytes, " bytes in file ", extent.file, " of ",
                 files_.opened[extent.file]->path(), " at offset ", extent.offset);
  return str(request.write ? "writing" : "reading", " id ", request.id, " generation ", request.generation,
             " (", where, ")");
}

bool StoreCore::complete_read(Request& request, Status& outcome) {
  if (outcome.is_ok()) {
    const std::uint32_t checksum = object_checksum(request);
    if (checksum != request.crc)
      outcome =
          Status::error(Code::corrupt, str("crc32c is ", hex(checksum), ", expected ", hex(request.crc)));
  }
  // A wrong checksum, like EIO, may be caused by the transfer rather than by the medium: read once more.
  const bool again = !outcome.is_ok() && !request.reread;
  if (again) {
    request.reread = true;
    request.checksum.store(0, std::memory_order_relaxed);
    ++counters_.read_retries;
    return true;
  }
  if (!outcome.is_ok()) outcome = std::move(outcome).annotate(str(describe(request), ", read twice"));
  const std::uint32_t slot_class = slots_[request.slot].slot_class;
  slots_.drop_reader(request.slot);
  --busy_[slot_class];
  drop_pending(request.id);
  end(static_cast<std::uint32_t>(&request - requests_.data()), outcome);
  retry_starved_writes(slot_class);
  return false;
}

bool StoreCore::complete_write(std::uint32_t index, Status& outcome) {
  Request& request = requests_[index];
  const std::uint32_t slot_class = slots_[request.slot].slot_class;
  --busy_[slot_class];
  if (outcome.code() == Code::io_error) {
    // The data is still in RAM: mark the slot bad and write the whole object to another one.
    if (request.first_failure.is_ok()) request.first_failure = outcome.annotate(describe(request));
    request.checksum.store(0, std::memory_order_relaxed);
    slots_.mark_bad(request.slot);
    ++counters_.bad_slots;
    if (const std::optional<SlotIndex> other = slots_.allocate(slot_class)) {
      request.slot = *other;
      ++busy_[slot_class];
      ++counters_.write_retries;
      counters_.endurance_bytes += request.bytes;
      return true;
    }
    request.starved = busy_[slot_class] > 0;
    if (request.starved)
      return true;  // until retry_starved_writes() finds a slot or no request in flight could free one
    outcome = Status::error(Code::io_error,
                            str(request.first_failure.message(), "; ", no_free_slot(slot_class).message()));
  } else if (outcome.is_ok()) {
    publish(request);
  } else {
    outcome = std::move(outcome).annotate(describe(request));
    slots_.release(request.slot);
  }
  drop_pending(request.id);
  end(index, outcome);
  retry_starved_writes(slot_class);
  return false;
}

void StoreCore::end(std::uint32_t index, const Status& outcome) {
  Request& request = requests_[index];
  request.active = false;
  ++ended_;
  const std::int64_t now_ns = clock_.now_ns();
  busy_time_[request.write ? 1 : 0].end(now_ns);
  trace_.record(request.write, request.bytes, request.begin_ns, now_ns);
  if (!outcome.is_ok()) {
    failures_.emplace(request.sequence, outcome);
  } else if (request.write) {
    ++counters_.writes;
    counters_.bytes_written += request.bytes;
  } else {
    ++counters_.reads;
    counters_.bytes_read += request.bytes;
    counters_.verified_bytes += request.bytes;
  }
  idle_requests_.push_back(index);
  done_.notify_all();
}

// Writes that lost their slot have priority over new ones. IoBackend::start() only queues, so it may be
// called under mutex_.
void StoreCore::retry_starved_writes(std::uint32_t slot_class) {
  for (std::uint32_t index = 0; index < requests_.size(); ++index) {
    Request& request = requests_[index];
    if (!request.active || !request.starved || slots_[request.slot].slot_class != slot_class) continue;
    if (const std::optional<SlotIndex> slot = slots_.allocate(slot_class)) {
      request.starved = false;
      request.slot = *slot;
      ++busy_[slot_class];
      ++counters_.write_retries;
      counters_.endurance_bytes += request.bytes;
      io_backend_->start(index, transfer_of(request));
    } else if (busy_[slot_class] == 0) {
      request.starved = false;
      drop_pending(request.id);
      end(index, Status::error(Code::io_error, str(request.first_failure.message(), "; ",
                                                   no_free_slot(slot_class).message())));
    }
  }
}

Status StoreCore::wait(Ticket ticket) {
  if (ticket.sequence == 0) return Status::ok();
  const MutexLock lock(mutex_);
  if (ticket.index >= requests_.size() || ticket.sequence > last_sequence_)
    return Status::error(Code::invalid,
                         str("waiting for request ", ticket.sequence, " at index ", ticket.index, ": only ",
                             last_sequence_, " were submitted, in a table of ", requests_.size()));
  const Request& request = requests_[ticket.index];
  while (request.active && request.sequence == ticket.sequence) STRATA_TRY(await_change());
  const auto failure = failures_.find(ticket.sequence);
  return failure == failures_.end() ? Status::ok() : failure->second;
}

// Loops because other requests also notify done_. After a timeout of the store there is nothing to wait for.
bool StoreCore::wait_for(Ticket ticket, std::int64_t ns) {
  if (ticket.sequence == 0 || ticket.index >= requests_.size()) return true;
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  const MutexLock lock(mutex_);
  const Request& request = requests_[ticket.index];
  while (request.active && request.sequence == ticket.sequence && timeout_.is_ok()) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return false;
    (void)done_.wait_for(mutex_, left);
  }
  return true;
}

Status StoreCore::await_change() {
  const std::uint64_t seen = ended_, moved = progress_count_.load(std::memory_order_relaxed);
  if (!timeout_.is_ok()) return timeout_;
  if (done_.wait_for(mutex_, options_.deadline) == std::cv_status::no_timeout || ended_ != seen ||
      progress_count_.load(std::memory_order_relaxed) != moved)
    return Status::ok();
  const auto oldest =
      std::min_element(requests_.begin(), requests_.end(), [](const Request& a, const Request& b) {
        return std::pair(!a.active, a.sequence) < std::pair(!b.active, b.sequence);
      });
  timeout_ =
      Status::error(Code::timeout, str(describe(*oldest),
                                       ": no data was transferred, for this or any other request, within ",
                                       options_.deadline.count(), " ms"));
  done_.notify_all();
  return timeout_;
}

bool StoreCore::drain() noexcept {
  const MutexLock lock(mutex_);
  while (idle_requests_.size() < requests_.size())
    if (const Status status = await_change(); !status.is_ok()) {
      abandoned_.store(true, std::memory_order_relaxed);
      return false;
    }
  return true;
}

bool StoreCore::is_complete(Ticket ticket) const noexcept {
  if (ticket.sequence == 0 || ticket.index >= requests_.size()) return true;
  const MutexLock lock(mutex_);
  const Request& request = requests_[ticket.index];
  return !request.active || request.sequence != ticket.sequence;
}

std::uint64_t StoreCore::used_bytes() const {
  const MutexLock lock(mutex_);
  return slots_.used_bytes();
}

std::vector<NvmePath> StoreCore::paths() const {
  const MutexLock lock(mutex_);
  std::vector<NvmePath> paths;
  for (std::uint32_t file = 0; file < rates_.size(); ++file)
    paths.push_back({options_.dirs[file], slots_.file_bytes(file), rates_[file]});
  return paths;
}

std::uint64_t StoreCore::capacity_bytes() const {
  const MutexLock lock(mutex_);
  return slots_.capacity_bytes();
}

NvmeCounters StoreCore::counters() const {
  const IoBackendCounters engine = io_backend_->counters();
  const MutexLock lock(mutex_);
  NvmeCounters counters = counters_;
  counters.resubmissions = engine.resubmissions;
  counters.stray_completions = engine.stray_completions;
  const std::int64_t now_ns = clock_.now_ns();
  counters.read_busy_ns = busy_time_[0].until(now_ns);
  counters.write_busy_ns = busy_time_[1].until(now_ns);
  return counters;
}

}  // namespace strata::detail
