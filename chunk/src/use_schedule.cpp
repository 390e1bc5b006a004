#include <strata/chunk/use_schedule.h>

#include <algorithm>

namespace strata {

FirstUses::FirstUses(std::size_t n_chunks, std::span<const Use> uses, std::int32_t cycle)
    : first_(n_chunks * kPayloads, {UseSchedule::kNever, UseSchedule::kNever}), cycle_(cycle) {
  for (const Use& use : uses) {
    if (use.tier == Tier::nvme) continue;
    std::int32_t& first = first_[index_of(use.key)][index_of(use.tier)];
    first = std::min(first, use.position);
  }
}

UseSchedule::UseSchedule(std::size_t n_chunks)
    : positions_(n_chunks * kPayloads), last_used_epoch_(n_chunks * kPayloads, 0) {
  following_.reserve(16);
}

void UseSchedule::set_uses(std::span<const Use> uses, std::int32_t cycle) {
  for (auto& by_tier : positions_)
    for (Positions& positions : by_tier) positions.clear();
  for (const Use& use : uses)
    if (use.tier != Tier::nvme) positions_[index_of(use.key)][index_of(use.tier)].push_back(use.position);
  cycle_ = cycle;
  set_position(0);
}

std::int32_t UseSchedule::next_use(PayloadKey key, Tier tier) const noexcept {
  // A use at this position is pending until its pin: a payload fetched for it must not be evicted before.
  const bool made = last_used_epoch_[index_of(key)] == epoch_;
  return use_from(key, tier, made ? position_ + 1 : position_);
}

std::int32_t UseSchedule::use_from(PayloadKey key, Tier tier, std::int32_t position) const noexcept {
  const Positions& positions = positions_[index_of(key)][index_of(tier)];
  const auto next = std::lower_bound(positions.begin(), positions.end(), position);
  if (next != positions.end()) return *next;
  std::int32_t begin = cycle_;
  for (const FirstUses* const pass : following_) {
    if (const std::int32_t at = pass->of(key, tier); at != kNever && begin + at >= position)
      return begin + at;
    begin += pass->cycle();
  }
  return positions.empty() ? kNever : begin + positions.front();
}

}  // namespace strata
