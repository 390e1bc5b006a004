#pragma once

#include <map>

#include <strata/report/run_trace.h>

namespace strata::test {

/// A trace that is built span by span. Streams have the numbers of their lanes.
class TraceBuilder {
 public:
  enum Lane : int { compute, h2d, d2h, cpu, reads, writes, engine };

  TraceBuilder() {
    using enum RankTrace::LaneKind;
    trace.lanes = {{"compute", work, 0}, {"h2d", copy, 0},         {"d2h", copy, 0},
                   {"cpu", work, 0},     {"nvme read 0", read, 0}, {"nvme write 0", write, 0},
                   {"engine", other, 0}};
    trace.labels = {"op", "queue micro-batch", "commit"};
    trace.payloads = {"param", "grad", "accum"};
  }
  /// One span of the lane, as its next work; returns the number of that work.
  std::uint64_t span(Lane lane, std::int64_t begin, std::int64_t end) {
    const bool of_store = lane == reads || lane == writes;
    const std::uint64_t number = ++last_[of_store ? reads : lane];
    trace.spans.push_back({lane, 0, begin, end, 64, of_store ? -2 : static_cast<std::int32_t>(lane), number});
    return number;
  }
  void note(RankTrace::What what, RankTrace::Place place, Lane lane, std::uint64_t number, int payload = 0,
            std::int64_t chunk = 3) {
    const bool of_store = lane == reads || lane == writes;
    trace.notes.push_back({what, place, payload, chunk, of_store ? -2 : static_cast<std::int32_t>(lane),
                           number == 0 ? 0 : number - 1, number, ++now_});
  }
  RankTrace trace;

 private:
  std::map<int, std::uint64_t> last_;
  std::int64_t now_ = 1000;  // after every span, as the notes of finished work
};

}  // namespace strata::test
