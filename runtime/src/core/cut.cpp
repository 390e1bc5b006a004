#include <strata/runtime/cut.h>

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// Units of a segment that one rank has.
std::int64_t units_of_rank(const CutSegment& segment, int ranks, int rank) {
  if (segment.units < ranks) return 1;
  return segment.units / ranks + (rank < segment.units % ranks ? 1 : 0);
}
/// The first of them.
std::int64_t first_unit(const CutSegment& segment, int ranks, int rank) {
  if (segment.units < ranks) return rank * segment.units / ranks;
  return segment.units / ranks * rank + std::min<std::int64_t>(rank, segment.units % ranks);
}

}  // namespace

Cut Cut::of_sequences(std::int64_t sequences, std::int64_t length, int ranks, bool zigzag) noexcept {
  if (!zigzag && sequences == 1) return even(length);
  if (!zigzag) return {{CutSegment{ranks, length / ranks}}, 1, sequences};
  const CutSegment half{ranks, length / (2 * ranks)};
  return {{half, {half.units, half.size, true}}, 2, sequences};
}

std::int64_t Cut::extent() const noexcept {
  std::int64_t sum = 0;
  for (const CutSegment& each : all()) sum += each.units * each.size;
  return sum * times;
}

bool Cut::divides(int ranks) const noexcept {
  return n > 0 && std::all_of(all().begin(), all().end(), [&](const CutSegment& each) {
           return each.units > 0 && (each.units % ranks == 0 || ranks % each.units == 0 ||
                                     (has_remainder && each.units > ranks));
         });
}

std::int64_t Cut::shard_extent(int ranks, int rank) const noexcept {
  std::int64_t sum = 0;
  for (const CutSegment& each : all()) sum += units_of_rank(each, ranks, rank) * each.size;
  return sum * times;
}

bool Cut::repeats(int ranks) const noexcept {
  return std::any_of(all().begin(), all().end(), [&](const CutSegment& each) { return each.units < ranks; });
}

std::string to_string(const Cut& cut) {
  std::string text;
  for (const CutSegment& each : cut.all())
    text +=
        str(text.empty() ? "" : " | ", each.units, " x ", each.size, each.from_last ? " from the last" : "");
  if (cut.has_remainder) text += ", with a remainder";
  return cut.times == 1 ? text : str(cut.times, " times (", text, ")");
}

std::vector<CutRun> runs_of(const Cut& cut, int ranks, int rank) {
  STRATA_ASSERT(cut.divides(ranks), to_string(cut), " is not divided among ", ranks, " ranks");
  std::vector<CutRun> runs;
  CutRun run;
  std::int64_t begin = 0;  // the first element of the segment
  for (std::int64_t time = 0; time < cut.times; ++time)
    for (const CutSegment& each : cut.all()) {
      const int at = each.from_last ? ranks - 1 - rank : rank;
      run.whole = begin + first_unit(each, ranks, at) * each.size;
      run.n = units_of_rank(each, ranks, at) * each.size;
      runs.push_back(run);
      run.shard += run.n;
      begin += each.units * each.size;
    }
  return runs;
}

}  // namespace strata
