#include "trace/note_spans.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace strata::detail {
namespace {

constexpr std::int32_t kStoreQueue = -2;  // Trace::Work::kStore

std::tuple<std::int32_t, std::uint64_t, std::int64_t> place_of(const RankTrace::Span& span) {
  return {span.queue, span.work, span.begin_ns};
}

}  // namespace

NoteSpans::NoteSpans(const RankTrace& trace) : trace_(trace), by_work_(trace.spans.size()) {
  for (const RankTrace::Note& note : trace.notes)
    if (note.what == RankTrace::What::plan) plans_ns_.push_back(note.at_ns);
  std::iota(by_work_.begin(), by_work_.end(), std::size_t{0});
  std::sort(by_work_.begin(), by_work_.end(), [&](std::size_t a, std::size_t b) {
    return place_of(trace.spans[a]) < place_of(trace.spans[b]);
  });
}

// How many plans had begun by then.
std::size_t NoteSpans::plan_at(std::int64_t ns) const {
  return static_cast<std::size_t>(std::upper_bound(plans_ns_.begin(), plans_ns_.end(), ns) -
                                  plans_ns_.begin());
}

std::vector<std::size_t> NoteSpans::of(const RankTrace::Note& note) const {
  if (note.last == note.after) return {};
  const auto before = [&](std::size_t span, std::uint64_t number) {
    const RankTrace::Span& at = trace_.spans[span];
    return at.queue != note.queue ? at.queue < note.queue : at.work < number;
  };
  const auto first = std::lower_bound(by_work_.begin(), by_work_.end(), note.after + 1, before);
  const auto end = std::lower_bound(first, by_work_.end(), note.last + 1, before);
  if (note.queue != kStoreQueue) return {first, end};
  // A run that changed its budgets had a store for each plan, each of which counted from 1.
  std::vector<std::size_t> found;
  for (auto at = first; at != end; ++at)
    if (plan_at(trace_.spans[*at].begin_ns) == plan_at(note.at_ns)) found.push_back(*at);
  return found;
}

bool NoteSpans::may_be_lost(const RankTrace::Note& note) const {
  const auto of_queue = [&](std::size_t span, std::int32_t queue) {
    return trace_.spans[span].queue < queue;
  };
  const auto first = std::lower_bound(by_work_.begin(), by_work_.end(), note.queue, of_queue);
  if (first == by_work_.end() || trace_.spans[*first].queue != note.queue) return true;
  const RankTrace::Span& kept = trace_.spans[*first];
  return trace_.lanes[static_cast<std::size_t>(kept.lane)].dropped > 0 && note.after < kept.work;
}

}  // namespace strata::detail
