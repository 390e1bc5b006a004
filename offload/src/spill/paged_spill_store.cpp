// The calls of SpillStore. Requests to NVMe are in spill_requests.cpp.
#include "spill/paged_spill_store.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <strata/offload/placement_request.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "store/store_files.h"

namespace strata {
namespace {

// Small enough that the rest of an object's last page is little, and large enough for the device.
std::size_t choose_page_bytes(std::uint64_t pinned_bytes) {
  std::size_t bytes = detail::kStoreAlign;
  while (bytes < 512 * kKiB && bytes < pinned_bytes / 1024) bytes *= 2;
  return bytes;
}

}  // namespace

Result<std::unique_ptr<SpillStore>> SpillStore::create(Backend& backend, SpillOptions options) {
  const std::size_t page_bytes =
      options.page_bytes != 0 ? options.page_bytes : choose_page_bytes(options.pinned_bytes);
  if (page_bytes % detail::kStoreAlign != 0 || page_bytes > kGiB)
    return Status::error(Code::invalid, str("page_bytes is ", page_bytes, "; it must be a multiple of ",
                                            detail::kStoreAlign, " up to 1 GiB"));
  const std::uint64_t n_frames = options.pinned_bytes / page_bytes;
  if (n_frames < 2 || n_frames > std::numeric_limits<std::uint32_t>::max() - 1)
    return Status::error(Code::invalid, str("pinned_bytes is ", options.pinned_bytes, ", which is ", n_frames,
                                            " pages of ", page_bytes, " bytes; it must be 2 to 2^32 - 2"));
  if (!options.open_store) options.nvme_bytes = 0;
  if (options.nvme_bytes > 0 && options.nvme_bytes < page_bytes)
    return Status::error(Code::invalid, str("nvme_bytes is ", options.nvme_bytes,
                                            ", which is less than a page of ", page_bytes, " bytes"));
  STRATA_TRY_ASSIGN(Buffer memory,
                    backend.allocate(MemoryKind::pinned, static_cast<std::size_t>(n_frames) * page_bytes));
  return std::unique_ptr<SpillStore>(new detail::PagedSpillStore(std::move(memory), options, page_bytes,
                                                                 static_cast<std::uint32_t>(n_frames)));
}

}  // namespace strata

namespace strata::detail {
namespace {

std::uint32_t frames_for_reading(std::uint32_t n_frames, bool has_nvme) {
  return has_nvme ? std::clamp(n_frames / 16, 1u, 8u) : 0;
}

}  // namespace

PagedSpillStore::PagedSpillStore(Buffer memory, const SpillOptions& options, std::size_t page_bytes,
                                 std::uint32_t n_frames)
    : memory_(std::move(memory)),
      page_bytes_(page_bytes),
      has_nvme_(options.nvme_bytes >= page_bytes),
      read_frames_(frames_for_reading(n_frames, has_nvme_)),
      put_frames_(n_frames - read_frames_),
      space_(options, page_bytes, n_frames, memory_.view()),
      pages_(n_frames) {}

PagedSpillStore::~PagedSpillStore() {
  const MutexLock lock(mutex_);
  if (!space_.drain()) memory_.abandon();  // as the store is
}

BufferView PagedSpillStore::frame_of(const Page& page) const noexcept {
  return memory_.view().part(page.frame * page_bytes_, page_bytes_);
}

Result<PagedSpillStore::Object> PagedSpillStore::find(std::uint64_t id) const {
  const auto found = objects_.find(id);
  if (found == objects_.end())
    return Status::error(Code::not_found, str("there is no object ", id, ", or it was discarded"));
  return found->second;
}

void PagedSpillStore::note_peaks() {
  stats_.peak_pinned_bytes =
      std::max<std::uint64_t>(stats_.peak_pinned_bytes, pages_.n_used_frames() * page_bytes_);
  stats_.peak_nvme_bytes = std::max(stats_.peak_nvme_bytes, space_.n_used() * page_bytes_);
}

Result<std::uint64_t> PagedSpillStore::admit(Object& object) {
  STRATA_TRY(timeout_);
  const std::uint64_t id = ++last_id_;
  const std::uint64_t n_free = max_pages() - std::min(max_pages(), n_live_);
  // The object would fit if no slots were retired.
  if (object.n_pages > n_free && object.n_pages <= n_free + space_.n_retired())
    return write_failure_.annotate(str("making room for object ", id));
  if (object.n_pages > n_free)
    return Status::error(
        Code::does_not_fit,
        str("object ", id, " of ", object.bytes, " bytes needs ",
            std::max(object.bytes, object.n_pages * page_bytes_),  // which may overflow
            " bytes, but ", n_free * page_bytes_, " of ", max_pages() * page_bytes_,
            " are free: ", put_frames_ * page_bytes_, " in RAM and ", space_.max_slots() * page_bytes_,
            " on NVMe, of which ", objects_.size(), " objects use ", n_live_ * page_bytes_));
  object.first = next_page_;
  next_page_ += object.n_pages;
  n_live_ += object.n_pages;
  cycle_peak_ = std::max(cycle_peak_, n_live_);
  return id;
}

Result<std::uint64_t> PagedSpillStore::put(ConstBufferView bytes) {
  if (bytes.bytes == 0 || bytes.data == nullptr)
    return Status::error(Code::invalid, "an object must have at least a byte");
  Object object;
  object.bytes = bytes.bytes;
  object.n_pages = bytes.bytes / page_bytes_ + (bytes.bytes % page_bytes_ != 0 ? 1 : 0);
  std::uint64_t id = 0;
  {
    const MutexLock lock(mutex_);
    STRATA_TRY_ASSIGN(id, admit(object));
  }
  const Status copied = copy_in(id, object, bytes.data);
  const MutexLock lock(mutex_);
  if (!copied.is_ok()) {
    release(object);
    return copied;
  }
  objects_.emplace(id, object);
  return id;
}

Status PagedSpillStore::copy_in(std::uint64_t id, const Object& object, const std::byte* from) {
  for (std::uint64_t i = 0; i < object.n_pages; ++i) {
    const std::size_t at = i * page_bytes_, n = std::min<std::size_t>(page_bytes_, object.bytes - at);
    const PageNumber number = object.first + i;
    BufferView frame;
    {
      const MutexLock lock(mutex_);
      STRATA_TRY(make_room(id));
      frame = frame_of(pages_.add(number, id, static_cast<std::uint32_t>(n)));
      note_peaks();
    }
    std::memcpy(frame.data, from + at, n);
    // The file gets bytes beyond the object, which must not be those of another object.
    std::memset(frame.data + n, 0, (kStoreAlign - n % kStoreAlign) % kStoreAlign);
    const MutexLock lock(mutex_);
    pages_.set(number, PageState::dirty);
    changed_.notify_all();
    (void)write_oldest();  // ahead of need: if it fails, make_room() or the next call says so
  }
  return {};
}

// Until there is a free frame that put() may take.
Status PagedSpillStore::make_room(std::uint64_t id) {
  for (;;) {
    complete_requests();
    STRATA_TRY(timeout_);
    if (n_owned() < put_frames_) {
      if (pages_.n_free_frames() > 0) return {};
      if (const auto clean = pages_.oldest_to_drop()) {
        pages_.set(*clean, PageState::stored);
        return {};
      }
    }
    const Status writing = write_oldest();
    if (is_in_flight()) {
      await_request();
      continue;
    }
    const bool can_write = pages_.n(PageState::dirty) == 0 || pages_.oldest_to_write().has_value();
    if (!writing.is_ok() || !can_write) {
      // A failed write is why there is no room, also if no slot is left. The next put() tries again.
      const bool has_failed = pages_.forget_failed_writes();
      return (has_failed ? write_failure_ : writing).annotate(str("making room for object ", id));
    }
    changed_.wait(mutex_);  // other threads are copying
  }
}

Status PagedSpillStore::get(std::uint64_t id, BufferView into) {
  Object object;
  {
    const MutexLock lock(mutex_);
    STRATA_TRY_ASSIGN(object, find(id));
    if (into.bytes != object.bytes)
      return Status::error(Code::invalid, str("object ", id, " has ", object.bytes,
                                              " bytes, but the memory to copy it to has ", into.bytes));
    ++stats_.n_gets;
    is_reading_back_ = true;
    last_read_ = object.first;
    complete_requests();
    read_in_order(object.first, object.end());
    read_ahead(object.first);
  }
  bool was_late = false;
  for (std::uint64_t i = 0; i < object.n_pages; ++i) {
    STRATA_TRY_ASSIGN(const bool waited,
                      copy_out(id, object.first + i, object.end(), into.data + i * page_bytes_));
    was_late |= waited;
  }
  const MutexLock lock(mutex_);
  if (was_late) ++stats_.n_late_gets;
  read_ahead(object.first);
  return {};
}

// Whether it had to wait for NVMe.
Result<bool> PagedSpillStore::copy_out(std::uint64_t id, PageNumber number, PageNumber end, std::byte* into) {
  ConstBufferView frame;
  bool waited = false;
  {
    const MutexLock lock(mutex_);
    read_next(number, end);
    STRATA_TRY(await_page(id, number, waited));
    Page& page = pages_[number];
    ++page.readers;
    frame = frame_of(page);
    frame.bytes = page.bytes;
  }
  std::memcpy(into, frame.data, frame.bytes);
  const MutexLock lock(mutex_);
  Page& page = pages_[number];
  --page.readers;
  if (page.is_dead) release_page(number);
  changed_.notify_all();
  return waited;
}

// Until the page is in a frame.
Status PagedSpillStore::await_page(std::uint64_t id, PageNumber number, bool& waited) {
  for (;;) {
    complete_requests();
    STRATA_TRY(timeout_);
    Page* const page = pages_.find(number);
    if (page == nullptr || page->is_dead)
      return Status::error(Code::not_found, str("object ", id, " was discarded while it was read"));
    if (page->state == PageState::reading) {
      waited = true;
      const IoTicket ticket = page->ticket;
      ObjectStore& store = space_.store(page->part);
      mutex_.unlock();
      const Status outcome = store.wait(ticket);
      mutex_.lock();
      // complete_requests() may not see it yet. If the ticket is another one, someone else has completed it.
      const Page* const waited_for = pages_.find(number);
      if (waited_for != nullptr && waited_for->ticket == ticket) (void)complete_request(number);
      if (!outcome.is_ok()) return outcome.annotate(str("reading object ", id));
    } else if (page->state == PageState::stored) {
      // Someone else may take its frame between its arrival and now, but not for ever.
      waited = true;
      STRATA_TRY(read_now(number).annotate(str("reading object ", id)));
    } else {
      return {};
    }
  }
}

// Begins to read a page, as soon as there is a frame for it.
Status PagedSpillStore::read_now(PageNumber number) {
  if (may_submit()) {
    if (pages_.n_free_frames() == 0)
      if (const auto clean = pages_.oldest_to_drop()) pages_.set(*clean, PageState::stored);
    if (pages_.n_free_frames() > 0) return start_read(number);
  }
  if (is_in_flight())
    await_request();
  else
    changed_.wait(mutex_);  // other threads are copying from all frames that could be used
  return {};
}

Status PagedSpillStore::prefetch(std::uint64_t id) {
  const MutexLock lock(mutex_);
  STRATA_TRY_ASSIGN(const Object object, find(id));
  complete_requests();
  read_in_order(object.first, object.end());
  return {};
}

Status PagedSpillStore::discard(std::uint64_t id) {
  const MutexLock lock(mutex_);
  STRATA_TRY_ASSIGN(const Object object, find(id));
  objects_.erase(id);
  release(object);
  if (is_reading_back_) read_ahead(last_read_);
  return {};
}

void PagedSpillStore::release(const Object& object) {
  complete_requests();
  for (PageNumber number = object.first; number < object.end(); ++number)
    if (pages_.find(number) != nullptr) release_page(number);
  n_live_ -= object.n_pages;
  if (n_live_ == 0) {
    expected_peak_ = std::exchange(cycle_peak_, 0);
    is_reading_back_ = false;
  }
  changed_.notify_all();
}

SpillStats PagedSpillStore::stats() {
  const MutexLock lock(mutex_);
  complete_requests();
  SpillStats stats = stats_;
  stats.n_objects = objects_.size();
  for (const auto& [id, object] : objects_) stats.object_bytes += object.bytes;
  stats.pinned_bytes = pages_.n_used_frames() * page_bytes_;
  stats.nvme_bytes = space_.n_used() * page_bytes_;
  const NvmeCounters counters = space_.counters();
  stats.nvme_read_bytes = counters.bytes_read;
  stats.nvme_written_bytes = counters.bytes_written;
  stats.nvme_read_busy_ns = counters.read_busy_ns;
  stats.nvme_write_busy_ns = counters.write_busy_ns;
  return stats;
}

}  // namespace strata::detail
