// Tests that no verb ever overwrites a file that belongs to somebody else.
#include <sys/stat.h>

#include <filesystem>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class CliOtherFilesE2e : public CliE2e {
 protected:
  void SetUp() override {
    ASSERT_EQ(strata(run_of("run", {"log.trace=2-2", "log.sample_every=2"})).exit_code, 0);
    ASSERT_EQ(strata({"export", "run", "--out", "hf"}).exit_code, 0);
    write("lines.jsonl", "{\"text\": \"She was\"}\n");
    write("notes.toml", "mine = 1\n");
    write("lists/notes.txt", "mine");
    write("hf/empty.json", "");
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(file(name)).parent_path());
    CliE2e::write(name, text);
  }
  static Words run_of(const std::string& name, const Words& words = {}) {
    Words all = {"--out", name, "train.steps=2", "log.every=1", "train.eval_every=0"};
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  /// All files but caches, with their contents.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(dir_.path()))
      if (entry.is_regular_file() && entry.path().string().find("/cache/") == std::string::npos)
        all[entry.path().string()] = read_all(entry.path().string());
    return all;
  }
};

TEST_F(CliOtherFilesE2e, NoVerbReplacesAFileThatItDidNotWrite) {
  fs::create_symlink("lines.jsonl", file("link.jsonl"));
  fs::create_hard_link(file("lines.jsonl"), file("same.jsonl"));
  struct Case {
    Words words;
    std::string says;
  };
  const std::vector<Case> cases = {
      {run_of("hf"), "hf contains config.json, which is not a run's"},
      {run_of("hf", {"--overwrite"}), "hf contains config.json, which is not a run's"},
      {run_of("lists"), "lists contains notes.txt, which is not a run's; name a new or empty folder"},
      {run_of("other", {"log.prometheus=val.txt"}), "val.txt exists and is not a file of strata's figures"},
      {{"score", "hf", "--in", "lines.jsonl", "--out", "./lines.jsonl"}, "which is read; name another file"},
      {{"score", "hf", "--in", "lines.jsonl", "--out", "link.jsonl"}, "which is read; name another file"},
      {{"score", "hf", "--in", "lines.jsonl", "--out", "same.jsonl"}, "which is read; name another file"},
      {{"score", "hf", "--in", "lines.jsonl", "--out", "hf/config.json"}, "is not scores of strata"},
      {{"score", "hf", "--in", "lines.jsonl", "--out", "hf"}, "is a folder"},
      {{"tokenizer", "train", "train.txt", "-o", "train.txt"}, "which is read; name another file"},
      {{"tokenizer", "train", "train.txt", "-o", "hf/tokenizer.json"}, "is a file of a model"},
      {{"tokenizer", "train", "train.txt", "-o", "run/tokenizer.json"}, "is a file of a run"},
      {{"tokenizer", "train", "train.txt", "-o", "lists/notes.txt"}, "is not a tokenizer of strata"},
      {{"trace", "run", "--out", "run/trace.json"}, "is not a trace for Perfetto"},
      {{"report", "run", "--out", "hf/config.json"}, "is not a report of strata"},
      {{"report", "run", "--out", "hf/empty.json"}, "is a file of a model"},
      {{"export", "run", "--out", "hf"}, "hf already exists"},
      {{"export", "run", "--format", "gguf", "--out", "val.txt"}, "val.txt already exists"},
      {{"data", "pack", "train.txt", "-t", "hf", "-o", "val.txt"}, "is not a packed file"},
      {{"ckpt", "average", "run", "--last", "1", "--out", "hf"}, "hf contains config.json"},
      {{"init", "notes.toml", "--overwrite", "--yes", "--model", "5m", "--data", "train.txt"},
       "is not a configuration of strata init"},
      {{"bench", "--quick", "--out", "val.txt"}, "is not a machine profile"},
  };
  const auto before = contents();
  for (const Case& c : cases) {
    const ProgramResult refused = strata(c.words);
    EXPECT_EQ(refused.exit_code, 2) << c.says << refused.output();
    EXPECT_THAT(refused.err, HasSubstr(c.says));
    EXPECT_EQ(contents(), before) << c.says;
  }
}

TEST_F(CliOtherFilesE2e, AVerbReplacesWhatItWroteItself) {
  const std::vector<Words> commands = {
      {"score", "hf", "--in", "lines.jsonl", "--out", "scores.jsonl"},
      {"tokenizer", "train", "train.txt", "--vocab", "300", "-o", "tokenizer.json"},
      {"trace", "run"},
      {"report", "run"},
      {"report", "run", "--svg", "charts"},
      {"data", "pack", "train.txt", "-t", "hf", "-o", "packed"},
      run_of("again", {"--overwrite", "log.prometheus=figures.prom"})};
  for (const Words& words : commands)
    for (int i = 0; i < 2; ++i) {
      const ProgramResult result = strata(words);
      EXPECT_EQ(result.exit_code, 0) << result.output();
    }
}

TEST_F(CliOtherFilesE2e, AnExportLeavesTheDraftsOfOthersAlone) {
  write("new.unfinished/notes.txt", "mine");
  EXPECT_EQ(strata({"export", "run", "--out", "new"}).exit_code, 0);
  EXPECT_EQ(read_all(file("new.unfinished/notes.txt")), "mine");
}

TEST_F(CliOtherFilesE2e, WhereAFolderIsBothACommandSaysWhatItReads) {
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
    if (!exists(str("run/", name))) fs::copy_file(file(str("hf/", name)), file(str("run/", name)));
  EXPECT_THAT(strata({"generate", "run", "--prompt", "She", "--tokens", "1"}).err,
              HasSubstr("run is a Hugging Face folder and a run; the folder's model is read"));
  EXPECT_THAT(strata({"eval", "run", "--data", "val.txt"}).err, HasSubstr("the folder's model is read"));
  EXPECT_THAT(strata({"export", "run", "--out", "new"}).err, HasSubstr("the run is read"));
  EXPECT_EQ(strata(run_of("run", {"--overwrite"})).exit_code, 2) << "the model would lose its tokenizer";
}

TEST_F(CliOtherFilesE2e, ANewRunIsItsOwnersAloneAndMayBeginWhereItsConfigurationIs) {
  write("new/run.toml", "[train]\nsteps = 1\n");
  write("new/log.txt", "");
  EXPECT_EQ(strata(tiny("train", {"new/run.toml", "--out", "new"})).exit_code, 0);
  struct ::stat facts {};
  ASSERT_EQ(::stat(file("run").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

TEST_F(CliOtherFilesE2e, TheMessagesOfARunMayGoIntoItsFolder) {
  write("new/log.txt", "submitted\n");
  std::string command = str("cd ", dir_.path(), " && XDG_CACHE_HOME=", file("cache"), " ", STRATA_PROGRAM);
  for (const std::string& word : run_of("new")) command += " " + word;
  ASSERT_EQ(std::system((command + " >> new/log.txt 2>&1").c_str()), 0) << read_all(file("new/log.txt"));
  EXPECT_THAT(read_all(file("new/log.txt")), testing::StartsWith("submitted\n"));
}

TEST_F(CliOtherFilesE2e, AFolderMayHoldWhatTheRunKeepsDeeperInIt) {
  const ProgramResult nested =
      strata(run_of("new", {"checkpoint.dir=new/a/b", "data.cache_dir=new/work/cache"}));
  EXPECT_EQ(nested.exit_code, 0) << nested.output();
}

TEST_F(CliOtherFilesE2e, AnEmptyLockMakesNoRunOfOtherFiles) {
  write("mine/.lock", "");
  write("mine/samples.txt", "mine");
  EXPECT_THAT(strata(run_of("mine")).err, HasSubstr("mine contains samples.txt, which is not a run's"));
  EXPECT_EQ(read_all(file("mine/samples.txt")), "mine");
}

TEST_F(CliOtherFilesE2e, ADraftOfFiguresThatAKillLeftDoesNotStopARun) {
  write("run/f.prom.part", "");
  const ProgramResult resumed =
      strata({"train", "--resume", "run", "train.steps=3", "log.prometheus=" + file("run/f.prom")});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output();
}

TEST_F(CliOtherFilesE2e, PruningAFolderOfCheckpointsIsRefusedWhileItsRunTrains) {
  const auto live = must(posix_io().open(file("run/.lock"), OpenMode::append));
  must(live->lock());
  for (const char* name : {"run", "run/checkpoints", "run/checkpoints/", "run/../run/checkpoints"}) {
    const ProgramResult refused = strata({"ckpt", "prune", name, "--keep", "1"});
    EXPECT_EQ(refused.exit_code, 2) << name << refused.output();
    EXPECT_THAT(refused.err, HasSubstr("is in use by another run"));
  }
  EXPECT_FALSE(exists("run/checkpoints/.lock"));
}

}  // namespace
}  // namespace strata::test
