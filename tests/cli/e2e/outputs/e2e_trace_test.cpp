// `strata trace`: the flows of a real run over three tiers lead where its payloads went.
#include <algorithm>
#include <map>
#include <set>

#include "cli/e2e/e2e_shared_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using TraceJson = nlohmann::json;

/// A thread of the file, as "rank 0 compute".
using ThreadNames = std::map<std::pair<int, int>, std::string>;

ThreadNames thread_names(const TraceJson& events) {
  std::map<int, std::string> processes;
  ThreadNames names;
  for (const TraceJson& event : events)
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
  for (const TraceJson& event : events)
    if (event["name"] == "thread_name")
      names[{event["pid"], event["tid"]}] =
          processes[event["pid"]] + " " + event["args"]["name"].get<std::string>();
  return names;
}

std::vector<TraceJson> with_phase(const TraceJson& events, const std::string& phases) {
  std::vector<TraceJson> found;
  for (const TraceJson& event : events)
    if (phases.find(event["ph"].get<std::string>()) != std::string::npos) found.push_back(event);
  return found;
}

/// The slice of its thread that a flow event is in; null if it is in none.
const TraceJson* slice_of(const std::vector<TraceJson>& slices, const TraceJson& event) {
  const double at = event["ts"];
  for (const TraceJson& slice : slices)
    if (slice["pid"] == event["pid"] && slice["tid"] == event["tid"] && slice["ts"].get<double>() <= at &&
        at < slice["ts"].get<double>() + slice["dur"].get<double>())
      return &slice;
  return nullptr;
}

class CliTraceE2e : public CliE2e {
 protected:
  void train(const Words& words) const {
    const Words small = {"train.steps=8",        "train.eval_every=0",    "log.sample_every=0",
                         "memory.device=700KiB", "memory.pinned=1300KiB", "memory.nvme=8MiB"};
    Words all = tiny("train", joined(small, words));
    all.insert(all.end(), {"--out", "run"});
    const ProgramResult result = strata(all);
    ASSERT_EQ(result.exit_code, 0) << result.output();
  }
  /// Writes a trace, and returns what `strata trace --json` says of the file.
  TraceJson write(const Words& words) const {
    Words all = {"trace", "run", "--json", "--out", "trace.json"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult result = strata(all);
    EXPECT_EQ(result.exit_code, 0) << result.output();
    return TraceJson::parse(result.out);
  }
  TraceJson events() const { return TraceJson::parse(read_all(file("trace.json")))["traceEvents"]; }
};

/// The lanes of a flow, without the rank and the number behind "nvme read".
std::vector<std::string> lanes_of(const std::vector<TraceJson>& flow, const ThreadNames& threads) {
  std::vector<std::string> lanes;
  for (const TraceJson& event : flow) {
    std::string name = threads.at({event["pid"], event["tid"]});
    name = name.substr(name.find(' ', name.find(' ') + 1) + 1);
    lanes.push_back(name.substr(0, name.find_last_not_of(" 0123456789") + 1));
  }
  return lanes;
}

bool is_work(const std::string& lane) { return lane == "compute" || lane == "cpu" || lane == "collective"; }

TEST_F(CliTraceE2e, FlowsFollowEachPayloadBetweenLanes) {
  ASSERT_NO_FATAL_FAILURE(train({"log.trace=4-7", "optim.name=adamw"}));
  const TraceJson said = write({"--steps", "5-6"});
  const TraceJson all = events();
  const ThreadNames threads = thread_names(all);
  const std::vector<TraceJson> slices = with_phase(all, "X");
  std::map<int, std::vector<TraceJson>> flows;
  for (const TraceJson& event : with_phase(all, "stf")) flows[event["id"]].push_back(event);
  std::map<std::string, std::size_t> kinds;
  std::set<std::vector<std::string>> ways;
  std::size_t arrows = 0;
  for (const auto& [id, flow] : flows) {
    const std::vector<std::string> lanes = lanes_of(flow, threads);
    const std::string kind = flow.front()["cat"];
    ways.insert(lanes);
    ++kinds[kind];
    arrows += flow.size() - 1;
    EXPECT_EQ(flow.front()["ph"], "s");
    EXPECT_EQ(flow.back()["ph"], "f");
    double before = 0;
    for (const TraceJson& event : flow) {
      const TraceJson* const slice = slice_of(slices, event);
      ASSERT_NE(slice, nullptr) << event;
      const bool named =
          (*slice)["name"] == event["name"] ||
          (*slice)["args"].value("payloads", "").find(event["name"].get<std::string>()) != std::string::npos;
      EXPECT_TRUE(named || flow.front()["name"].get<std::string>().starts_with("accum")) << event << *slice;
      EXPECT_GE(event["ts"].get<double>(), before) << event;
      before = event["ts"];
    }
    if (kind == "fetch") {
      EXPECT_TRUE(is_work(lanes.back())) << flow.back();
    }
    if (kind == "store") {
      EXPECT_EQ(lanes.back(), "nvme write");
    }
    if (kind == "keep") {
      EXPECT_TRUE(lanes.back() == "d2h" || lanes.back() == "h2d" || lanes.back() == "nvme read");
    }
  }
  EXPECT_TRUE(ways.contains({"nvme read", "h2d", "compute"}));
  EXPECT_TRUE(ways.contains({"nvme read", "cpu"}));
  EXPECT_TRUE(ways.contains({"compute", "d2h", "cpu"}));
  EXPECT_TRUE(ways.contains({"cpu", "nvme write"}));
  EXPECT_EQ(kinds["fetch"], said["flows"]["fetch"]);
  EXPECT_EQ(kinds["store"], said["flows"]["store"]);
  EXPECT_EQ(arrows, said["arrows"]);
  std::map<std::string, std::size_t> counts;
  for (const TraceJson& slice : slices) ++counts[threads.at({slice["pid"], slice["tid"]})];
  for (const auto& [lane, n] : said["slices"]["rank 0"].items())
    EXPECT_EQ(counts["rank 0 " + lane], n) << lane;
  EXPECT_EQ(counts["rank 0 steps"], 2u);
}

TEST_F(CliTraceE2e, EveryMoveOfATracedStepIsNamed) {
  ASSERT_NO_FATAL_FAILURE(train({"log.trace=4-5"}));
  write({"--steps", "5"});
  const TraceJson all = events();
  const ThreadNames threads = thread_names(all);
  std::size_t reads = 0;
  for (const TraceJson& slice : with_phase(all, "X")) {
    const std::string lane = threads.at({slice["pid"], slice["tid"]});
    if (lane.find("nvme") == std::string::npos) continue;
    EXPECT_THAT(slice["args"].value("direction", ""), HasSubstr("nvme")) << slice;
    EXPECT_GT(slice["args"].value("bytes", 0), 0) << slice;
    EXPECT_THAT(slice.value("name", ""), ::testing::ContainsRegex("^(param|master|m|v|accum) [0-9]+$"));
    reads += lane.find("read") != std::string::npos;
  }
  EXPECT_GT(reads, 5u);
}

TEST_F(CliTraceE2e, RanksAreProcesses) {
  ASSERT_NO_FATAL_FAILURE(train({"log.trace=3-4", "parallel.ranks=2", "train.grad_accum=4", "train.steps=5",
                                 "memory.device=1MiB", "memory.pinned=2MiB"}));
  const TraceJson said = write({});
  for (const char* rank : {"rank 0", "rank 1"})
    for (const char* lane : {"compute", "h2d", "d2h", "cpu", "collective"})
      EXPECT_GT(said["slices"][rank][lane], 0) << rank << lane;
  EXPECT_GT(said["flows"]["fetch"], 0);
  ASSERT_NO_FATAL_FAILURE(train({"--overwrite", "train.steps=2"}));
  EXPECT_FALSE(exists("run/trace-rank-1.json"));
}

TEST_F(CliTraceE2e, SaysWhatIsMissing) {
  ASSERT_NO_FATAL_FAILURE(train({"train.steps=2"}));
  const ProgramResult untraced = strata({"trace", "run"});
  EXPECT_EQ(untraced.exit_code, 2);
  EXPECT_THAT(untraced.err, HasSubstr("log.trace=true"));
  EXPECT_THAT(strata({"trace", "nowhere"}).err, HasSubstr("contains no run"));
  ASSERT_NO_FATAL_FAILURE(train({"--overwrite", "log.trace=2-3", "train.steps=4"}));
  const ProgramResult later = strata({"trace", "run", "--steps", "4-5"});
  EXPECT_EQ(later.exit_code, 2);
  EXPECT_THAT(later.err, HasSubstr("the trace has steps 2 to 3, and none of 4 to 5"));
  EXPECT_THAT(strata({"trace", "run", "--steps", "3-2"}).err, HasSubstr("--steps 3-2"));
  const ProgramResult written = strata({"trace", "run"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(written.out, AllOf(HasSubstr("run/trace-perfetto.json: steps 2 to 3"), HasSubstr("flows")));
}

}  // namespace
}  // namespace strata::test
