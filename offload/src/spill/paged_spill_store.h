#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include <strata/offload/spill_store.h>
#include <strata/runtime/thread_annotations.h>

#include "spill/page_table.h"
#include "spill/spill_space.h"

namespace strata::detail {

/// The SpillStore: objects are cut into pages, which move alone. Copies run without the lock, on pages that
/// cannot leave their frames meanwhile; whoever needs a request to end waits for it without the lock and then
/// looks again.
class PagedSpillStore final : public SpillStore {
 public:
  PagedSpillStore(Buffer memory, const SpillOptions& options, std::size_t page_bytes, std::uint32_t n_frames);
  ~PagedSpillStore() override;

  Result<std::uint64_t> put(ConstBufferView bytes) override STRATA_EXCLUDES(mutex_);
  Status get(std::uint64_t id, BufferView into) override STRATA_EXCLUDES(mutex_);
  Status prefetch(std::uint64_t id) override STRATA_EXCLUDES(mutex_);
  Status discard(std::uint64_t id) override STRATA_EXCLUDES(mutex_);
  SpillStats stats() override STRATA_EXCLUDES(mutex_);

 private:
  struct Object {
    PageNumber first = 0;
    std::uint64_t n_pages = 0;
    std::uint64_t bytes = 0;
    PageNumber end() const noexcept { return first + n_pages; }
  };

  Result<std::uint64_t> admit(Object& object) STRATA_REQUIRES(mutex_);
  Status copy_in(std::uint64_t id, const Object& object, const std::byte* from) STRATA_EXCLUDES(mutex_);
  Status make_room(std::uint64_t id) STRATA_REQUIRES(mutex_);
  Result<bool> copy_out(std::uint64_t id, PageNumber number, PageNumber end, std::byte* into)
      STRATA_EXCLUDES(mutex_);
  Status await_page(std::uint64_t id, PageNumber number, bool& waited) STRATA_REQUIRES(mutex_);
  Status read_now(PageNumber number) STRATA_REQUIRES(mutex_);

  std::uint64_t n_owned() const STRATA_REQUIRES(mutex_);
  std::uint64_t n_on_nvme() const STRATA_REQUIRES(mutex_);
  std::uint64_t max_pages() const STRATA_REQUIRES(mutex_) { return put_frames_ + space_.max_slots(); }
  bool is_in_flight() const STRATA_REQUIRES(mutex_);
  bool may_submit() const STRATA_REQUIRES(mutex_);
  std::uint64_t n_to_write() const STRATA_REQUIRES(mutex_);

  Status write_oldest() STRATA_REQUIRES(mutex_);
  Status start_write(PageNumber number) STRATA_REQUIRES(mutex_);
  Status start_read(PageNumber number) STRATA_REQUIRES(mutex_);
  void read_ahead(PageNumber below) STRATA_REQUIRES(mutex_);
  void read_in_order(PageNumber from, PageNumber to) STRATA_REQUIRES(mutex_);
  void read_next(PageNumber number, PageNumber end) STRATA_REQUIRES(mutex_);
  void complete_requests() STRATA_REQUIRES(mutex_);
  bool complete_request(PageNumber number) STRATA_REQUIRES(mutex_);
  void await_request() STRATA_REQUIRES(mutex_);

  void release(const Object& object) STRATA_REQUIRES(mutex_);
  void release_page(PageNumber number) STRATA_REQUIRES(mutex_);
  Result<Object> find(std::uint64_t id) const STRATA_REQUIRES(mutex_);
  BufferView frame_of(const Page& page) const noexcept;
  std::size_t stored_bytes(const Page& page) const noexcept;
  void note_peaks() STRATA_REQUIRES(mutex_);

  Buffer memory_;  // outlives the stores of space_, whose requests use it
  const std::size_t page_bytes_;
  const bool has_nvme_;
  const std::uint32_t read_frames_;  // so that reading is possible while all others are full
  const std::uint32_t put_frames_;   // frames for pages that are not on NVMe

  mutable Mutex mutex_;
  Condition changed_;  // a frame may have become free, or a request was completed
  SpillSpace space_ STRATA_GUARDED_BY(mutex_);
  PageTable pages_ STRATA_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Object> objects_ STRATA_GUARDED_BY(mutex_);
  std::uint64_t last_id_ STRATA_GUARDED_BY(mutex_) = 0;
  PageNumber next_page_ STRATA_GUARDED_BY(mutex_) = 0;
  std::uint64_t n_live_ STRATA_GUARDED_BY(mutex_) = 0;  // pages of objects, also of those that put() copies

  // A cycle ends when there are no objects; its largest number of pages is what the next one is expected to
  // have.
  std::uint64_t cycle_peak_ STRATA_GUARDED_BY(mutex_) = 0;
  std::uint64_t expected_peak_ STRATA_GUARDED_BY(mutex_) = 0;
  bool is_reading_back_ STRATA_GUARDED_BY(mutex_) = false;  // the cycle had its first get()
  PageNumber last_read_ STRATA_GUARDED_BY(mutex_) = 0;      // the first page of the last object that was got

  Status write_failure_ STRATA_GUARDED_BY(mutex_);  // the last one
  Status timeout_ STRATA_GUARDED_BY(mutex_);        // a request never ends; every call fails
  SpillStats stats_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::detail
