#include "backend/host/happens_before.h"

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

// Maximum number of event clocks kept per stream while the host waits for none of them. An older event is
// looked up as the oldest one kept, which can hide a bug but never reports a false one.
constexpr std::size_t kMaxSnapshots = 65536;

std::string_view verb(const Access& access) { return access.write ? "writes " : "reads "; }

}  // namespace

void HappensBefore::join(VectorClock& into, const VectorClock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool HappensBefore::covers(const VectorClock& clock, const Site& site) {
  const auto i = static_cast<std::size_t>(site.stream);
  return i < clock.size() && clock[i] >= site.sequence;
}

void HappensBefore::drop_covered(std::vector<Site>& sites, const VectorClock& clock) {
  std::erase_if(sites, [&](const Site& site) { return covers(clock, site); });
}

void HappensBefore::open_stream(int stream, StreamRole role) {
  const MutexLock lock(mutex_);
  if (streams_.size() <= static_cast<std::size_t>(stream))
    streams_.resize(static_cast<std::size_t>(stream) + 1);
  streams_[static_cast<std::size_t>(stream)].role = role;
}

HappensBefore::VectorClock& HappensBefore::tick(int stream, std::uint64_t sequence) {
  const auto i = static_cast<std::size_t>(stream);
  VectorClock& clock = streams_[i].clock;
  join(clock, host_);
  if (clock.size() <= i) clock.resize(i + 1, 0);
  clock[i] = sequence;
  return clock;
}

const HappensBefore::VectorClock* HappensBefore::snapshot_of(const Event& event) {
  const std::deque<Snapshot>& events = streams_[static_cast<std::size_t>(event.stream)].events;
  const auto it = std::lower_bound(
      events.begin(), events.end(), event.sequence,
      [](const Snapshot& snapshot, std::uint64_t sequence) { return snapshot.sequence < sequence; });
  return it == events.end() ? nullptr : &it->clock;
}

void HappensBefore::recorded(const Event& event) {
  const MutexLock lock(mutex_);
  StreamClock& stream = streams_[static_cast<std::size_t>(event.stream)];
  if (event.sequence == 0 || (!stream.events.empty() && stream.events.back().sequence == event.sequence))
    return;
  if (stream.events.size() == kMaxSnapshots) stream.events.pop_front();
  stream.events.push_back({event.sequence, stream.clock});
}

void HappensBefore::waits(int stream, std::uint64_t sequence, const Event& event) {
  const MutexLock lock(mutex_);
  VectorClock& clock = tick(stream, sequence);
  if (const VectorClock* seen = snapshot_of(event)) join(clock, *seen);
}

void HappensBefore::host_waited(const Event& event) {
  if (event.stream < 0) return;
  const MutexLock lock(mutex_);
  if (const VectorClock* seen = snapshot_of(event)) join(host_, *seen);
  // Work queued from here on is ordered after these events anyway.
  const auto i = static_cast<std::size_t>(event.stream);
  std::deque<Snapshot>& events = streams_[i].events;
  while (!events.empty() && i < host_.size() && events.front().sequence <= host_[i]) events.pop_front();
}

const HappensBefore::Site* HappensBefore::conflict(const Access& access, const VectorClock& clock) {
  const std::byte* const end = access.data + access.bytes;
  auto it = segments_.upper_bound(access.data);
  if (it != segments_.begin()) --it;
  for (; it != segments_.end() && it->first < end; ++it) {
    Segment& segment = it->second;
    if (segment.end <= access.data) continue;
    if (segment.writer.stream >= 0 && !covers(clock, segment.writer)) return &segment.writer;
    if (!access.write) continue;
    for (const Site& reader : segment.readers)
      if (!covers(clock, reader)) return &reader;
  }
  return nullptr;
}

void HappensBefore::split_at(const std::byte* at) {
  auto it = segments_.upper_bound(at);
  if (it == segments_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  Segment rest = it->second;
  it->second.end = at;
  segments_.emplace(at, std::move(rest));
}

void HappensBefore::remember(const Site& site) {
  const std::byte* const begin = site.access.data;
  const std::byte* const end = begin + site.access.bytes;
  split_at(begin);
  split_at(end);
  if (site.access.write) {  // earlier accesses are ordered before this write, or were reported
    segments_.erase(segments_.lower_bound(begin), segments_.lower_bound(end));
    segments_[begin] = Segment{end, site, {}};
    return;
  }
  const std::byte* at = begin;
  for (auto it = segments_.lower_bound(begin); at < end; ++it) {
    if (it == segments_.end() || it->first > at) {
      const std::byte* const gap_end = it == segments_.end() ? end : std::min(end, it->first);
      it = segments_.emplace(at, Segment{gap_end, {}, {}}).first;
    }
    std::vector<Site>& readers = it->second.readers;
    const auto same =
        std::find_if(readers.begin(), readers.end(), [&](const Site& r) { return r.stream == site.stream; });
    if (same == readers.end())
      readers.push_back(site);
    else
      *same = site;
    at = it->second.end;
  }
}

void HappensBefore::drop_host_covered_records() {
  for (auto it = segments_.begin(); it != segments_.end();) {
    Segment& segment = it->second;
    if (segment.writer.stream >= 0 && covers(host_, segment.writer)) segment.writer = Site{};
    drop_covered(segment.readers, host_);
    it = segment.writer.stream < 0 && segment.readers.empty() ? segments_.erase(it) : std::next(it);
  }
  sweep_at_ = std::max<std::size_t>(1024, 2 * segments_.size());
}

std::string HappensBefore::describe(const Site& site) {
  return str(site.label, " on ", to_string(streams_[static_cast<std::size_t>(site.stream)].role), " stream ",
             site.stream, " (entry ", site.sequence, ") ", verb(site.access),
             memory_.describe(site.access.data, site.access.bytes));
}

Status HappensBefore::check_allocation(const char* label, const Access& access) const {
  const std::optional<Allocation> allocation = memory_.find(access.data);
  if (!allocation) return {};
  if (allocation->freed)
    return Status::error(
        Code::internal,
        str(label, " ", verb(access), memory_.describe(access.data, access.bytes), ", which was freed"));
  if (access.data + access.bytes > allocation->data + allocation->bytes)
    return Status::error(Code::internal,
                         str(label, " ", verb(access), memory_.describe(access.data, access.bytes),
                             ", past its end at ", allocation->bytes));
  return {};
}

Status HappensBefore::queued(int stream, std::uint64_t sequence, const char* label,
                             std::span<const Access> accesses) {
  const MutexLock lock(mutex_);
  const VectorClock& clock = tick(stream, sequence);
  Status verdict;
  for (const Access& access : accesses) {
    const Site site{stream, sequence, label, access};
    if (verdict.is_ok()) verdict = check_allocation(label, access);
    const Site* const other = verdict.is_ok() ? conflict(access, clock) : nullptr;
    if (other != nullptr)
      verdict = Status::error(Code::internal, str("no event orders these accesses: ", describe(*other),
                                                  "; then ", describe(site)));
  }
  for (const Access& access : accesses) remember({stream, sequence, label, access});
  if (segments_.size() >= sweep_at_) drop_host_covered_records();
  return verdict;
}

Status HappensBefore::host_access(const Access& access) {
  if (access.bytes == 0) return {};
  const MutexLock lock(mutex_);
  STRATA_TRY(check_allocation("the host", access));
  const Site* const other = conflict(access, host_);
  if (other == nullptr) return {};
  return Status::error(Code::internal, str("the host did not wait: ", describe(*other), "; then the host ",
                                           verb(access), memory_.describe(access.data, access.bytes)));
}

HappensBefore::Pending HappensBefore::freed(BufferView view) {
  const MutexLock lock(mutex_);
  Pending pending;
  if (const Site* const other = conflict({view.data, view.bytes, true}, host_)) {
    pending.site = {other->stream, other->sequence};
    pending.error =
        Status::error(Code::internal, str(memory_.describe(view.data, view.bytes), " is freed while ",
                                          describe(*other), " and has not been waited for"));
  }
  split_at(view.data);
  split_at(view.data + view.bytes);
  segments_.erase(segments_.lower_bound(view.data), segments_.lower_bound(view.data + view.bytes));
  return pending;
}

std::size_t HappensBefore::records() {
  const MutexLock lock(mutex_);
  return segments_.size();
}

}  // namespace strata::detail
