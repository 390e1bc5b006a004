#include <strata/chunk/write_back_queue.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/trace/stall_meter.h>
#include <strata/runtime/str.h>

#include "describe.h"
#include "fence_wait.h"

// Only pump() asks how far queued work has progressed, and only to submit a write a little earlier. Whether
// a write is pending depends on the order of the calls alone.

namespace strata {

using detail::describe;

WriteBackQueue::WriteBackQueue(const Placement& placement, ResidencyTable& residency, const SlotPool& slots,
                               Backend& backend, Mover& mover, PayloadNotes* notes)
    : residency_(residency), slots_(slots), backend_(backend), mover_(mover), notes_(notes) {
  std::size_t spares = 0;
  for (const SizeClass& size_class : placement.classes) {
    const std::size_t of_class = size_class.window[index_of(Tier::nvme)];
    limits_.push_back({of_class, std::min<std::size_t>(of_class, size_class.window[index_of(Tier::pinned)])});
    spares += of_class;
  }
  writes_.reserve(spares + 1);
}

Status WriteBackQueue::wait_for_spare(PayloadKey key) {
  const std::uint32_t size_class = slots_.class_of(key);
  std::size_t in_class = 0, oldest = writes_.size();
  for (std::size_t i = writes_.size(); i-- > 0;)
    if (slots_.class_of(writes_[i].key) == size_class) {
      ++in_class;
      oldest = i;
    }
  return in_class >= limits_[size_class].pending ? wait_at(oldest) : Status::ok();
}

void WriteBackQueue::push(PayloadKey key, std::uint64_t n_positions) {
  STRATA_ASSERT(!residency_.is_pinned_for_writing(key, Tier::pinned), describe(key),
                " is written back while it is being written");
  residency_.clean_copies_outside(key, Tier::pinned);
  if (residency_.state(key, Tier::pinned) == Residency::clean)
    residency_.set_state(key, Tier::pinned, Residency::dirty);
  residency_.set_state(key, Tier::pinned, Residency::writing_back);
  residency_.set_state(key, Tier::nvme, Residency::filling);
  writes_.push_back({key, n_positions, {}, false});
}

Status WriteBackQueue::submit(PendingWrite& write) {
  const BufferView src = slots_.slot(write.key, Tier::pinned).view;
  STRATA_TRY(backend_.host_access({src.data, src.bytes, false}));
  const HostWaitScope waits(backend_.stall_meter(), StallCause::nvme);  // may wait for a free request
  STRATA_TRY_ASSIGN(write.ticket, mover_.write_async(write.key, src, residency_.has_snapshot(write.key)));
  write.submitted = true;
  if (notes_ != nullptr) notes_->write(write.key, write.ticket);
  return Status::ok();
}

Status WriteBackQueue::submit_when_final(PendingWrite& write) {
  if (write.submitted) return Status::ok();
  STRATA_TRY(detail::wait_on_host(slots_.slot(write.key, Tier::pinned).written, backend_));
  return submit(write);
}

Status WriteBackQueue::pump() {
  for (PendingWrite& write : writes_) {
    if (write.submitted) continue;
    // In order, so that no write overtakes an older one.
    if (!detail::is_complete(slots_.slot(write.key, Tier::pinned).written, backend_)) return Status::ok();
    if (const Status status = submit(write); !status.is_ok())
      return status.annotate(str("writing back ", describe(write.key)));
  }
  return Status::ok();
}

Status WriteBackQueue::submit_all() {
  for (PendingWrite& write : writes_)
    if (const Status status = submit_when_final(write); !status.is_ok())
      return status.annotate(str("writing back ", describe(write.key)));
  return Status::ok();
}

// Polling at this interval costs little and is soon enough for requests that take milliseconds.
Status WriteBackQueue::wait_for_ticket(IoTicket ticket) {
  constexpr std::int64_t kLookAgainNs = 200'000;
  const HostWaitScope waits(backend_.stall_meter(), StallCause::nvme);
  const auto waits_for_work = [&] {
    return std::any_of(writes_.begin(), writes_.end(),
                       [](const PendingWrite& write) { return !write.submitted; });
  };
  while (waits_for_work() && !mover_.wait_for(ticket, kLookAgainNs))
    if (!pump().is_ok()) break;  // wait_at() will return the error
  return mover_.wait(ticket);
}

// The most recent two thirds of the pinned window (or of the spare extents, if there are fewer) are recent: a
// prefetch that took such a slot would have to wait for the work that produces the contents and then for the
// write. In a window of three chunks, one is then being updated, one written back and one read. A write of
// more than a round ago keeps no slot: in hundreds of decode steps after an update no other writes follow,
// and the slots would be out of reach of what these read again and again.
bool WriteBackQueue::is_recent(PayloadKey key, std::uint64_t since) const noexcept {
  const std::uint32_t size_class = slots_.class_of(key);
  std::size_t younger = 0;
  for (std::size_t i = writes_.size(); i-- > 0;) {
    if (writes_[i].key == key)
      return 3 * younger < 2 * limits_[size_class].recent && writes_[i].n_positions >= since;
    younger += slots_.class_of(writes_[i].key) == size_class ? 1 : 0;
  }
  return false;
}

Status WriteBackQueue::wait_at(std::size_t i) {
  const PayloadKey key = writes_[i].key;
  Status status = submit_when_final(writes_[i]);
  // Also submits writes that became final meanwhile, so that they overlap with this one. Their errors are
  // returned by their own waits.
  (void)pump();
  if (status.is_ok()) status = wait_for_ticket(writes_[i].ticket);
  writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(i));
  residency_.set_state(key, Tier::pinned, status.is_ok() ? Residency::clean : Residency::dirty);
  residency_.set_state(key, Tier::nvme, status.is_ok() ? Residency::clean : Residency::absent);
  return status.is_ok() ? status : status.annotate(str("writing back ", describe(key)));
}

Status WriteBackQueue::wait(PayloadKey key) {
  for (std::size_t i = 0; i < writes_.size(); ++i)
    if (writes_[i].key == key) return wait_at(i);
  return Status::ok();
}

Status WriteBackQueue::wait_all() {
  while (!writes_.empty()) STRATA_TRY(wait_at(0));
  return Status::ok();
}

void WriteBackQueue::drain() noexcept {
  while (!writes_.empty()) (void)wait_at(0);
}

}  // namespace strata
