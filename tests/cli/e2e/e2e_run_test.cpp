// The output of a run, and that interrupting it in any way does not change a bit of it.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <sstream>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliRunE2e : public CliE2e {
 protected:
  Words run_of(const std::string& name, int steps, const Words& words = {}) const {
    Words all = {"--out", name, str("train.steps=", steps), "checkpoint.every=3", "log.every=1"};
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  void expect_same(const std::string& name, const std::string& want) const {
    EXPECT_EQ(loss_bits(name), loss_bits(want));
    EXPECT_EQ(digest(name), digest(want));
    for (const char* key : {"steps", "train_loss", "val_loss", "bits_per_byte"})
      EXPECT_EQ(summary(name)[key], summary(want)[key]) << key;
    EXPECT_TRUE(list("runs/nvme").empty());
  }
};

// --- Signals ---

class CliSignalE2e : public CliRunE2e, public ::testing::WithParamInterface<int> {};

TEST_P(CliSignalE2e, ASignalSavesAfterTheStepAndTheResumedRunHasTheSameBits) {
  ASSERT_EQ(strata(run_of("whole", 30)).exit_code, 0);
  RunningProgram program(STRATA_PROGRAM, run_of("run", 30), options_);
  ASSERT_TRUE(program.wait_for("step 5/30"));
  program.send(GetParam());
  const ProgramResult stopped = program.finish();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output();
  EXPECT_THAT(stopped.err, HasSubstr(", then saving; press again to stop without saving"));
  EXPECT_THAT(stopped.out, HasSubstr("continue with --resume run"));
  const int last = metrics("run").back()["step"];
  EXPECT_TRUE(exists(fmt::format("run/checkpoints/step-{:08}/manifest.json", last)));
  EXPECT_EQ(summary("run")["stop_reason"], "stopped");
  EXPECT_TRUE(summary("run")["val_loss"].is_null()) << "it was not measured";
  const ProgramResult resumed = strata({"train", "--resume", "run"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same("run", "whole");
}

INSTANTIATE_TEST_SUITE_P(Signals, CliSignalE2e, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_F(CliRunE2e, ASecondSignalEndsTheRunImmediatelyAndItCanBeResumed) {
  ASSERT_EQ(strata(run_of("whole", 30)).exit_code, 0);
  RunningProgram program(STRATA_PROGRAM, run_of("run", 30), options_);
  ASSERT_TRUE(program.wait_for("step 5/30"));
  program.send(SIGINT);
  program.send(SIGTERM);
  EXPECT_THAT(program.finish().exit_code, AnyOf(128 + SIGINT, 128 + SIGTERM));
  EXPECT_EQ(strata({"train", "--resume", "run"}).exit_code, 0);
  expect_same("run", "whole");
}

TEST_F(CliRunE2e, ASignalCancelsTheFinalValidationAndResumeRepeatsIt) {
  write("long.txt", austen("pride_and_prejudice"));
  RunningProgram program(STRATA_PROGRAM, run_of("run", 2, {"data.val=long.txt", "train.eval_every=0"}),
                         options_);
  ASSERT_TRUE(program.wait_for("saved run/checkpoints/step-00000002"));
  program.send(SIGINT);
  const ProgramResult stopped = program.finish();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output();
  EXPECT_THAT(stopped.err, HasSubstr("again to stop"));
  EXPECT_TRUE(summary("run")["val_loss"].is_null());
  ASSERT_EQ(strata({"train", "--resume", "run", "data.val=val.txt"}).exit_code, 0);
  EXPECT_FALSE(summary("run")["val_loss"].is_null());
}

TEST_F(CliRunE2e, TheTimeLimitEndsARunThatCanBeResumed) {
  ASSERT_EQ(strata(run_of("whole", 6)).exit_code, 0);
  ASSERT_EQ(strata(run_of("run", 6, {"train.max_time=0s"})).exit_code, 0);
  EXPECT_EQ(summary("run")["stop_reason"], "time limit");
  ASSERT_EQ(strata({"train", "--resume", "run", "train.max_time=none"}).exit_code, 0);
  expect_same("run", "whole");
}

TEST_F(CliRunE2e, TheWriteBudgetStopsARunBeforeItIsExceededAndResumeHasTheSameBits) {
  const Words swapping = {"offload.policy=nvme", "memory.nvme=16MiB"};
  ASSERT_EQ(strata(run_of("whole", 30, swapping)).exit_code, 0);
  EXPECT_TRUE(summary("whole")["write_budget_bytes"].is_null());
  const auto all = summary("whole")["nvme_bytes_written"].get<std::uint64_t>();
  ASSERT_GT(all, 0u);
  Words limited = swapping;
  limited.push_back(str("io.write_budget=", all / 2));
  const ProgramResult stopped = strata(run_of("run", 30, limited));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output();
  EXPECT_THAT(stopped.out, HasSubstr(str(" of ", all / 2, " bytes of io.write_budget are written; a step")));
  EXPECT_THAT(stopped.out, HasSubstr("continue with --resume run"));
  EXPECT_THAT(stopped.out, HasSubstr("more steps"));
  EXPECT_EQ(summary("run")["stop_reason"], "write budget");
  EXPECT_EQ(summary("run")["write_budget_bytes"], all / 2);
  EXPECT_LE(summary("run")["nvme_bytes_written"].get<std::uint64_t>(), all / 2);
  EXPECT_GT(summary("run")["steps"].get<int>(), 5);
  EXPECT_TRUE(
      exists(fmt::format("run/checkpoints/step-{:08}/manifest.json", summary("run")["steps"].get<int>())));
  ASSERT_EQ(strata({"train", "--resume", "run", "io.write_budget=unlimited"}).exit_code, 0);
  expect_same("run", "whole");
}

TEST_F(CliRunE2e, AWriteBudgetThatIsNotEnoughForAStepIsRefusedWithBothNumbers) {
  const Words keys = {"offload.policy=nvme", "memory.nvme=16MiB", "io.write_budget=100KiB"};
  for (const ProgramResult& refused : {strata(run_of("run", 30, keys)), strata(tiny("plan", keys))}) {
    EXPECT_EQ(refused.exit_code, 3) << refused.output();
    EXPECT_THAT(refused.err, AllOf(HasSubstr("io.write_budget is 102400 bytes"), HasSubstr("may write ")));
  }
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliRunE2e, SeveralNvmeDirectoriesHaveTheSameBitsAndStayEmpty) {
  const Words swapping = {"offload.policy=nvme", "memory.nvme=16MiB"};
  ASSERT_EQ(strata(run_of("whole", 6, swapping)).exit_code, 0);
  Words striped = swapping;
  striped.insert(striped.end(), {"memory.nvme_dir=a,b,c", "memory.nvme_rates=5,2,1"});
  const ProgramResult trained = strata(run_of("run", 6, striped));
  ASSERT_EQ(trained.exit_code, 0) << trained.output();
  EXPECT_THAT(trained.out, AllOf(HasSubstr("% in a, "), HasSubstr("% in b, "), HasSubstr("% in c")));
  expect_same("run", "whole");
  for (const char* dir : {"a", "b", "c"}) EXPECT_TRUE(list(dir).empty()) << dir;
  const ProgramResult measured =
      strata(run_of("measured", 6, {swapping[0], swapping[1], "memory.nvme_dir=a,b"}));
  ASSERT_EQ(measured.exit_code, 0) << measured.output();
  expect_same("measured", "whole");
}

TEST_F(CliRunE2e, KillsAtRandomTimesDoNotChangeABit) {
  ASSERT_EQ(strata(run_of("whole", 30)).exit_code, 0);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(str("seed ", seed));
  std::mt19937 random(seed);
  const auto next = [&] {
    return exists("run/config.resolved.toml") ? Words{"train", "--resume", "run"} : run_of("run", 30);
  };
  for (int kill = 0; kill < 5; ++kill) {
    RunningProgram program(STRATA_PROGRAM, next(), options_);
    program.wait_for(std::chrono::microseconds(random() % 400'000));
    program.send(SIGKILL);
    program.finish();
  }
  const ProgramResult finished = strata(next());
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  expect_same("run", "whole");
  for (const std::string folder : {"run", "run/checkpoints"})
    for (const std::string& name : list(folder))
      EXPECT_THAT(name, Not(AnyOf(HasSubstr(".tmp-"), HasSubstr(".unfinished")))) << "left by a kill";
}

TEST_F(CliRunE2e, AFolderInUseByAnotherRunIsRefusedAndLeftAsItIs) {
  ASSERT_EQ(strata(run_of("run", 2)).exit_code, 0);
  const std::string before = read_all(file("run/metrics.jsonl"));
  const auto other = must(posix_io().open(file("run/.lock"), OpenMode::append));
  must(other->lock());
  for (Words words :
       {Words{"train", "--resume", "run", "train.steps=4"}, run_of("run", 2, {"--overwrite"})}) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("run is in use by another run"));
  }
  EXPECT_EQ(read_all(file("run/metrics.jsonl")), before);
}

// --- Metrics and summary ---

TEST_F(CliRunE2e, MetricsAndSummaryHaveTheDocumentedFields) {
  ASSERT_EQ(strata(run_of("run", 13)).exit_code, 0);
  std::vector<nlohmann::json> lines = metrics("run");
  std::erase_if(lines, [](const nlohmann::json& line) { return line.contains("val_loss"); });
  ASSERT_EQ(lines.size(), 13u);
  std::vector<double> unexplained;  // seconds per step that no cause accounts for
  for (const nlohmann::json& line : lines) {
    for (const char* key :
         {"step", "loss", "loss_bits", "lr", "grad_norm", "clip_factor", "tokens_per_s", "step_s"})
      EXPECT_TRUE(line.contains(key)) << key;
    for (const char* tier : {"device", "pinned", "nvme"})
      EXPECT_TRUE(line["used_bytes"].contains(tier)) << tier;
    for (const char* lane : {"h2d", "d2h", "nvme_read", "nvme_write", "network"})
      EXPECT_TRUE(line["moved_bytes"].contains(lane)) << lane;
    EXPECT_EQ(line["loss_bits"].get<std::string>().size(), 8u);
    double waited = line["compute_s"].get<double>();
    EXPECT_GT(waited, 0);
    for (const char* cause : {"h2d", "d2h", "optimizer", "nvme", "collective", "data", "host"})
      waited += line["exposed_wait_s"][cause].get<double>();
    unexplained.push_back(std::abs(waited - line["step_s"].get<double>()));
  }
  // Each moment is attributed to one cause, and times are written to 1e-6 s. Between the two clock readings
  // of a step another process may run, hence the median.
  std::sort(unexplained.begin(), unexplained.end());
  EXPECT_LE(unexplained[unexplained.size() / 2], 1e-4);
  const nlohmann::json all = summary("run");
  for (const char* key :
       {"steps", "train_loss", "val_loss", "bits_per_byte", "tokens_per_s", "state_digest", "peak_bytes",
        "planned_bytes", "budget_bytes", "exposed_wait_s", "moved_bytes", "compute_s", "bottleneck", "lanes",
        "nvme_bytes_written", "write_budget_bytes", "peak_rss_bytes", "rss_limit_bytes", "steady_state"})
    EXPECT_TRUE(all.contains(key)) << key;
  EXPECT_EQ(all["state_digest"].get<std::string>().size(), 32u);
  EXPECT_GT(all["init_s"], 0.0);
  EXPECT_GT(all["digest_s"], 0.0);
  for (const char* lane : {"h2d", "d2h", "nvme_read", "nvme_write"}) {
    EXPECT_EQ(all["lanes"][lane]["bytes"], all["moved_bytes"][lane]) << lane;
    EXPECT_GT(all["lanes"][lane]["busy_s"].get<double>(), 0) << lane;
  }
}

TEST_F(CliRunE2e, TheDigestOfTheStatesCanBeLeftOut) {
  ASSERT_EQ(strata(run_of("run", 2, {"train.digest=false"})).exit_code, 0);
  const nlohmann::json all = summary("run");
  EXPECT_TRUE(all["state_digest"].is_null());
  EXPECT_EQ(all["digest_s"], 0.0);
}

TEST_F(CliRunE2e, PeaksAreWhatWasPlannedAndWithinTheBudgets) {
  ASSERT_EQ(strata(run_of("run", 13)).exit_code, 0);
  const nlohmann::json all = summary("run");
  EXPECT_EQ(all["peak_bytes"], all["planned_bytes"]);
  for (const char* tier : {"device", "pinned", "nvme"})
    EXPECT_LE(all["peak_bytes"][tier].get<std::uint64_t>(), all["budget_bytes"][tier].get<std::uint64_t>());
}

TEST_F(CliRunE2e, TheProcessStaysWithinItsRssLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory is resident too";
#endif
  ASSERT_EQ(strata(run_of("run", 13)).exit_code, 0);
  const nlohmann::json all = summary("run");
  EXPECT_LE(all["peak_rss_bytes"].get<std::uint64_t>(), all["rss_limit_bytes"].get<std::uint64_t>());
}

TEST_F(CliRunE2e, AStepAllocatesNothingAndCreatesNoStreamsBuffersOrFiles) {
  ASSERT_EQ(strata(run_of("run", 13)).exit_code, 0);
  EXPECT_EQ(summary("run")["steady_state"],
            nlohmann::json({{"heap_allocations", 0}, {"resources_created", 0}}));
}

TEST_F(CliRunE2e, VerifyFindsTheSameBitsInEveryPlacement) {
  const ProgramResult verified = strata(tiny("verify", {"--steps", "5"}));
  EXPECT_EQ(verified.exit_code, 0) << verified.output();
  EXPECT_THAT(verified.out, HasSubstr("all losses and states have the same bits"));
  EXPECT_THAT(verified.out, Not(HasSubstr("DIFFERS")));
}

// Keys that follow from others, or that a resumed run decides again for its machine, and gradients on two
// tiers.
TEST_F(CliRunE2e, ARunDecidesAllOtherAutos) {
  const std::set<std::string> may_be_open = {
      "kv_heads",          "epochs",       "warmup_ratio", "loss",         "max_pairs",
      "max_prompt",        "slots",        "clip_high",    "kl",           "critic_lr",
      "old_log_probs",     "gradients",    "engine",       "ranks",        "transport",
      "virtual_stages",    "stage_layers", "progress",     "head_dim",     "experts",
      "experts_per_token", "expert_ffn",   "shared_ffn",   "expert_block", "latent_cache"};
  ASSERT_EQ(strata(run_of("run", 1)).exit_code, 0);
  std::istringstream lines(read_all(file("run/config.resolved.toml")));
  std::vector<std::string> open;
  for (std::string line; std::getline(lines, line);)
    if (line.find(" = \"auto\"") != std::string::npos) open.push_back(line.substr(0, line.find(' ')));
  EXPECT_FALSE(open.empty());
  for (const std::string& key : open) EXPECT_TRUE(may_be_open.contains(key)) << key;
}

TEST_F(CliRunE2e, JsonOfPlanAndVerifyParses) {
  const auto placements = nlohmann::json::parse(strata(tiny("verify", {"--steps", "1", "--json"})).out);
  EXPECT_GE(placements.size(), 10u);
  for (const nlohmann::json& placement : placements) EXPECT_TRUE(placement["identical"]) << placement;
  const auto plan = nlohmann::json::parse(strata(tiny("plan", {"--json"})).out);
  EXPECT_EQ(plan["tiers"]["device"]["budget_bytes"], 2 << 20);
  for (const char* tier : {"device", "pinned", "nvme"}) {
    std::uint64_t at_home = 0;
    for (const nlohmann::json& payload : plan["homes"]) at_home += payload[tier].get<std::uint64_t>();
    EXPECT_EQ(plan["tiers"][tier]["home_bytes"], at_home) << tier;
  }
  EXPECT_EQ(plan["homes"].size(), 7u);
}

// --- Progress ---

TEST_F(CliRunE2e, AFileGetsPlainLines) {
  const ProgramResult trained = strata(run_of("run", 6));
  EXPECT_THAT(trained.out, HasSubstr("\nstep 6/6  loss "));
  EXPECT_THAT(trained.out, Not(HasSubstr("\r")));
  EXPECT_THAT(trained.out, Not(HasSubstr("\x1b")));
}

TEST_F(CliRunE2e, ATerminalGetsABarOnOneLine) {
  options_.out = ProgramOptions::Out::terminal;
  options_.environment = {"TERM=xterm"};
  const ProgramResult trained =
      strata(tiny("train", {"--out", "run", "train.steps=6", "train.eval_every=0", "log.sample_every=0"}));
  EXPECT_EQ(trained.exit_code, 0);
  const std::size_t begin = trained.out.find("\r\x1b[32m["), end = trained.out.find('\n', begin);
  ASSERT_NE(begin, std::string::npos) << trained.out;
  const std::string line = trained.out.substr(begin, end - begin);
  for (int step = 1; step <= 6; ++step) EXPECT_THAT(line, HasSubstr(str(" ", step, "/6  eta ")));
  EXPECT_THAT(trained.out, Not(HasSubstr("step 6/6")));
}

}  // namespace
}  // namespace strata::test
