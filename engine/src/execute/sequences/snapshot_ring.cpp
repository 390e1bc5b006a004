#include "execute/sequences/snapshot_ring.h"

#include <algorithm>
#include <span>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata::detail {

SnapshotRing::SnapshotRing(std::size_t slots, std::int32_t per_slot)
    : per_slot_(per_slot), places_(slots * static_cast<std::size_t>(per_slot)) {}

std::int32_t SnapshotRing::find(std::int32_t slot, std::int32_t position) const noexcept {
  for (std::size_t i = first_of(slot); i < first_of(slot + 1); ++i)
    if (places_[i].position == position) return static_cast<std::int32_t>(i);
  return -1;
}

std::int32_t SnapshotRing::latest(std::int32_t slot, std::int32_t position) const noexcept {
  std::int32_t latest = 0;
  for (std::size_t i = first_of(slot); i < first_of(slot + 1); ++i)
    if (places_[i].position <= position) latest = std::max(latest, places_[i].position);
  return latest;
}

std::int32_t SnapshotRing::make_room(std::int32_t slot) noexcept {
  STRATA_ASSERT(per_slot_ > 0, "no room for a snapshot of slot ", slot);
  const std::span<Place> places = std::span(places_).subspan(first_of(slot), first_of(1));
  const auto age = [](const Place& place) { return place.position < 0 ? 0 : place.number; };
  const auto found = std::min_element(places.begin(), places.end(),
                                      [&](const Place& a, const Place& b) { return age(a) < age(b); });
  found->position = -1;
  return static_cast<std::int32_t>(&*found - places_.data());
}

void SnapshotRing::set(std::int32_t place, std::int32_t position) noexcept {
  places_[static_cast<std::size_t>(place)] = {position, ++n_taken_};
}

void SnapshotRing::drop_beyond(std::int32_t slot, std::int32_t position) noexcept {
  for (std::size_t i = first_of(slot); i < first_of(slot + 1); ++i)
    if (places_[i].position > position) places_[i].position = -1;
}

void SnapshotRing::clear() noexcept { std::fill(places_.begin(), places_.end(), Place{}); }

std::string SnapshotRing::text(std::int32_t slot) const {
  std::vector<std::int32_t> positions;
  for (std::size_t i = first_of(slot); i < first_of(slot + 1); ++i)
    if (places_[i].position >= 0) positions.push_back(places_[i].position);
  std::sort(positions.begin(), positions.end());
  std::string text;
  for (std::size_t i = 0; i < positions.size(); ++i)
    text += str(i == 0 ? "" : i + 1 == positions.size() ? " and " : ", ", positions[i]);
  return text;
}

}  // namespace strata::detail
