// Changes budgets while a run trains, and tests what the run does if they are too small.
#include <sys/mount.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliBudgetE2e : public CliE2e {
 protected:
  /// A run that is asked for something while it trains takes about a second, so that it does not end before.
  static constexpr int kLiveSteps = 240;
  static inline const Words kRoomy = {"memory.device=8MiB", "memory.pinned=8MiB", "memory.nvme=0"};
  static inline const Words kTight = {"memory.device=600KiB", "memory.pinned=1300KiB", "memory.nvme=8MiB"};

  static Words run_of(const std::string& out, int steps, const Words& more) {
    Words words = {"--out", out, str("train.steps=", steps), "log.every=1"};
    words.insert(words.end(), more.begin(), more.end());
    return tiny("train", words);
  }
  static Words budget_of(const std::string& run, const Words& more) {
    Words words = {"budget", run};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// Asks the run for other budgets. It stands still meanwhile, so that it cannot end before it is asked.
  ProgramResult change_budgets(const RunningProgram& program, const Words& more) {
    program.send(SIGSTOP);
    ProgramResult asked = strata(budget_of("run", more));
    program.send(SIGCONT);
    return asked;
  }
  void expect_same_states(const std::string& a, const std::string& b) const {
    EXPECT_EQ(summary(a)["state_digest"], summary(b)["state_digest"]);
    EXPECT_EQ(summary(a)["val_loss_bits"], summary(b)["val_loss_bits"]);
  }
};

TEST_F(CliBudgetE2e, ARunContinuesWithOtherBudgetsAndTheSameBits) {
  ASSERT_EQ(strata(run_of("whole", kLiveSteps, kRoomy)).exit_code, 0);
  RunningProgram program(STRATA_PROGRAM, run_of("run", kLiveSteps, kRoomy), options_);
  ASSERT_TRUE(program.wait_for("step 3/"));
  const ProgramResult cut = change_budgets(program, kTight);
  ASSERT_EQ(cut.exit_code, 0) << cut.output();
  EXPECT_THAT(cut.out, HasSubstr("before its next step"));
  ASSERT_TRUE(program.wait_for("continuing with memory.device=600KiB"));
  ASSERT_EQ(change_budgets(program, {"memory.device=2MiB"}).exit_code, 0);
  const ProgramResult ended = program.finish();
  ASSERT_EQ(ended.exit_code, 0) << ended.output();
  EXPECT_THAT(ended.out, HasSubstr("continuing with memory.device=2MiB"));
  expect_same_states("run", "whole");
  EXPECT_EQ(summary("run")["budget_bytes"]["device"], 2 << 20);
  EXPECT_EQ(summary("run")["budget_bytes"]["pinned"], 1300 << 10) << "what was not requested again stays";
  EXPECT_GT(summary("run")["moved_bytes"]["nvme_write"], 0);
  EXPECT_FALSE(exists("run/budget.request"));
}

TEST_F(CliBudgetE2e, InvalidOrTooSmallBudgetsAreRefusedWithoutDisturbingTheRun) {
  ASSERT_EQ(strata(run_of("run", 2, kRoomy)).exit_code, 0);
  const auto refused = [&](const Words& words, int code, const std::string& says) {
    const ProgramResult result = strata(budget_of("run", words));
    EXPECT_EQ(result.exit_code, code) << result.output();
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_FALSE(exists("run/budget.request"));
  };
  refused({"memory.device=4KiB"}, 3, "it fits with:");
  refused({"memory.device=much"}, 2, "memory.device");
  refused({"train.steps=9", "optim.lr=1"}, 2,
          "optim.lr=1: only memory.device, memory.pinned and memory.nvme can be changed");
  refused({}, 2, "missing run or budgets");
  EXPECT_EQ(strata(budget_of("nowhere", {"memory.device=1MiB"})).exit_code, 2);
}

TEST_F(CliBudgetE2e, ARequestThatCannotBeSatisfiedLeavesTheRunUnchanged) {
  ASSERT_EQ(strata(run_of("whole", kLiveSteps, kRoomy)).exit_code, 0);
  RunningProgram program(STRATA_PROGRAM, run_of("run", kLiveSteps, kRoomy), options_);
  ASSERT_TRUE(program.wait_for("step 2/"));
  write("run/budget.request", "memory.device=4KiB\n");
  ASSERT_TRUE(program.wait_for("budget change refused (memory.device=4KiB)"));
  write("run/budget.request", "nonsense\n");
  ASSERT_TRUE(program.wait_for("nonsense: only memory.device, memory.pinned and memory.nvme"));
  EXPECT_FALSE(exists("run/budget.request"));
  const ProgramResult ended = program.finish();
  EXPECT_EQ(ended.exit_code, 0) << ended.output();
  expect_same_states("run", "whole");
}

/// Provides a disk with three quarters of the space that kTight needs on NVMe. The test is skipped if a tmpfs
/// cannot be mounted.
class CliSmallDiskE2e : public CliBudgetE2e {
 protected:
  void SetUp() override {
    Words words = kTight;
    words.emplace_back("--json");
    const auto plan = nlohmann::json::parse(strata(tiny("plan", words)).out);
    const auto needed = plan["tiers"]["nvme"]["planned_bytes"].get<std::uint64_t>();
    must(posix_io().make_dirs(file("disk")));
    is_mounted_ =
        ::mount("tmpfs", file("disk").c_str(), "tmpfs", 0, str("size=", needed / 4 * 3).c_str()) == 0;
    if (!is_mounted_) GTEST_SKIP() << "no tmpfs may be mounted here: " << std::strerror(errno);
    ASSERT_EQ(strata(run_of("whole", kLiveSteps, kRoomy)).exit_code, 0);
  }
  ~CliSmallDiskE2e() override {
    if (is_mounted_) ::umount2(file("disk").c_str(), MNT_DETACH);
  }
  /// Asks a run that is completely in RAM to use the disk. It must print `answer` and continue to the same
  /// bits.
  void expect_goes_on(const Words& disk, const std::string& answer) {
    Words words = kRoomy;
    words.insert(words.end(), disk.begin(), disk.end());
    RunningProgram program(STRATA_PROGRAM, run_of("run", kLiveSteps, words), options_);
    ASSERT_TRUE(program.wait_for("step 2/"));
    ASSERT_EQ(change_budgets(program, kTight).exit_code, 0);
    EXPECT_TRUE(program.wait_for(answer));
    const ProgramResult ended = program.finish();
    EXPECT_EQ(ended.exit_code, 0) << ended.output();
    EXPECT_THAT(ended.out, Not(HasSubstr("continuing with ")));
    expect_same_states("run", "whole");
    EXPECT_EQ(summary("run")["budget_bytes"]["device"], 8 << 20);
    EXPECT_EQ(strata({"train", "--resume", "run", str("train.steps=", kLiveSteps + 1)}).exit_code, 0);
  }

 private:
  bool is_mounted_ = false;
};

TEST_F(CliSmallDiskE2e, ADiskWithoutRoomIsDetectedBeforeTheEngineIsDestroyed) {
  expect_goes_on({"memory.nvme_dir=disk"},
                 "training continues with the old budgets: memory.nvme_dir = " + file("disk"));
}

// Each folder by itself has room for its half, so only creating the store fails.
TEST_F(CliSmallDiskE2e, IfTheNewPlanFailsTheRunContinuesWithTheOldOne) {
  expect_goes_on({"memory.nvme_dir=disk/a,disk/b", "memory.nvme_rates=1,1"},
                 "training continues with the old budgets from run/checkpoints/");
}

TEST_F(CliBudgetE2e, AStoppedRunAppliesRequestedBudgetsWhenItIsResumed) {
  ASSERT_EQ(strata(run_of("whole", 6, kRoomy)).exit_code, 0);
  ASSERT_EQ(strata(run_of("run", 6,
                          {"memory.device=8MiB", "memory.pinned=8MiB", "memory.nvme=0", "train.max_time=0s"}))
                .exit_code,
            0);
  ASSERT_EQ(strata(budget_of("run", kTight)).exit_code, 0);
  const ProgramResult resumed = strata({"train", "--resume", "run", "train.max_time=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output();
  EXPECT_THAT(resumed.out, AllOf(HasSubstr("600.0 KiB"), Not(HasSubstr("continuing with "))))
      << "it starts in them";
  EXPECT_FALSE(exists("run/budget.request"));
  expect_same_states("run", "whole");
}

TEST_F(CliBudgetE2e, SplitMicroBatchesStaySplitWithOtherBudgets) {
  const Words split = {"train.micro_batch=8", "train.recompute=none", "offload.activations=none",
                       "memory.device=1MiB", "train.allow_micro_batch_split=true"};
  RunningProgram program(STRATA_PROGRAM, run_of("run", kLiveSteps, split), options_);
  ASSERT_TRUE(program.wait_for("step 3/"));
  const ProgramResult asked = change_budgets(program, {"memory.device=8MiB"});
  ASSERT_EQ(asked.exit_code, 0) << asked.output();
  const ProgramResult ended = program.finish();
  ASSERT_EQ(ended.exit_code, 0) << ended.output();
  EXPECT_THAT(ended.out, HasSubstr("continuing with memory.device=8MiB"));
  EXPECT_THAT(ended.out, Not(HasSubstr("refused")));
  EXPECT_EQ(strata({"train", "--resume", "run", str("train.steps=", kLiveSteps + 1)}).exit_code, 0);
}

TEST_F(CliBudgetE2e, ChangesToTheOriginalConfigFileDoNotAffectTheRun) {
  write("run.toml", "[optim]\nlr = 1e-3\n");
  RunningProgram program(
      STRATA_PROGRAM,
      tiny("train", {"run.toml", "--out", "run", str("train.steps=", kLiveSteps), "log.every=1"}), options_);
  ASSERT_TRUE(program.wait_for("step 3/"));
  write("run.toml", "[optim]\nlr = 1e-1\n");
  ASSERT_EQ(change_budgets(program, {"memory.device=8MiB"}).exit_code, 0);
  ASSERT_EQ(program.finish().exit_code, 0);
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), HasSubstr("lr = 0.001"));
}

// The undo log of these budgets is what the placement leaves. Reserved before the states are placed, it would
// move nine payloads from the device to nvme.
TEST_F(CliBudgetE2e, AResumedRunHasThePlanOfItsStart) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "However little known the feelings or views of such a man may be. ";
  write("a.txt", text);
  ASSERT_EQ(strata({"train",
                    "--out",
                    "run",
                    "model.family=opt",
                    "model.layers=6",
                    "model.hidden=512",
                    "model.heads=8",
                    "model.ffn=1536",
                    "model.vocab=512",
                    "model.seq=64",
                    "train.dtype=f16",
                    "train.micro_batch=2",
                    "train.grad_accum=4",
                    "optim.name=sgd",
                    "optim.clip=0.5",
                    "offload.states=bf16",
                    "offload.step_mode=speculative",
                    "train.recompute=selective",
                    "memory.device=202375168",
                    "memory.pinned=34603008",
                    "memory.nvme=1280MiB",
                    "data.train=a.txt",
                    "train.eval_every=0",
                    "log.sample_every=0",
                    "train.steps=1"})
                .exit_code,
            0);
  const std::string plan = read_all(file("run/plan.json"));
  ASSERT_THAT(plan, HasSubstr("\"home_payloads\": 82"));
  ASSERT_EQ(strata({"train", "--resume", "run", "train.steps=2"}).exit_code, 0);
  EXPECT_EQ(read_all(file("run/plan.json")), plan);
}

TEST_F(CliBudgetE2e, PlannedKeysAreDecidedAgainForOtherBudgets) {
  ASSERT_EQ(strata(run_of("run", 2, kRoomy)).exit_code, 0);
  EXPECT_THAT(read_all(file("run/config.resolved.toml")),
              AllOf(HasSubstr("recompute = \"none\""), HasSubstr("auto_keys = [")));
  Words words = {"train", "--resume", "run", "train.steps=3"};
  words.insert(words.end(), kTight.begin(), kTight.end());
  const ProgramResult resumed = strata(words);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output();
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), Not(HasSubstr("recompute = \"none\"")));
}

TEST_F(CliBudgetE2e, MicroBatchesAreSplitOnlyIfAllowed) {
  const Words small = {"train.micro_batch=8", "train.recompute=none", "offload.activations=none",
                       "memory.device=1MiB"};
  Words allowed = small;
  allowed.emplace_back("train.allow_micro_batch_split=true");
  const ProgramResult refused = strata(run_of("refused", 2, small));
  EXPECT_EQ(refused.exit_code, 3) << refused.output();
  const ProgramResult split = strata(run_of("run", 2, allowed));
  ASSERT_EQ(split.exit_code, 0) << split.output();
  EXPECT_THAT(split.out, AllOf(HasSubstr("micro-batches were split"),
                               HasSubstr("train.micro_batch=8 train.grad_accum=2")));
  EXPECT_EQ(strata({"train", "--resume", "run", "train.steps=3"}).exit_code, 0);
}

}  // namespace
}  // namespace strata::test
