// A configuration that fits this machine, from four answers, and data named by patterns.
#include <fcntl.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliInitE2e : public CliE2e {
 protected:
  ProgramResult init(const Words& words, const std::string& answers = {}) {
    write("answers.txt", answers);
    ProgramOptions options = options_;
    options.before_exec = [path = file("answers.txt")] {
      return ::dup2(::open(path.c_str(), O_RDONLY), 0) == 0;
    };
    Words all = {"init"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(all, options);
  }
};

TEST_F(CliInitE2e, AnswersMakeARunThatTrainsItsFirstStep) {
  const ProgramResult made = init({}, "1m\ntrain.txt,val.txt\n\nnone\n");
  ASSERT_EQ(made.exit_code, 0) << made.output();
  EXPECT_THAT(made.out, AllOf(HasSubstr("Model: "), HasSubstr("wrote run.toml"), HasSubstr("planned peak")));
  const std::string toml = read_all(file("run.toml"));
  EXPECT_THAT(toml, AllOf(HasSubstr("tokens/s by the forecast"), HasSubstr("train = [\"train.txt\"]"),
                          HasSubstr("val = [\"val.txt\"]"), HasSubstr("# tokens per sequence"),
                          HasSubstr("device = ")));
  EXPECT_TRUE(exists("cache/strata/machine.toml")) << "the measured rates are kept";
  const ProgramResult trained =
      strata({"train", "run.toml", "--out", "run", "train.steps=1", "optim.warmup=0"});
  EXPECT_EQ(trained.exit_code, 0) << trained.output();
}

TEST_F(CliInitE2e, NothingIsAskedOrReplacedWithoutBeingTold) {
  const ProgramResult ended = init({}, "1m\n");
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--yes"));
  const ProgramResult wrong = init({"--yes", "--model", "nowhere", "--data", "train.txt"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err,
              HasSubstr("neither a Hugging Face folder (there is no nowhere/config.json) nor a size"));
  EXPECT_EQ(init({"--yes", "--task", "none", "--data", "train.txt"}).exit_code, 2);
  EXPECT_FALSE(exists("run.toml"));
  write("run.toml", "mine");
  const ProgramResult there = init({"--yes"});
  EXPECT_EQ(there.exit_code, 2);
  EXPECT_THAT(there.err, HasSubstr("run.toml exists"));
  EXPECT_EQ(read_all(file("run.toml")), "mine");
}

TEST_F(CliInitE2e, PatternsInDataBecomeTheFilesOfTheRun) {
  must(posix_io().make_dirs(file("texts")));
  write("texts/b.txt", read_all(file("train.txt")));
  write("texts/a.txt", read_all(file("train.txt")));
  write("texts/c.md", "no text of the pattern");
  const ProgramResult shown = strata({"config", "show", "data.train=texts/*.txt"});
  EXPECT_THAT(shown.out, HasSubstr("train = [\"texts/a.txt\", \"texts/b.txt\"]"));
  const ProgramResult none = strata({"config", "check", "data.train=texts/*.json", "data.val=v?.txt"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, AllOf(HasSubstr("2 problems"), HasSubstr("no file matches texts/*.json"),
                              HasSubstr("no file matches v?.txt")));
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2", "data.train=texts/*.txt"})).exit_code, 0);
  write("texts/new.txt", "Later files do not join a run.");
  const std::string resolved = read_all(file("run/config.resolved.toml"));
  EXPECT_THAT(resolved, AllOf(HasSubstr("texts/a.txt"), Not(HasSubstr("texts/*.txt\""))));
  EXPECT_EQ(strata({"train", "--resume", "run", "train.steps=3"}).exit_code, 0);
  write("texts/[x].txt", read_all(file("train.txt")));
  EXPECT_THAT(strata({"config", "show", "data.train=texts/[x].txt"}).out, HasSubstr("\"texts/[x].txt\""))
      << "a file that exists is no pattern";
}

}  // namespace
}  // namespace strata::test
