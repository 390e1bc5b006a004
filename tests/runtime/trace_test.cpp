#include <strata/runtime/trace/trace.h>

#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/memory/alloc_counter.h>

namespace strata {
namespace {

class StoppedClock final : public Clock {
 public:
  std::int64_t now_ns() const noexcept override { return now; }
  void wait_until(std::int64_t deadline_ns) override { now = deadline_ns; }
  std::int64_t now = 1'000'000;
};

/// Files in a map; a write accepts at most `max_write_bytes` bytes, and fails once `capacity` is used up.
class LimitedIo final : public Io {
 public:
  class LimitedFile final : public File {
   public:
    LimitedFile(LimitedIo& io, std::string path) : io_(io), path_(std::move(path)) {}
    Result<std::size_t> read_at(std::uint64_t, std::span<std::byte>) override {
      return Status::error(Code::unsupported, "read");
    }
    Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) override {
      std::string& content = io_.files[path_];
      if (content.size() >= io_.capacity) return Status::error(Code::no_space, "full");
      EXPECT_EQ(offset, content.size());
      const std::size_t n = std::min(io_.max_write_bytes, from.size());
      content.append(reinterpret_cast<const char*>(from.data()), n);
      return n;
    }
    Status sync() override { return Status::ok(); }
    Result<std::uint64_t> size() override { return io_.files[path_].size(); }
    Status allocate(std::uint64_t) override { return Status::ok(); }
    const std::string& path() const noexcept override { return path_; }
    bool direct() const noexcept override { return false; }
    int descriptor() const noexcept override { return -1; }
    DirectAlignment alignment() const noexcept override { return {}; }

   private:
    LimitedIo& io_;
    std::string path_;
  };

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode, bool) override {
    files[path].clear();
    return std::unique_ptr<File>(new LimitedFile(*this, path));
  }
  Status rename(const std::string& from, const std::string& to) override {
    files[to] = files[from];
    files.erase(from);
    return Status::ok();
  }
  Status make_dirs(const std::string&) override { return Status::ok(); }
  Status sync_dir(const std::string&) override { return Status::ok(); }
  Status remove_all(const std::string&) override { return Status::ok(); }
  Result<std::vector<std::string>> list(const std::string&) override { return std::vector<std::string>{}; }
  bool exists(const std::string& path) override { return files.count(path) != 0; }
  Result<std::uint64_t> free_bytes(const std::string&) override { return std::uint64_t{0}; }

  std::map<std::string, std::string> files;
  std::size_t max_write_bytes = 1 << 20;
  std::size_t capacity = 1 << 30;
};

nlohmann::json written(Trace& trace, std::size_t max_write_bytes = 1 << 20) {
  LimitedIo io;
  io.max_write_bytes = max_write_bytes;
  must(trace.write(io, "trace.json"));
  EXPECT_EQ(io.files.size(), 1u);
  return nlohmann::json::parse(io.files["trace.json"]);
}

std::vector<nlohmann::json> events_of(const nlohmann::json& trace, const std::string& phase) {
  std::vector<nlohmann::json> events;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

/// Whether the spans of each track, in file order, only nest or follow each other.
bool spans_nest(const nlohmann::json& trace) {
  std::map<int, std::vector<double>> open;  // track -> ends of the enclosing spans
  for (const auto& event : events_of(trace, "X")) {
    auto& ends = open[event["tid"].get<int>()];
    const double begin = event["ts"].get<double>(), end = begin + event["dur"].get<double>();
    while (!ends.empty() && ends.back() <= begin + 1e-6) ends.pop_back();
    if (!ends.empty() && end > ends.back() + 1e-6) return false;
    ends.push_back(end);
  }
  return true;
}

TEST(TraceTest, SpansOfALaneNestInTheFile) {
  StoppedClock clock;
  Trace trace(clock);
  Trace::Track& compute = trace.add_track("compute");
  for (int step = 0; step < 20; ++step) {
    const TraceSpan outer(compute, "step", step);
    clock.now += 10;
    for (int op = 0; op < 3; ++op) {
      const TraceSpan inner(compute, "op", op);
      clock.now += 1234;
    }
  }
  const nlohmann::json json = written(trace);
  EXPECT_EQ(events_of(json, "X").size(), 80u);
  EXPECT_TRUE(spans_nest(json));
}

TEST(TraceTest, TheNestingCheckDetectsOverlappingSpans) {
  StoppedClock clock;
  Trace trace(clock);
  Trace::Track& lane = trace.add_track("h2d");
  lane.span("a", 0, 100, 300);
  lane.span("b", 0, 200, 400);
  EXPECT_FALSE(spans_nest(written(trace)));
}

TEST(TraceTest, TimesHaveNanosecondsAndStartAtTheFirstEvent) {
  StoppedClock clock;
  Trace trace(clock);
  Trace::Track& lane = trace.add_track("h2d");
  lane.span("copy", 7, 5'000, 6'001);
  lane.span("copy", 8, 1'000, 1'500);
  const auto spans = events_of(written(trace), "X");
  EXPECT_DOUBLE_EQ(spans[0]["ts"].get<double>(), 0);
  EXPECT_EQ(spans[0]["args"]["arg"], 8);
  EXPECT_DOUBLE_EQ(spans[1]["ts"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(spans[1]["dur"].get<double>(), 1.001);
}

TEST(TraceTest, TracksAreNamedAndCountersHoldTheirValue) {
  StoppedClock clock;
  Trace trace(clock);
  trace.add_track("compute");
  Trace::Track& tiers = trace.add_track("odd \"name\"\n");
  tiers.counter("device bytes", 42);
  const nlohmann::json json = written(trace);
  const auto names = events_of(json, "M");
  EXPECT_EQ(names[3]["name"], "thread_name");
  EXPECT_EQ(names[3]["args"]["name"], "odd \"name\"\n");
  EXPECT_EQ(names[3]["tid"], 2);
  const auto counters = events_of(json, "C");
  EXPECT_EQ(counters.at(0)["name"], "device bytes");
  EXPECT_EQ(counters.at(0)["args"]["value"], 42);
}

// Otherwise the rings of every engine that a run continues in would stay resident.
TEST(TraceTest, AnExistingNameReturnsTheSameTrack) {
  StoppedClock clock;
  Trace trace(clock);
  Trace::Track& lane = trace.add_track("engine");
  EXPECT_EQ(&trace.add_track("engine"), &lane);
  EXPECT_NE(&trace.add_track("nvme"), &lane);
}

TEST(TraceTest, AFullRingDropsItsOldestAndCountsThem) {
  StoppedClock clock;
  Trace trace(clock, {.events_per_track = 4});
  Trace::Track& busy = trace.add_track("busy");
  Trace::Track& quiet = trace.add_track("quiet");
  quiet.span("kept", 99, 0, 1);
  for (int i = 0; i < 10; ++i) busy.span("op", i, i * 10, i * 10 + 5);
  EXPECT_EQ(busy.dropped(), 6u);
  const nlohmann::json json = written(trace);
  EXPECT_EQ(json["otherData"]["dropped_events"]["busy"], 6);
  EXPECT_EQ(json["otherData"]["dropped_events"]["quiet"], 0);
  std::vector<int> args;
  for (const auto& event : events_of(json, "X")) args.push_back(event["args"]["arg"].get<int>());
  EXPECT_EQ(args, (std::vector<int>{6, 7, 8, 9, 99}));
}

TEST(TraceTest, NothingIsRecordedWhileDisabled) {
  StoppedClock clock;
  Trace trace(clock);
  Trace::Track& lane = trace.add_track("compute");
  trace.set_enabled(false);
  { const TraceSpan span(lane, "op"); }
  lane.span("op", 0, 1, 2);
  lane.counter("bytes", 1);
  EXPECT_TRUE(events_of(written(trace), "X").empty());
  EXPECT_TRUE(events_of(written(trace), "C").empty());
}

TEST(TraceTest, RecordingAllocatesNothing) {
  ASSERT_TRUE(AllocCounter::hooked());
  StoppedClock clock;
  Trace trace(clock, {.events_per_track = 8});
  Trace::Track& lane = trace.add_track("compute");
  Trace::Notes& notes = trace.notes();
  const std::uint64_t before = AllocCounter::count();
  AllocCounter::set_armed(true);
  for (int i = 0; i < 100; ++i) {
    const TraceSpan span(lane, "op", i);
    lane.counter("bytes", i);
    notes.add({.what = "use", .number = i});
  }
  AllocCounter::set_armed(false);
  EXPECT_EQ(AllocCounter::count(), before);
}

TEST(TraceTest, NotesReferToTheWorkOfSpansInTheOrderInWhichTheyWereAdded) {
  StoppedClock clock;
  Trace trace(clock);
  trace.add_track("compute").span("op", 0, 2'000'000, 2'000'500, {3, 41});
  trace.notes().add(
      {.what = "copy", .kind = "param", .number = 7, .place = "device", .last = {3, 41}, .after = 40});
  clock.now += 1500;
  trace.notes().add({.what = "absent", .kind = "param", .number = 7, .place = "device"});
  const nlohmann::json json = written(trace);
  EXPECT_EQ(events_of(json, "X")[0]["args"], nlohmann::json::parse(R"({"arg":0,"queue":3,"work":41})"));
  EXPECT_EQ(json["notes"], nlohmann::json::parse(R"([["copy","param",7,"device",3,40,41,0.0],
                                                     ["absent","param",7,"device",-1,0,0,1.5]])"));
  EXPECT_EQ(events_of(json, "X")[0]["ts"], 1000) << "the first note is the earliest";
  EXPECT_EQ(trace.spans()[0].spans[0].work.number, 41u);
  EXPECT_EQ(trace.all_notes().size(), 2u);
}

TEST(TraceTest, NotesAreTakenWhileEnabledAndTheOldestAreDropped) {
  StoppedClock clock;
  Trace trace(clock, {.notes = 3});
  trace.set_enabled(false);
  trace.notes().add({.what = "copy"});
  trace.notes().add_always({.what = "plan"});
  EXPECT_EQ(trace.all_notes().size(), 1u);
  trace.set_enabled(true);
  for (int i = 0; i < 5; ++i) trace.notes().add({.what = "use", .number = i});
  std::vector<std::int64_t> numbers;
  for (const Trace::Note& note : trace.all_notes()) numbers.push_back(note.number);
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(written(trace)["otherData"]["dropped_events"]["notes"], 3);
}

TEST(TraceTest, TheProcessHasANameAndTheStartATimeOfDay) {
  StoppedClock clock;
  Trace trace(clock, {.process = "rank 3"});
  const nlohmann::json json = written(trace);
  EXPECT_EQ(events_of(json, "M")[0]["args"]["name"], "rank 3");
  EXPECT_GT(json["otherData"]["begin_unix_ns"], std::int64_t{1'600'000'000} * 1'000'000'000);
}

TEST(TraceTest, ShortWritesAreContinued) {
  StoppedClock clock;
  Trace trace(clock);
  Trace::Track& lane = trace.add_track("compute");
  for (int i = 0; i < 6000; ++i) lane.span("op", i, i, i + 1);  // more than one block
  EXPECT_EQ(events_of(written(trace, 1000), "X").size(), 6000u);
}

TEST(TraceTest, AFullDiskIsReportedAndLeavesTheOldFile) {
  StoppedClock clock;
  Trace trace(clock);
  trace.add_track("compute");
  LimitedIo io;
  io.files["trace.json"] = "old";
  io.capacity = 0;
  EXPECT_EQ(trace.write(io, "trace.json").code(), Code::no_space);
  EXPECT_EQ(io.files["trace.json"], "old");
}

TEST(TraceTest, ManyThreadsMayRecordWhileItIsWritten) {
  SteadyClock clock;
  Trace trace(clock, {.events_per_track = 256});
  Trace::Track& shared = trace.add_track("shared");
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&trace, &shared] {
      Trace::Track& own = trace.add_track("own");
      for (int i = 0; i < 2000; ++i) {
        shared.counter("n", i);
        const TraceSpan span(own, "op", i);
        trace.notes().add({.what = "use", .number = i});
      }
    });
  for (int i = 0; i < 5; ++i) static_cast<void>(written(trace));
  threads.clear();
  EXPECT_EQ(shared.dropped(), 4 * 2000 - 256u);
}

}  // namespace
}  // namespace strata
