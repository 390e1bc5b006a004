#include "spill/page_table.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/assert.h>

namespace strata::detail {

PageTable::PageTable(std::uint32_t n_frames) : n_frames_(n_frames) {
  free_.reserve(n_frames);
  for (FrameIndex frame = n_frames; frame > 0; --frame) free_.push_back(frame - 1);
}

Page& PageTable::add(PageNumber number, std::uint64_t object, std::uint32_t bytes) {
  STRATA_ASSERT(!free_.empty(), "a page is added without a free frame", number);
  of(PageState::copying).insert(number);
  Page& page = pages_[number];
  page.object = object;
  page.bytes = bytes;
  page.frame = free_.back();
  free_.pop_back();
  return page;
}

void PageTable::remove(PageNumber number) {
  const auto found = pages_.find(number);
  STRATA_ASSERT(found != pages_.end(), "a page is removed that is not there", number);
  if (found->second.frame != kNoFrame) free_.push_back(found->second.frame);
  of(found->second.state).erase(number);
  pages_.erase(found);
}

Page* PageTable::find(PageNumber number) {
  const auto found = pages_.find(number);
  return found == pages_.end() ? nullptr : &found->second;
}

Page& PageTable::operator[](PageNumber number) {
  Page* const page = find(number);
  STRATA_ASSERT(page != nullptr, "there is no such page", number);
  return *page;
}

void PageTable::set(PageNumber number, PageState to) {
  Page& page = (*this)[number];
  STRATA_ASSERT(is_valid_transition(page.state, to), "an illegal transition of a page", number,
                static_cast<int>(page.state), static_cast<int>(to));
  of(to).insert(of(page.state).extract(number));
  page.state = to;
  if (to == PageState::reading) {
    STRATA_ASSERT(!free_.empty(), "a page is read without a free frame", number);
    page.frame = free_.back();
    free_.pop_back();
  } else if (to == PageState::stored) {
    free_.push_back(page.frame);
    page.frame = kNoFrame;
  }
}

std::optional<PageNumber> PageTable::oldest_to_write() const {
  for (const PageNumber number : numbers(PageState::dirty))
    if (!pages_.at(number).write_failed) return number;
  return std::nullopt;
}

std::optional<PageNumber> PageTable::oldest_to_drop() const {
  for (const PageNumber number : numbers(PageState::clean))
    if (pages_.at(number).readers == 0) return number;
  return std::nullopt;
}

std::optional<PageNumber> PageTable::clean_outside(PageNumber from, PageNumber to) const {
  const std::optional<PageNumber> oldest = oldest_to_drop();
  if (!oldest.has_value() || *oldest < from) return oldest;
  const std::set<PageNumber>& clean = numbers(PageState::clean);
  for (auto at = clean.rbegin(); at != clean.rend() && *at >= to; ++at)
    if (pages_.at(*at).readers == 0) return *at;
  return std::nullopt;
}

std::optional<PageNumber> PageTable::newest_stored(PageNumber below) const {
  const std::set<PageNumber>& stored = numbers(PageState::stored);
  const auto after = stored.lower_bound(below);
  if (after == stored.begin()) return std::nullopt;
  return *std::prev(after);
}

std::optional<PageNumber> PageTable::oldest_stored(PageNumber from, PageNumber to) const {
  const std::set<PageNumber>& stored = numbers(PageState::stored);
  const auto found = stored.lower_bound(from);
  if (found == stored.end() || *found >= to) return std::nullopt;
  return *found;
}

bool PageTable::forget_failed_writes() {
  bool any = false;
  for (const PageNumber number : numbers(PageState::dirty))
    any |= std::exchange(pages_.at(number).write_failed, false);
  return any;
}

}  // namespace strata::detail
