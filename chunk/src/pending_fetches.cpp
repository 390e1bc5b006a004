#include <strata/chunk/pending_fetches.h>

#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "describe.h"
#include "fence_wait.h"

namespace strata {

using detail::describe;

PendingFetches::PendingFetches(ResidencyTable& residency, SlotPool& slots, WriteBackQueue& write_backs,
                               Backend& backend, Mover& mover, PayloadNotes* notes)
    : residency_(residency),
      slots_(slots),
      write_backs_(write_backs),
      backend_(backend),
      mover_(mover),
      notes_(notes),
      reads_(residency.n_keys()) {}

Status PendingFetches::begin_copy(PayloadKey key, Tier from, Tier to) {
  STRATA_ASSERT(!residency_.is_pinned_for_writing(key, from), describe(key), " is being copied from ",
                to_string(from), " while it is being written there");
  PayloadSlot& src = slots_.slot(key, from);
  PayloadSlot& dst = slots_.slot(key, to);
  Fence after = dst.written;
  after.join(dst.read);
  after.join(src.written);
  const Direction direction = to == Tier::device ? Direction::h2d : Direction::d2h;
  Event done;
  if (const Status status = mover_.copy_async(dst.view, src.view, direction, after, done); !status.is_ok())
    return status.annotate(str("copying ", describe(key)));
  const StreamRole role = direction == Direction::h2d ? StreamRole::h2d : StreamRole::d2h;
  dst.set_writer(role, done);
  src.add_reader(role, done);
  if (notes_ != nullptr) notes_->copy(key, to, done);
  residency_.set_state(key, to, Residency::filling);
  return Status::ok();
}

Status PendingFetches::begin_read(PayloadKey key) {
  PayloadSlot& dst = slots_.slot(key, Tier::pinned);
  const auto begin = [&]() -> Status {
    STRATA_TRY(detail::wait_on_host(dst.written, backend_));
    STRATA_TRY(detail::wait_on_host(dst.read, backend_));
    STRATA_TRY(backend_.host_access({dst.view.data, dst.view.bytes, true}));
    STRATA_TRY_ASSIGN(reads_[index_of(key)], mover_.read_async(key, dst.view));
    return Status::ok();
  };
  if (const Status status = begin(); !status.is_ok()) return status.annotate(str("fetching ", describe(key)));
  dst.written.clear();
  dst.read.clear();
  if (notes_ != nullptr) notes_->read(key, reads_[index_of(key)]);
  residency_.set_state(key, Tier::pinned, Residency::filling);
  return Status::ok();
}

Status PendingFetches::complete(PayloadKey key, Tier tier) {
  if (residency_.state(key, tier) != Residency::filling) return Status::ok();
  if (tier == Tier::pinned && reads_[index_of(key)].valid())
    if (const Status status = finish_read(key); !status.is_ok()) {
      residency_.set_state(key, tier, Residency::absent);
      slots_.release(key, tier);
      return status.annotate(str("fetching ", describe(key)));
    }
  residency_.set_state(key, tier, Residency::clean);
  return Status::ok();
}

Status PendingFetches::finish_read(PayloadKey key) {
  STRATA_TRY(write_backs_.wait_for_ticket(std::exchange(reads_[index_of(key)], IoTicket{})));
  const BufferView view = slots_.slot(key, Tier::pinned).view;
  return backend_.host_access({view.data, view.bytes, true});
}

}  // namespace strata
