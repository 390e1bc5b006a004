// Where payloads were while a traced step ran, as the page plays it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <strata/report/report_page.h>

#include "report/run_fixture.h"
#include "report/trace_builder.h"
#include "support/temp_dir.h"
#include "trace/payload_playback.h"

namespace strata {
namespace {

using detail::payload_playback;
using test::TraceBuilder;
using What = RankTrace::What;
using Place = RankTrace::Place;
using enum TraceBuilder::Lane;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// "20 d" for each change of a chunk.
std::vector<std::string> changes_of(const RunRecord::Playback& playback, int row, int chunk) {
  std::vector<std::string> changes;
  for (const RunRecord::Playback::Change& change : playback.changes)
    if (change.row == row && change.chunk == chunk)
      changes.push_back(fmt::format("{:g} {}", change.us * 1000, change.letter));
  return changes;
}

/// Chunk 3 of the parameters is read, copied, used and dropped, between 100 and 200 ns.
TraceBuilder one_fetch() {
  TraceBuilder b;
  b.note(What::read, Place::pinned, reads, b.span(reads, 110, 120));
  b.note(What::copy, Place::device, h2d, b.span(h2d, 130, 140));
  b.note(What::use, Place::device, compute, b.span(compute, 150, 170));
  b.note(What::absent, Place::pinned, h2d, 0);
  b.note(What::absent, Place::device, h2d, 0);
  b.trace.steps = {{6, 0, 100, true}, {7, 100, 200, true}, {8, 200, 300, false}};
  for (RankTrace::Note& note : b.trace.notes) note.at_ns = 125;  // the host is ahead
  return b;
}
const std::vector<RunRecord::Homes> kHomes = {{"m", "pppp"}, {"param", "nnnn"}};

TEST(PayloadPlayback, ShowsMovesAndTheFastestTierThatHasACopy) {
  const RunRecord::Playback playback = payload_playback(one_fetch().trace, kHomes);
  EXPECT_EQ(playback.step, 7) << "the last whole one";
  EXPECT_EQ(playback.us, 0.1);
  EXPECT_EQ(playback.begin[1].tiers, "nnnn");
  EXPECT_THAT(changes_of(playback, 1, 3), ElementsAre("10 r", "20 p", "30 u", "40 d", "70 n"))
      << "dropped when the work that uses it ends, not when the host decides it";
}

TEST(PayloadPlayback, BeginsWithWhatTheNotesImply) {
  TraceBuilder b = one_fetch();
  b.trace.notes.erase(b.trace.notes.begin(),
                      b.trace.notes.begin() + 2);  // it was on the device before the trace
  const RunRecord::Playback playback = payload_playback(b.trace, kHomes);
  EXPECT_EQ(playback.begin[1].tiers, "nnnd");
  EXPECT_THAT(changes_of(playback, 1, 3), ElementsAre("70 n"));
}

TEST(PayloadPlayback, AnUpdateMakesOtherCopiesStaleAndTheWriteBringsThemBack) {
  TraceBuilder b;
  b.note(What::absent, Place::nvme, cpu, 0);
  b.note(What::update, Place::pinned, cpu, b.span(cpu, 110, 120));
  b.note(What::write, Place::nvme, writes, b.span(writes, 120, 150));
  b.note(What::absent, Place::pinned, cpu, 0);
  b.trace.steps = {{1, 100, 200, true}};
  for (std::size_t i = 0; i < 4; ++i) b.trace.notes[i].at_ns = i < 2 ? 105 : 125;
  const RunRecord::Playback playback = payload_playback(b.trace, kHomes);
  EXPECT_EQ(playback.begin[1].tiers, "nnnp");
  EXPECT_THAT(changes_of(playback, 1, 3), ElementsAre("20 w", "50 n"));
}

TEST(PayloadPlayback, HasRowsOfPayloadsWithoutAHome) {
  TraceBuilder b;
  b.note(What::overwrite, Place::device, compute, b.span(compute, 110, 120), 1);
  b.note(What::copy, Place::pinned, d2h, b.span(d2h, 120, 130), 1);
  b.note(What::absent, Place::device, d2h, 0, 1);
  b.note(What::give, Place::pinned, d2h, 0, 1);
  b.note(What::take, Place::pinned, d2h, 0, 2);
  b.trace.steps = {{1, 100, 200, true}};
  for (RankTrace::Note& note : b.trace.notes) note.at_ns = 125;
  const RunRecord::Playback playback = payload_playback(b.trace, kHomes);
  ASSERT_EQ(playback.begin.size(), 4u);
  EXPECT_EQ(playback.begin[2].payload, "grad");
  EXPECT_THAT(changes_of(playback, 2, 3), ElementsAre("10 d", "20 e", "30 -"));
  EXPECT_EQ(playback.begin[3].payload, "accum");
  EXPECT_THAT(changes_of(playback, 3, 3), ElementsAre("25 p"));
}

TEST(PayloadPlayback, IsNoneWithoutAWholeStepOrWithoutMoves) {
  TraceBuilder b = one_fetch();
  b.trace.steps = {{8, 100, 200, false}};
  EXPECT_EQ(payload_playback(b.trace, kHomes).us, 0);
  b.trace.steps = {{8, 300, 400, true}};
  EXPECT_EQ(payload_playback(b.trace, kHomes).us, 0);
}

TEST(PayloadPlayback, IsInThePageOfARunThatWasTraced) {
  const test::TempDir dir;
  test::write_run(dir.path(), 3);
  RunRecord run = must(read_run_record(posix_io(), dir.path()));
  EXPECT_THAT(report_html({run}), Not(HasSubstr("class=\"playback\"")));
  run.homes = kHomes;
  run.playback = payload_playback(one_fetch().trace, kHomes);
  const std::string page = report_html({run});
  EXPECT_THAT(page, HasSubstr("aria-label=\"Time in step 7\""));
  const std::size_t begin = page.find("id=\"data\">") + 10;
  const auto data = nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  const auto& playback = data["runs"][0]["playback"];
  EXPECT_EQ(playback["rows"][1], nlohmann::json::parse(R"(["param", "nnnn"])"));
  EXPECT_EQ(playback["changes"].size(), 5u);
  EXPECT_EQ(playback["step"], 7);
}

}  // namespace
}  // namespace strata
