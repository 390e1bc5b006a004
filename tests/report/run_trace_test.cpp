// Traces of runs: what notes say of spans, the flows of payloads, and the file for Perfetto.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <strata/report/perfetto_trace.h>
#include <strata/report/run_record.h>
#include <strata/report/run_trace.h>

#include "report/run_fixture.h"
#include "report/trace_builder.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using test::TraceBuilder;
using What = RankTrace::What;
using Place = RankTrace::Place;
using enum TraceBuilder::Lane;

std::vector<std::string> lanes_of(const RankTrace& trace, const PayloadFlow& flow) {
  std::vector<std::string> lanes = {std::string(to_string(flow.kind))};
  for (const std::size_t span : flow.spans)
    lanes.push_back(trace.lanes[static_cast<std::size_t>(trace.spans[span].lane)].name);
  return lanes;
}
std::vector<std::vector<std::string>> ways_of(const RankTrace& trace) {
  std::vector<std::vector<std::string>> ways;
  for (const PayloadFlow& flow : payload_flows(trace)) ways.push_back(lanes_of(trace, flow));
  return ways;
}

TEST(PayloadFlows, LeadFromAReadToTheFirstWorkThatUsesIt) {
  TraceBuilder b;
  b.note(What::read, Place::pinned, reads, b.span(reads, 0, 10));
  b.note(What::copy, Place::device, h2d, b.span(h2d, 10, 20));
  b.note(What::use, Place::device, compute, b.span(compute, 20, 30));
  b.note(What::use, Place::device, compute, b.span(compute, 30, 40));
  EXPECT_THAT(ways_of(b.trace), ElementsAre(ElementsAre("fetch", "nvme read 0", "h2d", "compute")));
  EXPECT_EQ(payload_flows(b.trace)[0].spans, (std::vector<std::size_t>{0, 1, 2}));
}

TEST(PayloadFlows, LeadFromTheLastWorkThatWroteItToTheNvmeTier) {
  TraceBuilder b;
  const std::uint64_t first = b.span(compute, 0, 10), last = b.span(compute, 10, 20);
  b.trace.notes.push_back({What::overwrite, Place::device, 1, 3, compute, first - 1, last, 1});
  b.note(What::copy, Place::pinned, d2h, b.span(d2h, 20, 30), 1);
  b.note(What::write, Place::nvme, writes, b.span(writes, 30, 40), 1);
  EXPECT_THAT(ways_of(b.trace), ElementsAre(ElementsAre("store", "compute", "d2h", "nvme write 0")));
  EXPECT_EQ(payload_flows(b.trace)[0].spans[0], 1u) << "the last of the two";
}

TEST(PayloadFlows, OfAnUpdateComeInAndGoOut) {
  TraceBuilder b;
  b.note(What::read, Place::pinned, reads, b.span(reads, 0, 10));
  b.note(What::update, Place::pinned, cpu, b.span(cpu, 10, 20));
  b.note(What::copy, Place::device, h2d, b.span(h2d, 20, 30));
  b.note(What::write, Place::nvme, writes, b.span(writes, 20, 30));
  b.note(What::use, Place::device, compute, b.span(compute, 30, 40));
  EXPECT_THAT(ways_of(b.trace), ElementsAre(ElementsAre("fetch", "nvme read 0", "cpu"),
                                            ElementsAre("store", "cpu", "nvme write 0"),
                                            ElementsAre("fetch", "cpu", "h2d", "compute")));
}

TEST(PayloadFlows, GoOnWhenContentsBecomeThoseOfAnotherPayload) {
  TraceBuilder b;
  b.note(What::overwrite, Place::device, compute, b.span(compute, 0, 10), 1);
  b.note(What::give, Place::device, compute, 0, 1);
  b.note(What::take, Place::device, compute, 0, 2);
  b.note(What::copy, Place::pinned, d2h, b.span(d2h, 10, 20), 2);
  b.note(What::use, Place::pinned, cpu, b.span(cpu, 20, 30), 2);
  EXPECT_THAT(ways_of(b.trace), ElementsAre(ElementsAre("fetch", "compute", "d2h", "cpu")));
  EXPECT_EQ(payload_flows(b.trace)[0].payload, 2);
}

TEST(PayloadFlows, GoOnThroughACopyThatMakesAnotherPayload) {
  TraceBuilder b;
  b.note(What::overwrite, Place::device, compute, b.span(compute, 0, 10), 1);
  const std::uint64_t copied = b.span(d2h, 10, 20);
  b.note(What::overwrite, Place::pinned, d2h, copied, 2);
  b.note(What::use, Place::device, d2h, copied, 1);
  b.note(What::use, Place::pinned, cpu, b.span(cpu, 20, 30), 2);
  EXPECT_THAT(ways_of(b.trace), ElementsAre(ElementsAre("fetch", "compute", "d2h", "cpu")));
}

TEST(PayloadFlows, OfACopyThatNothingUsesEndThere) {
  TraceBuilder b;
  b.note(What::read, Place::pinned, reads, b.span(reads, 0, 10));
  b.note(What::copy, Place::device, h2d, b.span(h2d, 10, 20));
  b.note(What::absent, Place::device, h2d, 0);
  b.note(What::use, Place::device, compute, b.span(compute, 30, 40));
  EXPECT_THAT(ways_of(b.trace), ElementsAre(ElementsAre("keep", "nvme read 0", "h2d")));
}

TEST(PayloadFlows, FindRequestsOfTheStoreOfTheirPlan) {
  TraceBuilder b;
  b.note(What::read, Place::pinned, reads, b.span(reads, 0, 10));
  b.trace.notes.push_back({.what = What::plan, .at_ns = 2000});
  b.trace.spans.push_back({reads, 0, 2500, 2600, 64, -2, 1});  // another store counts from 1 again
  b.trace.notes.push_back({What::read, Place::pinned, 0, 3, -2, 0, 1, 2400});
  b.note(What::use, Place::pinned, cpu, b.span(cpu, 2600, 2700));
  const std::vector<PayloadFlow> flows = payload_flows(b.trace);
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0].spans[0], 1u) << "although it began to be shown after its note, when a track was free";
}

TEST(PayloadFlows, DoNotCrossPlansOrWhatWasDropped) {
  TraceBuilder b;
  b.note(What::read, Place::pinned, reads, b.span(reads, 0, 10));
  b.trace.notes.push_back({.what = What::plan, .at_ns = 1500});
  b.note(What::use, Place::pinned, cpu, b.span(cpu, 10, 20));
  EXPECT_THAT(ways_of(b.trace), IsEmpty());
  TraceBuilder full;
  full.trace.lanes[compute].dropped = 1;
  full.note(What::copy, Place::device, h2d, full.span(h2d, 0, 10));
  full.note(What::use, Place::device, compute, full.span(compute, 10, 20));
  full.trace.spans.pop_back();  // this use is the dropped one, and the next is not the first
  full.note(What::use, Place::device, compute, full.span(compute, 20, 30));
  EXPECT_THAT(ways_of(full.trace), IsEmpty());
}

TEST(TraceSteps, AreAStepOrTheFirstAndTheLast) {
  EXPECT_TRUE(must(parse_trace_steps("")).all());
  EXPECT_EQ(must(parse_trace_steps("7")).last, 7);
  EXPECT_EQ(must(parse_trace_steps("3-9")).first, 3);
  EXPECT_EQ(must(parse_trace_steps("3-")).first, 3);
  for (const char* wrong : {"9-3", "a", "1-b", "1:3", "1-2-3", " 1"})
    EXPECT_EQ(parse_trace_steps(wrong).status().code(), Code::invalid) << wrong;
}

/// Two steps, in each of which a payload is read, copied and used.
RankTrace two_steps() {
  TraceBuilder b;
  for (const std::int64_t at : {0, 100}) {
    b.note(What::read, Place::pinned, reads, b.span(reads, at + 0, at + 10));
    b.note(What::copy, Place::device, h2d, b.span(h2d, at + 10, at + 20));
    b.note(What::use, Place::device, compute, b.span(compute, at + 20, at + 20));
    b.note(What::absent, Place::device, h2d, 0);
    b.note(What::absent, Place::pinned, h2d, 0);
  }
  std::stable_sort(b.trace.spans.begin(), b.trace.spans.end(),
                   [](const auto& x, const auto& y) { return x.lane < y.lane; });
  b.trace.steps = {{4, 0, 100, true}, {5, 100, 200, true}};
  return b.trace;
}

TEST(PerfettoTraceFile, HasTheChosenStepsWithTheirFlows) {
  const PerfettoTrace all = must(perfetto_trace({two_steps()}, {}));
  EXPECT_THAT(all.flows, ElementsAre(2u, 0u, 0u));
  const PerfettoTrace second = must(perfetto_trace({two_steps()}, {5, 5}));
  EXPECT_THAT(second.flows, ElementsAre(1u, 0u, 0u));
  EXPECT_EQ(second.arrows, 2u);
  EXPECT_EQ(second.first_step, 5);
  const nlohmann::json events = nlohmann::json::parse(second.json)["traceEvents"];
  std::string phases;
  for (const auto& event : events) phases += event["ph"].get<std::string>();
  EXPECT_EQ(std::count(phases.begin(), phases.end(), 'X'), 4) << "three spans and the step";
  for (const auto& event : events) {
    if (event["ph"] == "X" && event["cat"] == "nvme read 0") {
      EXPECT_EQ(event["name"], "param 3");
      EXPECT_EQ(event["args"]["direction"], "nvme to pinned");
      EXPECT_EQ(event["ts"], 0.0) << "from the first event on";
    }
    if (event["ph"] == "f") {
      EXPECT_EQ(event["ts"], 0.021) << "inside a slice that took no time";
    }
  }
  const Status none = perfetto_trace({two_steps()}, {6, 9}).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("steps 4 to 5, and none of 6 to 9"));
}

TEST(PerfettoTraceFile, ShowsRanksAsProcessesInOneTime) {
  RankTrace first = two_steps(), second = two_steps();
  second.rank = 1;
  first.begin_unix_ns = 1'000'000'000'000'001'000;
  second.begin_unix_ns = 1'000'000'000'000'001'500;
  const PerfettoTrace trace = must(perfetto_trace({first, second}, {}));
  std::map<int, double> begins;
  const nlohmann::json events = nlohmann::json::parse(trace.json)["traceEvents"];
  for (const auto& event : events)
    if (event["ph"] == "X" && event["name"] == "step 4") begins[event["pid"]] = event["ts"];
  EXPECT_EQ(begins[1], 0.0);
  EXPECT_EQ(begins[2], 0.5);
}

std::string trace_file_of_two_lanes() {
  return R"({"displayTimeUnit":"ms","otherData":{"begin_unix_ns":77,"dropped_events":{"compute":2,"engine":0}},"traceEvents":[
{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"compute"}},
{"ph":"X","pid":1,"tid":1,"ts":15.001,"dur":3.5,"name":"gemm","args":{"arg":0,"queue":4,"work":9}},
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"engine"}},
{"ph":"X","pid":1,"tid":2,"ts":10.000,"dur":2.000,"name":"queue micro-batch","args":{"arg":0}},
{"ph":"X","pid":1,"tid":2,"ts":18.000,"dur":2.000,"name":"commit","args":{"arg":6}},
{"ph":"X","pid":1,"tid":2,"ts":30.000,"dur":2.000,"name":"queue micro-batch","args":{"arg":0}},
{"ph":"X","pid":1,"tid":2,"ts":32.000,"dur":2.000,"name":"queue micro-batch","args":{"arg":1}},
{"ph":"X","pid":1,"tid":2,"ts":38.000,"dur":2.000,"name":"commit","args":{"arg":7}}
],"notes":[
["plan","",0,"",-1,0,0,0.000],
["use","param",2,"device",4,8,9,16.000]
]}
)";
}

TEST(RunTrace, OfARankIsReadFromItsFile) {
  const test::TempDir dir;
  test::write_run(dir.path(), 1);
  const Status missing = read_run_trace(posix_io(), dir.path()).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("log.trace=true"));
  must(write_text_atomically(posix_io(), dir.path() + "/trace.json", trace_file_of_two_lanes()));
  must(write_text_atomically(posix_io(), dir.path() + "/trace-rank-11.json", trace_file_of_two_lanes()));
  must(write_text_atomically(posix_io(), dir.path() + "/trace-perfetto.json", "not one of them"));
  const std::vector<RankTrace> ranks = must(read_run_trace(posix_io(), dir.path()));
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1].rank, 11);
  const RankTrace& trace = ranks[0];
  EXPECT_EQ(trace.begin_unix_ns, 77);
  EXPECT_EQ(trace.spans[0].begin_ns, 15001);
  EXPECT_EQ(trace.spans[0].end_ns, 18501);
  EXPECT_EQ(trace.spans[0].work, 9u);
  EXPECT_EQ(trace.lanes[0].dropped, 2u);
  ASSERT_EQ(trace.notes.size(), 2u);
  EXPECT_EQ(trace.payloads[static_cast<std::size_t>(trace.notes[1].payload)], "param");
  ASSERT_EQ(trace.steps.size(), 2u);
  EXPECT_EQ(trace.steps[0].step, 6);
  EXPECT_FALSE(trace.steps[0].is_whole) << "compute was dropped before 15 us";
  EXPECT_EQ(trace.steps[0].end_ns, 30000) << "until the next step begins";
  EXPECT_EQ(trace.steps[1].begin_ns, 30000);
  EXPECT_EQ(trace.steps[1].end_ns, 40000);
}

TEST(RunTrace, ThatIsDamagedNamesTheFile) {
  const test::TempDir dir;
  test::write_run(dir.path(), 1);
  std::string text = trace_file_of_two_lanes();
  text.replace(text.find("\"use\""), 5, "\"eat\"");
  must(write_text_atomically(posix_io(), dir.path() + "/trace.json", text));
  const Status damaged = read_run_trace(posix_io(), dir.path()).status();
  EXPECT_EQ(damaged.code(), Code::corrupt);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("trace.json"));
}

}  // namespace
}  // namespace strata
