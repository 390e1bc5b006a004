#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include <strata/runtime/trace/trace.h>

#include "store/request_table.h"

namespace strata::detail {

/// The store's tracks in a trace. Requests overlap but spans of one track must not, so each direction has a
/// few tracks, and a span goes to the one whose last span ended first. Guarded by the store's lock.
class StoreTrace {
 public:
  static constexpr int kTracks = 4;
  explicit StoreTrace(Trace* trace) {
    if (trace == nullptr) return;
    for (int direction = 0; direction < 2; ++direction)
      for (int i = 0; i < kTracks; ++i)
        tracks_[direction][i].track =
            &trace->add_track(std::string(direction == 0 ? "nvme read " : "nvme write ") + std::to_string(i));
  }
  void record(const StoreRequest& request, std::int64_t end_ns) noexcept {
    auto& tracks = tracks_[request.write ? 1 : 0];
    TrackState& state =
        *std::min_element(tracks.begin(), tracks.end(),
                          [](const TrackState& a, const TrackState& b) { return a.end_ns < b.end_ns; });
    if (state.track == nullptr) return;
    const std::int64_t begin_ns = std::max(request.begin_ns, state.end_ns);
    state.end_ns = end_ns;
    state.track->span(request.write ? "write" : "read", static_cast<std::int64_t>(request.bytes), begin_ns,
                      end_ns, {Trace::Work::kStore, request.sequence});
  }

 private:
  struct TrackState {
    Trace::Track* track = nullptr;
    std::int64_t end_ns = 0;
  };
  std::array<std::array<TrackState, kTracks>, 2> tracks_;
};

}  // namespace strata::detail
