// Commands do not touch folders of other runs, and in their own folder they only remove what strata wrote.
#include <sys/resource.h>

#include <filesystem>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliFolderE2e : public CliE2e {
 protected:
  Words run_of(const std::string& name, int steps, const Words& words = {}) const {
    Words all = {"--out", name, str("train.steps=", steps), "log.every=1", "log.sample_every=0"};
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  /// All files below `folder` with their contents.
  std::map<std::string, std::string> contents(const std::string& folder) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(file(folder)))
      all[entry.path().string()] = entry.is_regular_file() ? read_all(entry.path().string()) : "";
    return all;
  }
};

TEST_F(CliFolderE2e, ASecondCommandDoesNotAffectATrainingRun) {
  ASSERT_EQ(strata(run_of("run", 2)).exit_code, 0);
  must(posix_io().remove_all(file("run/summary.json")));
  const auto live = must(posix_io().open(file("run/.lock"), OpenMode::append));
  must(live->lock());
  const auto before = contents("run");
  for (const Words& words : {run_of("run", 2, {"--overwrite", "model.vocab=300"}),
                             run_of("run/", 2, {"--overwrite", "model.vocab=300"}),
                             Words{"train", "--resume", "run", "train.steps=4"},
                             run_of("other", 2, {"checkpoint.dir=run/checkpoints"})}) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.output();
    EXPECT_EQ(contents("run"), before) << refused.output();
  }
  EXPECT_FALSE(exists("other")) << "of a command that was refused nothing is left";
}

TEST_F(CliFolderE2e, ACheckpointFolderIsUsedByOneRunAtATime) {
  must(posix_io().make_dirs(file("saved")));
  const auto live = must(posix_io().open(file("saved/.lock"), OpenMode::append));
  must(live->lock());
  const ProgramResult refused = strata(run_of("run", 2, {"checkpoint.dir=saved"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("saved is in use by another run"));
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliFolderE2e, OnlyTemporaryFilesOfStrataAreRemoved) {
  const Words others = {"notes.tmp-1", "notes.tmp-0123456789abcdef", "metrics.jsonl.tmp-0123456789ABCDEF",
                        "my.metrics.jsonl.tmp-0123456789abcdef"};
  ASSERT_EQ(strata(run_of("run", 2)).exit_code, 0);
  must(posix_io().make_dirs(file("run/plan.json.tmp-0123456789abcdef")));
  for (const std::string& name : others) write("run/" + name, "mine");
  write("run/metrics.jsonl.tmp-0123456789abcdef", "a kill left this");
  ASSERT_EQ(strata({"train", "--resume", "run", "train.steps=3"}).exit_code, 0);
  for (const std::string& name : others) EXPECT_TRUE(exists("run/" + name)) << name;
  EXPECT_TRUE(exists("run/plan.json.tmp-0123456789abcdef")) << "a folder";
  EXPECT_FALSE(exists("run/metrics.jsonl.tmp-0123456789abcdef"));
}

TEST_F(CliFolderE2e, OverwritingRemovesWhatStrataWroteAndNothingElse) {
  must(posix_io().make_dirs(file("run/checkpoints")));
  write("run/checkpoints/best.pt", "mine");
  ASSERT_EQ(strata(run_of("run", 2, {"--overwrite"})).exit_code, 2) << "that never was a run";
  must(posix_io().remove_all(file("run")));
  ASSERT_EQ(strata(run_of("run", 2)).exit_code, 0);
  write("run/checkpoints/best.pt", "mine");
  write("run/thesis.txt", "mine");
  ASSERT_EQ(strata(run_of("run", 3, {"--overwrite"})).exit_code, 0);
  EXPECT_TRUE(exists("run/checkpoints/best.pt"));
  EXPECT_TRUE(exists("run/thesis.txt"));
  EXPECT_FALSE(exists("run/checkpoints/step-00000002"));
}

TEST_F(CliFolderE2e, ARunWhoseFolderIsRenamedEndsAndSavesInTheRenamedFolder) {
  ASSERT_EQ(strata(run_of("whole", 400)).exit_code, 0);
  RunningProgram program(STRATA_PROGRAM, run_of("run", 400), options_);
  ASSERT_TRUE(program.wait_for("step 5/"));
  must(posix_io().rename(file("run"), file("moved")));
  const ProgramResult ended = program.finish();
  EXPECT_EQ(ended.exit_code, 5) << ended.output();
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("run was renamed to "), HasSubstr(file("moved")), HasSubstr("is saved in ")));
  EXPECT_FALSE(exists("run"));
  const ProgramResult resumed = strata({"train", "--resume", "moved"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(loss_bits("moved"), loss_bits("whole"));
  EXPECT_EQ(digest("moved"), digest("whole"));
}

TEST_F(CliFolderE2e, ARunWhoseFolderIsRemovedEndsAndDoesNotCreateItAgain) {
  RunningProgram program(STRATA_PROGRAM, run_of("run", 4000), options_);
  ASSERT_TRUE(program.wait_for("step 5/"));
  must(posix_io().remove_all(file("run")));
  const ProgramResult ended = program.finish();
  EXPECT_EQ(ended.exit_code, 5) << ended.output();
  EXPECT_THAT(ended.err, AllOf(HasSubstr("run was removed while the run was using it"),
                               HasSubstr("could not be saved")));
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliFolderE2e, ADivergedRunSavesTheStatesFromBeforeTheStep) {
  const ProgramResult ended =
      strata(run_of("run", 50, {"optim.lr=1000000", "optim.warmup=0", "optim.clip=0", "train.dtype=f32"}));
  EXPECT_EQ(ended.exit_code, 4) << ended.output();
  EXPECT_THAT(ended.err, AllOf(HasSubstr("not finite"), HasSubstr("optim.non_finite=skip"),
                               HasSubstr(" is saved in run/checkpoints/step-")));
  EXPECT_EQ(list("run/checkpoints").size(), 1u);
  EXPECT_EQ(strata({"export", "run", "--out", "hf", "--check"}).exit_code, 0) << "it is whole";
}

TEST_F(CliFolderE2e, CheckpointsAreSavedByTimeByDefault) {
  ASSERT_EQ(strata(run_of("run", 4, {"checkpoint.interval=0s", "checkpoint.keep=9"})).exit_code, 0);
  EXPECT_EQ(list("run/checkpoints").size(), 4u);
}

TEST_F(CliFolderE2e, AFileSizeLimitIsReportedAsAnError) {
  options_.before_exec = [] {
    const rlimit limit = {100 << 10, 100 << 10};
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
  };
  const ProgramResult ended = strata(run_of("run", 2));
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(ended.exit_code, 5) << ended.output();
  EXPECT_THAT(ended.err, HasSubstr("EFBIG"));
}

TEST_F(CliFolderE2e, ReadAndWriteFailuresHaveTheDocumentedExitCodes) {
  ASSERT_EQ(strata(run_of("run", 2)).exit_code, 0);
  ASSERT_EQ(strata({"export", "run", "--out", "hf"}).exit_code, 0);
  EXPECT_EQ(strata(run_of("other", 2, {"data.train=nowhere.txt"})).exit_code, 2);
  EXPECT_EQ(strata({"export", "run", "--out", "/proc/nowhere/hf"}).exit_code, 5);
  EXPECT_EQ(strata(run_of("/proc/nowhere/run", 2)).exit_code, 5);
  EXPECT_EQ(strata({"tokenizer", "train", "val.txt", "--out", "nowhere/t.json"}).exit_code, 5);
  const std::string config = read_all(file("hf/config.json"));
  write("hf/config.json",
        std::string(config).replace(config.find("\"n_layer\": 2"), 12, "\"n_layer\": \"two\""));
  EXPECT_EQ(strata({"generate", "hf"}).exit_code, 2) << "a wrong value";
  write("hf/config.json", config.substr(0, config.size() / 2));
  EXPECT_EQ(strata({"generate", "hf"}).exit_code, 5) << "damage";
}

TEST_F(CliFolderE2e, ValidationsAreInTheMetricsAndTheLastAndBestInTheSummary) {
  const Words keys = {"train.eval_every=2", "checkpoint.every=4"};
  ASSERT_EQ(strata(run_of("run", 9, keys)).exit_code, 0);
  std::vector<nlohmann::json> measured;
  for (const nlohmann::json& line : metrics("run"))
    if (line.contains("val_loss")) measured.push_back(line);
  ASSERT_EQ(measured.size(), 4u);
  const nlohmann::json whole = summary("run");
  EXPECT_EQ(whole["last_validation"]["step"], 8);
  EXPECT_EQ(whole["last_validation"]["loss_bits"], measured.back()["val_loss_bits"]);
  double best = measured[0]["val_loss"];
  for (const nlohmann::json& line : measured) best = std::min(best, line["val_loss"].get<double>());
  EXPECT_EQ(whole["best_validation"]["loss"], best);
  // The same after resuming from step 4: earlier validations are kept.
  must(posix_io().remove_all(file("run/checkpoints/step-00000009")));
  must(posix_io().remove_all(file("run/checkpoints/step-00000008")));
  must(posix_io().remove_all(file("run/summary.json")));
  ASSERT_EQ(strata({"train", "--resume", "run"}).exit_code, 0);
  for (const char* key : {"last_validation", "best_validation", "val_loss_bits", "train_loss"})
    EXPECT_EQ(summary("run")[key], whole[key]) << key;
}

TEST_F(CliFolderE2e, TheGuideAndTheHelpHaveTheSameTableOfExitCodes) {
  const std::string guide = read_all(str(STRATA_SOURCE_DIR, "/docs/guide/runs.md")),
                    help = strata({"--help"}).out;
  std::size_t rows = 0;
  for (const int code : {0, 1, 2, 3, 4, 5, 75}) {
    const std::string head = str("\n| ", code, " | ");
    const std::size_t at = guide.find(head);
    ASSERT_NE(at, std::string::npos) << code;
    const std::size_t begin = at + head.size();
    EXPECT_THAT(help,
                HasSubstr(str(code, "  ", guide.substr(begin, guide.find(" |\n", begin) - begin), "\n")));
    ++rows;
  }
  EXPECT_EQ(rows, 7u);
}

}  // namespace
}  // namespace strata::test
