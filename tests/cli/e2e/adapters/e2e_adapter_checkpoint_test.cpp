// Checkpoints of adapters over a Hugging Face folder: they hold what is trained, and the rest is read from
// there.
#include <csignal>
#include <filesystem>

#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliAdapterCheckpointE2e : public AdapterRunsE2e {};

TEST_F(CliAdapterCheckpointE2e, AKilledRunResumesBitForBitFromTheAdapterAlone) {
  make_base("base");
  for (const std::string dtype : {"train.dtype=f32", "train.dtype=bf16"}) {
    expect_killed_run_resumes(dtype);
    EXPECT_GT(manifest("run/checkpoints/step-00000006")["frozen"].size(), 10u);
  }
}

TEST_F(CliAdapterCheckpointE2e, AnyNumberOfRanksResumesWithTheSameBits) {
  const auto with = [](Words words) {  // a schedule that does not depend on the last step
    words.insert(words.end(), {"train.grad_accum=6", "optim.schedule=constant", "optim.warmup=0"});
    return words;
  };
  make_base("base");
  succeeds(run_of("whole", with({})));
  succeeds(run_of("run", with({"parallel.ranks=2", "train.steps=2"})));
  expect_small("run/checkpoints/step-00000002");
  succeeds({"train", "--resume", "run", "parallel.ranks=3", "parallel.zero=3", "train.steps=4"});
  succeeds({"train", "--resume", "run", "parallel.ranks=1", "parallel.zero=auto", "train.steps=6"});
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
  for (const std::string& name : list("whole/checkpoints/step-00000006"))
    EXPECT_EQ(read_all(file("run/checkpoints/step-00000006/" + name)),
              read_all(file("whole/checkpoints/step-00000006/" + name)))
        << name;
}

TEST_F(CliAdapterCheckpointE2e, BudgetsChangeDuringTheRun) {
  const Words steps = {"train.steps=120", "train.grad_accum=1", "memory.device=8MiB", "memory.pinned=8MiB"};
  make_base("base");
  succeeds(run_of("whole", steps));
  RunningProgram program(STRATA_PROGRAM, run_of("run", steps), options_);
  ASSERT_TRUE(program.wait_for("step 3/"));
  program.send(SIGSTOP);
  const ProgramResult asked = strata({"budget", "run", "memory.device=2MiB"});
  program.send(SIGCONT);
  ASSERT_EQ(asked.exit_code, 0) << asked.output();
  ASSERT_TRUE(program.wait_for("continuing with memory.device=2MiB"));
  const ProgramResult ended = program.finish();
  ASSERT_EQ(ended.exit_code, 0) << ended.output();
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
}

TEST_F(CliAdapterCheckpointE2e, ABaseThatWasMovedIsNamedAgain) {
  make_base("base");
  succeeds(run_of("run", {"train.dtype=f32"}));
  succeeds({"export", "run", "--out", "merged", "--format", "merged", "--check"});
  const double loss = evaluated({"run"})["loss"];
  // The merged weights are sums that are rounded once more.
  EXPECT_NEAR(evaluated({"merged", "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5);
  move("base", "moved");
  succeeds({"export", "run", "--out", "adapter", "--check"});
  for (const Words& words : {Words{"train", "--resume", "run", "train.steps=7"}, Words{"eval", "run"},
                             Words{"generate", "run", "--prompt", "She "},
                             Words{"export", "run", "--out", "again", "--format", "merged"}})
    EXPECT_THAT(refused(words),
                AllOf(HasSubstr("/base, which has the frozen parameters of this run (if it was moved, set "
                                "model.from to its new place)"),
                      HasSubstr("/base/config.json: No such file or directory")));
  EXPECT_EQ(evaluated({"run", "model.from=moved"})["loss"].get<double>(), loss);
  succeeds({"generate", "run", "model.from=moved", "--prompt", "She ", "--tokens", "4"});
  succeeds({"export", "run", "model.from=moved", "--out", "again", "--format", "merged", "--check"});
  EXPECT_EQ(read_all(file("again/model.safetensors")), read_all(file("merged/model.safetensors")));
  succeeds({"train", "--resume", "run", "train.steps=7", "model.from=moved"});
  succeeds({"eval", "run"});  // the run knows the new place
}

TEST_F(CliAdapterCheckpointE2e, AnotherBaseIsRefusedByTheNameOfATensor) {
  make_base("base");
  make_base("other", 2);
  succeeds(run_of("run"));
  const std::string before = read_all(file("run/checkpoints/step-00000006/manifest.json"));
  move("base", "moved");
  move("other", "base");
  for (const Words& words : {Words{"train", "--resume", "run", "train.steps=7"}, Words{"eval", "run"},
                             Words{"train", "--resume", "run", "train.steps=8", "parallel.ranks=2"},
                             Words{"generate", "run", "--prompt", "She "},
                             Words{"export", "run", "--out", "merged", "--format", "merged"}})
    EXPECT_THAT(refused(words),
                AllOf(HasSubstr("is not the one that this checkpoint was trained over: tensor "),
                      HasSubstr("has the digest"), HasSubstr(", the checkpoint says ")));
  EXPECT_FALSE(exists("merged"));
  EXPECT_EQ(read_all(file("run/checkpoints/step-00000006/manifest.json")), before);
  EXPECT_THAT(list("run/checkpoints"), ::testing::Contains("step-00000006"));
  succeeds({"train", "--resume", "run", "train.steps=7", "model.from=moved"});
}

TEST_F(CliAdapterCheckpointE2e, ARunWhoseFrozenParametersAreNotAllInTheFolderSavesThem) {
  make_base("base");
  succeeds(run_of("frozen", {"train.freeze=*.lora_A"}));
  EXPECT_FALSE(manifest("frozen/checkpoints/step-00000006").contains("frozen"));
  Words random = run_of("random");
  random.erase(std::find(random.begin(), random.end(), "--init"));
  random.erase(std::find(random.begin(), random.end(), "base"));
  succeeds(random);
  EXPECT_FALSE(manifest("random/checkpoints/step-00000006").contains("frozen"));
  std::filesystem::remove_all(file("base"));
  for (const char* run : {"frozen", "random"}) {
    succeeds({"eval", run});
    succeeds({"train", "--resume", run, "train.steps=7"});
  }
}

// A run that goes on from a folder of PEFT has taken it into its own checkpoints.
TEST_F(CliAdapterCheckpointE2e, ARunNeedsTheBaseAndNotTheAdapterThatItBeganWith) {
  make_base("base");
  succeeds(run_of("first"));
  succeeds({"export", "first", "--out", "adapter"});
  succeeds(tiny("train", {"--out", "run", "--init", "base", "--adapter", "adapter", "train.steps=2"}));
  expect_small("run/checkpoints/step-00000002");
  std::filesystem::remove_all(file("adapter"));
  succeeds({"train", "--resume", "run", "train.steps=3"});
  succeeds({"export", "run", "--out", "adapter", "--check"});
  EXPECT_THAT(refused(tiny("train", {"--out", "more", "--init", "base",
                                     "model.states=run/checkpoints/step-00000003"})),
              HasSubstr("frozen tensors: it is of a run of adapters"));
}

}  // namespace
}  // namespace strata::test
