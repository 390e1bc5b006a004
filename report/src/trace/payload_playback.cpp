#include "trace/payload_playback.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "trace/note_spans.h"

namespace strata::detail {
namespace {

using What = RankTrace::What;
using Place = RankTrace::Place;
using PayloadChunk = std::pair<int, std::int64_t>;

constexpr std::string_view kTierLetters = "dpn";
constexpr std::size_t kMaxChanges = 20000;

std::size_t at(Place place) { return static_cast<std::size_t>(place); }

/// A copy that begins or ceases to exist, or a move that begins or ends.
struct Moment {
  std::int64_t ns = 0;
  char letter = '-';  ///< the letter of a tier, or of a move
  bool on = false;
};

/// The events of a payload of a chunk.
class PayloadStory {
 public:
  /// Copies that were there before the first note of them.
  void exists(Place place) {
    if (!known_[at(place)].has_value()) known_[at(place)] = true;
  }
  void begins(Place place, std::int64_t ns) { add(place, ns, true); }
  void ends(Place place, std::int64_t ns) {
    exists(place);
    add(place, std::max(ns, busy_ns_[at(place)]), false);
  }
  void works(Place place, std::int64_t until_ns) {
    busy_ns_[at(place)] = std::max(busy_ns_[at(place)], until_ns);
  }
  void moves(char letter, Place from, Place to, const RankTrace::Span* span, std::int64_t note_ns) {
    exists(from);
    if (span == nullptr) return begins(to, note_ns);
    works(from, span->end_ns);
    moments_.push_back({span->begin_ns, letter, true});
    moments_.push_back({span->end_ns, letter, false});
    begins(to, span->end_ns);
  }
  bool was_there(Place place, bool is_home) const { return known_[at(place)].value_or(is_home); }
  std::vector<Moment> by_time() const {
    std::vector<Moment> sorted = moments_;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Moment& a, const Moment& b) { return a.ns < b.ns; });
    return sorted;
  }

 private:
  // The copies of a tier follow each other, although what the host decides is ahead of what the lanes do.
  void add(Place place, std::int64_t ns, bool on) {
    if (!known_[at(place)].has_value()) known_[at(place)] = false;
    last_ns_[at(place)] = std::max(last_ns_[at(place)], ns);
    moments_.push_back({last_ns_[at(place)], kTierLetters[at(place)], on});
  }

  std::vector<Moment> moments_;
  std::array<std::optional<bool>, 3> known_;  // whether the copy was there before the first note of it
  std::array<std::int64_t, 3> busy_ns_{}, last_ns_{};
};

using Stories = std::map<PayloadChunk, PayloadStory>;

void tell(const RankTrace& trace, const NoteSpans& spans, const RankTrace::Note& note, Stories& stories) {
  PayloadStory& story = stories[{note.payload, note.chunk}];
  const std::vector<std::size_t> work = spans.of(note);
  const RankTrace::Span* const last = work.empty() ? nullptr : &trace.spans[work.back()];
  switch (note.what) {
    case What::plan:
      return;
    case What::read:
      return story.moves('r', Place::nvme, Place::pinned, last, note.at_ns);
    case What::write:
      return story.moves('w', Place::pinned, Place::nvme, last, note.at_ns);
    case What::copy:
      return note.place == Place::device ? story.moves('u', Place::pinned, Place::device, last, note.at_ns)
                                         : story.moves('e', Place::device, Place::pinned, last, note.at_ns);
    case What::overwrite:
      story.begins(note.place, work.empty() ? note.at_ns : trace.spans[work.front()].begin_ns);
      break;
    case What::use:
    case What::update:
      story.exists(note.place);
      break;
    case What::absent:
    case What::give:
      return story.ends(note.place, note.at_ns);
    case What::take:
      return story.begins(note.place, note.at_ns);
  }
  if (last != nullptr) story.works(note.place, last->end_ns);
}

/// The letter that is shown of a payload of a chunk: the last move that began, or else the fastest tier.
class Shown {
 public:
  void set_tier(std::size_t tier, bool there) { there_[tier] = there; }
  void pass(const Moment& moment) {
    if (const std::size_t tier = kTierLetters.find(moment.letter); tier != std::string_view::npos)
      return set_tier(tier, moment.on);
    if (moment.on)
      moves_ += moment.letter;
    else if (const std::size_t move = moves_.find(moment.letter); move != std::string::npos)
      moves_.erase(move, 1);
  }
  char letter() const {
    if (!moves_.empty()) return moves_.back();
    for (std::size_t tier = 0; tier < there_.size(); ++tier)
      if (there_[tier]) return kTierLetters[tier];
    return '-';
  }

 private:
  std::array<bool, 3> there_{};
  std::string moves_;
};

char home_of(const std::vector<RunRecord::Homes>& homes, const std::string& payload, std::int64_t chunk) {
  for (const RunRecord::Homes& of : homes)
    if (of.payload == payload && chunk < static_cast<std::int64_t>(of.tiers.size()))
      return of.tiers[static_cast<std::size_t>(chunk)];
  return '-';
}

// The notes of the plan that the step ran in.
Stories stories_of(const RankTrace& trace, const RankTrace::Step& step) {
  const NoteSpans spans(trace);
  Stories stories;
  for (const RankTrace::Note& note : trace.notes) {
    if (note.at_ns >= step.end_ns) break;
    if (note.what == What::plan)
      stories.clear();
    else
      tell(trace, spans, note, stories);
  }
  return stories;
}

/// The row of a payload, which is added if the plan has no homes of it.
int row_of(const std::string& payload, RunRecord::Playback& into) {
  for (std::size_t row = 0; row < into.begin.size(); ++row)
    if (into.begin[row].payload == payload) return static_cast<int>(row);
  into.begin.push_back({payload, {}});
  return static_cast<int>(into.begin.size()) - 1;
}

void play(const PayloadStory& story, const RankTrace::Step& step, char home, int row, std::int64_t chunk,
          RunRecord::Playback& into) {
  Shown shown;
  for (const Place place : {Place::device, Place::pinned, Place::nvme})
    shown.set_tier(at(place), story.was_there(place, kTierLetters[at(place)] == home));
  std::string& begin = into.begin[static_cast<std::size_t>(row)].tiers;
  const auto column = static_cast<std::size_t>(chunk);
  if (begin.size() <= column) begin.resize(column + 1, '-');
  begin[column] = shown.letter();
  const std::vector<Moment> moments = story.by_time();
  char before = shown.letter();
  for (std::size_t i = 0; i < moments.size() && moments[i].ns < step.end_ns; ++i) {
    shown.pass(moments[i]);
    const bool goes_on = i + 1 < moments.size() && moments[i + 1].ns == moments[i].ns;
    if (goes_on || shown.letter() == before) continue;
    before = shown.letter();
    if (moments[i].ns <= step.begin_ns)
      begin[column] = before;
    else
      into.changes.push_back(
          {static_cast<double>(moments[i].ns - step.begin_ns) * 1e-3, row, static_cast<int>(chunk), before});
  }
}

}  // namespace

RunRecord::Playback payload_playback(const RankTrace& trace, const std::vector<RunRecord::Homes>& homes) {
  RunRecord::Playback playback;
  const auto step = std::find_if(trace.steps.rbegin(), trace.steps.rend(),
                                 [](const RankTrace::Step& each) { return each.is_whole; });
  if (step == trace.steps.rend()) return playback;
  playback.step = step->step;
  playback.begin = homes;
  for (const auto& [key, story] : stories_of(trace, *step)) {
    const std::string& payload = trace.payloads[static_cast<std::size_t>(key.first)];
    play(story, *step, home_of(homes, payload, key.second), row_of(payload, playback), key.second, playback);
  }
  if (playback.changes.empty()) return {};
  std::stable_sort(playback.changes.begin(), playback.changes.end(),
                   [](const auto& a, const auto& b) { return a.us < b.us; });
  playback.us = static_cast<double>(step->end_ns - step->begin_ns) * 1e-3;
  if (playback.changes.size() > kMaxChanges) {
    playback.changes.resize(kMaxChanges);
    playback.us = playback.changes.back().us;
    playback.is_cut = true;
  }
  return playback;
}

}  // namespace strata::detail
