// When pages are written and read, and what becomes of requests.
#include <algorithm>
#include <set>
#include <utility>

#include <strata/runtime/str.h>

#include "spill/paged_spill_store.h"
#include "store/store_files.h"

namespace strata::detail {

std::uint64_t PagedSpillStore::n_owned() const {
  return pages_.n(PageState::copying) + pages_.n(PageState::dirty) + pages_.n(PageState::writing);
}
std::uint64_t PagedSpillStore::n_on_nvme() const {
  return pages_.n(PageState::writing) + pages_.n(PageState::clean) + pages_.n(PageState::stored) +
         pages_.n(PageState::reading);
}
bool PagedSpillStore::is_in_flight() const {
  return pages_.n(PageState::writing) + pages_.n(PageState::reading) > 0;
}
// A store that is given more requests than it has room for blocks.
bool PagedSpillStore::may_submit() const {
  return pages_.n(PageState::writing) + pages_.n(PageState::reading) < SpillOptions::kMaxRequests;
}

// How many of the oldest pages should be on NVMe: those for which RAM has no room now, or will have none if
// this cycle grows like the last one. In the first cycle, which nothing is known of, a quarter of RAM is kept
// ready.
std::uint64_t PagedSpillStore::n_to_write() const {
  if (!has_nvme_) return 0;  // not max_slots(): if all are retired, put() must hear of it
  std::uint64_t expected = n_live_;
  if (!is_reading_back_)
    expected = std::max(n_live_, expected_peak_ != 0 ? expected_peak_ : n_live_ + put_frames_ / 4);
  return expected > put_frames_ ? expected - put_frames_ : 0;
}

Status PagedSpillStore::write_oldest() {
  while (n_on_nvme() < n_to_write() && may_submit()) {
    const auto oldest = pages_.oldest_to_write();
    if (!oldest.has_value()) return {};
    STRATA_TRY(start_write(*oldest));
  }
  return {};
}

// A store's slots are of whole pages, but no more than the bytes of the object are written.
std::size_t PagedSpillStore::stored_bytes(const Page& page) const noexcept {
  return (page.bytes + kStoreAlign - 1) / kStoreAlign * kStoreAlign;
}

Status PagedSpillStore::start_write(PageNumber number) {
  Page& page = pages_[number];
  STRATA_TRY_ASSIGN(page.part, space_.reserve());
  const ConstBufferView from = frame_of(page).part(0, stored_bytes(page));
  auto ticket = space_.store(page.part).write_async(number, 0, from, WriteMode::replace);
  if (ticket.has_value()) {
    page.ticket = *ticket;
    pages_.set(number, PageState::writing);
    note_peaks();
  } else {
    space_.retire(page.part);
    page.write_failed = true;
    if (write_failure_.is_ok())  // else that is why the store has no slot
      write_failure_ = ticket.status().annotate(str("writing object ", page.object));
  }
  return {};
}

Status PagedSpillStore::start_read(PageNumber number) {
  Page& page = pages_[number];
  pages_.set(number, PageState::reading);
  note_peaks();
  auto ticket = space_.store(page.part).read_async(number, frame_of(page).part(0, stored_bytes(page)));
  if (ticket.has_value()) {
    page.ticket = *ticket;
    return {};
  }
  pages_.set(number, PageState::stored);
  return ticket.status();
}

// Newest first, which is the order in which backward needs them.
void PagedSpillStore::read_ahead(PageNumber below) {
  if (!has_nvme_) return;
  complete_requests();
  while (pages_.n_free_frames() > 0 && may_submit()) {
    const auto newest = pages_.newest_stored(below);
    if (!newest.has_value() || !start_read(*newest).is_ok()) return;  // get() says what is wrong
  }
}

// Pages of [from, to), in the order in which get() copies them, into free frames.
void PagedSpillStore::read_in_order(PageNumber from, PageNumber to) {
  while (pages_.n_free_frames() > 0 && may_submit()) {
    const auto next = pages_.oldest_stored(from, to);
    if (!next.has_value() || !start_read(*next).is_ok()) return;  // get() says what is wrong
  }
}

// The page that get() copies next and some after it, for which the frames of others are taken: of those that
// are needed last, or were copied.
void PagedSpillStore::read_next(PageNumber number, PageNumber end) {
  const PageNumber to = std::min(end, number + read_frames_);
  for (PageNumber from = number; may_submit();) {
    const auto next = pages_.oldest_stored(from, to);
    if (!next.has_value()) return;
    from = *next + 1;
    if (pages_.n_free_frames() == 0) {
      complete_requests();
      const auto other = pages_.clean_outside(number, to);
      if (!other.has_value()) return;
      pages_.set(*other, PageState::stored);
    }
    if (!start_read(*next).is_ok()) return;  // await_page() says what is wrong
  }
}

void PagedSpillStore::complete_requests() {
  const std::set<PageNumber>& writing = pages_.numbers(PageState::writing);
  const std::set<PageNumber>& reading = pages_.numbers(PageState::reading);
  // Writes are submitted oldest first, reads newest first, or oldest first for an object that is got.
  while (!writing.empty() && complete_request(*writing.begin())) {
  }
  while (!reading.empty() && complete_request(*reading.rbegin())) {
  }
  while (!reading.empty() && complete_request(*reading.begin())) {
  }
}

// Whether the request of a page had ended.
bool PagedSpillStore::complete_request(PageNumber number) {
  Page& page = pages_[number];
  ObjectStore& store = space_.store(page.part);
  if (!timeout_.is_ok() || !store.wait_for(page.ticket, 0)) return false;
  const Status outcome = store.wait(page.ticket);
  if (outcome.code() == Code::timeout) {  // the kernel may still use the frame
    timeout_ = outcome;
    changed_.notify_all();
    return false;
  }
  page.ticket = {};
  if (page.state == PageState::reading) {
    pages_.set(number, outcome.is_ok() ? PageState::clean : PageState::stored);
  } else if (outcome.is_ok()) {
    pages_.set(number, PageState::clean);
  } else {
    pages_.set(number, PageState::dirty);
    space_.retire(page.part);
    page.write_failed = true;
    write_failure_ = outcome.annotate(str("writing object ", page.object));
  }
  if (page.is_dead) release_page(number);
  changed_.notify_all();
  return true;
}

// Waits for one of the requests in flight; the store serves each direction in order.
void PagedSpillStore::await_request() {
  const PageState state = pages_.n(PageState::writing) > 0 ? PageState::writing : PageState::reading;
  const PageNumber number = *pages_.numbers(state).begin();
  const Page& page = pages_[number];
  const IoTicket ticket = page.ticket;
  ObjectStore& store = space_.store(page.part);
  mutex_.unlock();
  (void)store.wait(ticket);  // complete_request() sees the outcome
  mutex_.lock();
  complete_requests();
}

// Removes a page, or lets the end of its request or its last reader do so.
void PagedSpillStore::release_page(PageNumber number) {
  Page& page = pages_[number];
  if (page.ticket.valid() || page.readers > 0) {
    page.is_dead = true;
    return;
  }
  if (page.state == PageState::clean || page.state == PageState::stored) {
    space_.store(page.part).discard(number);
    space_.give_back(page.part);
  }
  pages_.remove(number);
}

}  // namespace strata::detail
