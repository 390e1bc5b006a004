// Tests what is read from a run folder.
#include <gmock/gmock.h>

#include <cmath>

#include <strata/report/run_record.h>

#include "report/run_fixture.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

TEST(RunRecord, TheValidationBehindTheLastStepIsOneOfItsValidations) {
  const test::TempDir dir;
  const std::string run = dir.path() + "/run";
  test::write_run(run, 150);
  must(write_text_atomically(posix_io(), run + "/summary.json",
                             "{\"steps\": 150, \"val_loss\": 3.25, \"val_accuracy\": 0.5}"));
  const std::vector<RunRecord::Validation> validations = must(read_run_record(posix_io(), run)).validations;
  ASSERT_EQ(validations.size(), 2u);
  EXPECT_EQ(validations[1].step, 150);
  EXPECT_EQ(validations[1].loss, 3.25);
  EXPECT_EQ(validations[1].accuracy, 0.5);
}

TEST(RunRecord, HasTheFiguresOfEveryStep) {
  const test::TempDir dir;
  test::write_run(dir.path() + "/run", 250);
  const RunRecord run = must(read_run_record(posix_io(), dir.path() + "/run/"));
  EXPECT_EQ(run.name, "run");
  ASSERT_EQ(run.steps.size(), 250u);
  EXPECT_EQ(run.steps.back(), 250);
  ASSERT_NE(run.find("loss"), nullptr);
  EXPECT_DOUBLE_EQ(run.find("loss")->at(3), 5.0);
  EXPECT_EQ(run.find("loss_bits")->at(3), 5e6);
  EXPECT_EQ(run.find("skipped")->at(0), 0);
  EXPECT_EQ(run.find("used_bytes.device")->at(249), 33124352);
  EXPECT_EQ(run.find("nothing"), nullptr);
  EXPECT_TRUE(std::isnan(run.mean("nothing")));
  ASSERT_EQ(run.validations.size(), 2u);
  EXPECT_EQ(run.validations[1].step, 200);
  ASSERT_EQ(run.samples.size(), 2u);
  EXPECT_EQ(run.samples[0].step, 10);
  EXPECT_THAT(run.samples[0].text, HasSubstr("<truth>"));
  EXPECT_EQ(run.samples[1].text, "second\n");
  ASSERT_EQ(run.settings.size(), 3u);
  EXPECT_EQ(run.settings[1].key, "model.name");
  EXPECT_EQ(run.settings[1].value, "\"a # b\"");
  EXPECT_EQ(run.settings[2].origin, "preset austen-5m");
  ASSERT_EQ(run.tiers.size(), 3u);
  EXPECT_EQ(run.tiers[0].planned, 33124352u);
  EXPECT_GT(run.tiers[1].budget, std::uint64_t{1} << 60) << "null: no limit";
  EXPECT_FALSE(run.has_ended);
  EXPECT_EQ(run.facts.at("dtype"), "bf16");
  ASSERT_EQ(run.homes.size(), 2u);
}

TEST(RunRecord, ALineThatIsBeingWrittenIsLeftOut) {
  const test::TempDir dir;
  test::write_run(dir.path(), 5);
  std::string metrics = must(read_text(posix_io(), dir.path() + "/metrics.jsonl", 1 << 20));
  must(write_text_atomically(posix_io(), dir.path() + "/metrics.jsonl",
                             metrics.substr(0, metrics.size() - 40)));
  EXPECT_EQ(must(read_run_record(posix_io(), dir.path())).steps.size(), 4u);
}

TEST(RunRecord, OfVeryManyStepsSomeAndTheLastAreKept) {
  const test::TempDir dir;
  test::write_run(dir.path(), 1);
  std::string metrics;
  for (int step = 1; step <= 50001; ++step)
    metrics += fmt::format("{{\"step\": {}, \"loss\": {}}}\n", step, step * 2);
  must(write_text_atomically(posix_io(), dir.path() + "/metrics.jsonl", metrics));
  const RunRecord run = must(read_run_record(posix_io(), dir.path()));
  EXPECT_GE(run.steps.size(), 10000u);
  EXPECT_LE(run.steps.size(), 20001u);
  EXPECT_EQ(run.steps.front(), 1);
  EXPECT_EQ(run.steps.back(), 50001);
  for (std::size_t i = 0; i < run.steps.size(); ++i)
    ASSERT_EQ(run.find("loss")->at(i), 2.0 * static_cast<double>(run.steps[i]));
}

TEST(RunRecord, AFigureThatAStepLacksIsNoNumber) {
  const test::TempDir dir;
  test::write_run(dir.path(), 2);
  must(write_text_atomically(
      posix_io(), dir.path() + "/metrics.jsonl",
      "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": null, \"more\": 7}\n{\"step\": 3}\n"));
  const RunRecord run = must(read_run_record(posix_io(), dir.path()));
  ASSERT_EQ(run.find("loss")->size(), 3u);
  EXPECT_EQ(run.find("loss")->at(0), 2);
  EXPECT_TRUE(std::isnan(run.find("loss")->at(1)));
  ASSERT_EQ(run.find("more")->size(), 3u);
  EXPECT_TRUE(std::isnan(run.find("more")->at(0)));
  EXPECT_EQ(run.find("more")->at(1), 7);
}

TEST(RunRecord, WhatIsDamagedIsNamed) {
  const test::TempDir dir;
  EXPECT_EQ(read_run_record(posix_io(), dir.path()).status().code(), Code::not_found);
  test::write_run(dir.path(), 3);
  const std::string good = must(read_text(posix_io(), dir.path() + "/metrics.jsonl", 1 << 20));
  must(
      write_text_atomically(posix_io(), dir.path() + "/metrics.jsonl", good + "{\"step\": 4, \"loss\": }\n"));
  const Status line = read_run_record(posix_io(), dir.path()).status();
  EXPECT_EQ(line.code(), Code::corrupt);
  EXPECT_THAT(std::string(line.message()), HasSubstr("metrics.jsonl:4"));
  must(write_text_atomically(posix_io(), dir.path() + "/metrics.jsonl", good));
  must(write_text_atomically(posix_io(), dir.path() + "/plan.json",
                             "{\"tiers\": {\"device\": {\"budget_bytes\": \"x\"}}}"));
  EXPECT_THAT(std::string(read_run_record(posix_io(), dir.path()).status().message()),
              HasSubstr("plan.json"));
}

TEST(RunRecord, TheIntervalsOfATraceAreThoseOfItsLanes) {
  const test::TempDir dir;
  test::write_run(dir.path(), 1);
  must(write_text_atomically(
      posix_io(), dir.path() + "/trace.json",
      R"({"traceEvents":[{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"strata"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"compute"}},
{"ph":"X","pid":1,"tid":1,"ts":20.5,"dur":3,"name":"gemm","args":{"arg":1}},
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"h2d"}},
{"ph":"C","pid":1,"tid":2,"ts":11,"name":"used","args":{"value":1}},
{"ph":"X","pid":1,"tid":2,"ts":10.5,"dur":4.25,"name":"copy","args":{"arg":64}}]})"));
  const RunRecord::Timeline timeline = must(read_run_record(posix_io(), dir.path())).timeline;
  EXPECT_THAT(timeline.lanes, ::testing::ElementsAre("compute", "h2d"));
  ASSERT_EQ(timeline.spans.size(), 2u);
  EXPECT_EQ(timeline.spans[0].begin_us, 10) << "from the first interval on";
  EXPECT_EQ(timeline.spans[1].us, 4.25);
  EXPECT_EQ(timeline.spans[1].arg, 64);
}

}  // namespace
}  // namespace strata
