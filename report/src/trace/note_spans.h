#pragma once

#include <cstddef>
#include <vector>

#include <strata/report/run_trace.h>

namespace strata::detail {

/// Finds the spans of the work that notes refer to. The trace outlives it.
class NoteSpans {
 public:
  explicit NoteSpans(const RankTrace& trace);
  /// Indexes of the spans, in the order of their work; none if they were not traced.
  std::vector<std::size_t> of(const RankTrace::Note& note) const;
  /// Whether the trace may have had spans of the note that it had no room for.
  bool may_be_lost(const RankTrace::Note& note) const;

 private:
  std::size_t plan_at(std::int64_t ns) const;

  const RankTrace& trace_;
  std::vector<std::size_t> by_work_;    // sorted by queue, number, and begin
  std::vector<std::int64_t> plans_ns_;  // when each plan began
};

}  // namespace strata::detail
