#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <strata/report/run_trace.h>

#include "trace/note_spans.h"

namespace strata {
namespace {

using What = RankTrace::What;
using Place = RankTrace::Place;
using Key = std::pair<int, std::int64_t>;  // payload and chunk

/// How the contents of a copy came there: the spans that made and moved them.
struct Way {
  std::vector<std::size_t> spans;
  bool is_moved = false;  ///< the last of them is a move
  bool is_used = false;   ///< something has used the contents since
};

/// Follows the notes of a trace in order. Where the spans of a note are missing, a way begins anew.
class FlowFinder {
 public:
  explicit FlowFinder(const RankTrace& trace) : trace_(trace), spans_(trace) {}

  std::vector<PayloadFlow> find() {
    for (const RankTrace::Note& note : trace_.notes) follow(note);
    end_all();
    return std::move(flows_);
  }

 private:
  using Ways = std::array<Way, 2>;  // in device and pinned memory
  Way& way(const Key& key, Place place) { return ways_[key][place == Place::device ? 0 : 1]; }

  void follow(const RankTrace::Note& note) {
    const Key key{note.payload, note.chunk};
    const std::vector<std::size_t> spans = spans_.of(note);
    if (spans.empty() && note.last > note.after && spans_.may_be_lost(note)) {
      ways_.erase(key);  // the way would lead to later work
      return;
    }
    switch (note.what) {
      case What::plan:
        return end_all();
      case What::read:
        return arrive(key, Place::pinned, {}, spans);
      case What::copy:
        return arrive(key, note.place,
                      way(key, note.place == Place::device ? Place::pinned : Place::device).spans, spans);
      case What::write:
        if (spans.empty()) return;
        return add(PayloadFlow::Kind::store, key, way(key, Place::pinned), spans.front());
      case What::use:
        return use(key, note.place, spans);
      case What::update:
        use(key, note.place, spans);
        return make(key, note.place, spans);
      case What::overwrite:
        return make(key, note.place, spans);
      case What::absent:
        if (note.place != Place::nvme) end(key, way(key, note.place));
        return;
      case What::give:
        given_ = std::exchange(way(key, note.place), Way());
        return;
      case What::take:
        end(key, way(key, note.place));
        way(key, note.place) = std::exchange(given_, Way());
        return;
    }
  }

  bool is_copy(std::size_t span) const {
    return trace_.lanes[static_cast<std::size_t>(trace_.spans[span].lane)].kind == RankTrace::LaneKind::copy;
  }

  // A move from where the contents came by `before`.
  void arrive(const Key& key, Place place, std::vector<std::size_t> before,
              const std::vector<std::size_t>& spans) {
    Way& to = way(key, place);
    end(key, to);
    if (spans.empty()) return;
    before.push_back(spans.back());
    to = {std::move(before), true, false};
  }

  void use(const Key& key, Place place, const std::vector<std::size_t>& spans) {
    Way& from = way(key, place);
    if (spans.empty()) return;
    // A payload that was just written as a copy of this one is another one with the same contents.
    if (is_copy(spans.front()) && copied_ && copied_->second == spans.front()) {
      Way& copy = way(copied_->first, place == Place::device ? Place::pinned : Place::device);
      copy.spans.insert(copy.spans.begin(), from.spans.begin(), from.spans.end());
      copied_.reset();
    }
    if (from.is_moved && !from.is_used) add(PayloadFlow::Kind::fetch, key, from, spans.front());
    from.is_used = true;
  }

  // The last of the work that had it for writing has made the contents.
  void make(const Key& key, Place place, const std::vector<std::size_t>& spans) {
    for (const Place each : {Place::device, Place::pinned}) end(key, way(key, each));
    if (spans.empty()) return;
    const bool copied = is_copy(spans.back());
    way(key, place) = {{spans.back()}, copied, false};
    if (copied) copied_ = {key, spans.back()};
  }

  void add(PayloadFlow::Kind kind, const Key& key, Way& way, std::size_t to) {
    way.is_used = true;
    if (way.spans.empty() || way.spans.back() == to) return;
    std::vector<std::size_t> spans = way.spans;
    spans.push_back(to);
    flows_.push_back({kind, key.first, key.second, std::move(spans)});
  }

  // A copy that nothing has used is a flow, too.
  void end(const Key& key, Way& way) {
    if (way.is_moved && !way.is_used && way.spans.size() > 1)
      flows_.push_back({PayloadFlow::Kind::keep, key.first, key.second, way.spans});
    way = Way();
  }
  void end_all() {
    for (auto& [key, ways] : ways_)
      for (Way& way : ways) end(key, way);
    ways_.clear();
  }

  const RankTrace& trace_;
  const detail::NoteSpans spans_;
  std::map<Key, Ways> ways_;
  Way given_;
  std::optional<std::pair<Key, std::size_t>> copied_;  // written by the last work that overwrote a payload
  std::vector<PayloadFlow> flows_;
};

}  // namespace

std::string_view to_string(PayloadFlow::Kind kind) noexcept {
  constexpr std::array<std::string_view, 3> names = {"fetch", "store", "keep"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<PayloadFlow> payload_flows(const RankTrace& trace) { return FlowFinder(trace).find(); }

}  // namespace strata
