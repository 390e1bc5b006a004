// Lists, prunes, verifies and averages the checkpoints of a run.
#include <strata/runtime/io/safetensors.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CliCkptE2e : public CliE2e {
 protected:
  /// A run with checkpoints of steps 4, 8, 12, 16 and 20.
  void SetUp() override {
    const ProgramResult trained =
        strata(tiny("train", {"--out", "run", "checkpoint.every=4", "checkpoint.keep=9"}));
    ASSERT_EQ(trained.exit_code, 0) << trained.output();
  }
  static std::string folder(int step) {
    return str("run/checkpoints/step-000000", step < 10 ? "0" : "", step);
  }
  ProgramResult ckpt(const Words& words) const {
    Words all = {"ckpt"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(all);
  }
  void damage(int step) {
    const std::string path = folder(step) + "/m.safetensors";
    std::string bytes = read_all(file(path));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write(path, bytes);
  }
  std::vector<float> values(const std::string& checkpoint, std::string_view tensor,
                            const char* of = "param") const {
    const auto opened =
        must(SafetensorsFile::open(posix_io(), file(str(checkpoint, "/", of, ".safetensors"))));
    std::vector<float> read(opened->find(tensor)->bytes / sizeof(float));
    must(opened->read(tensor, std::as_writable_bytes(std::span(read))));
    return read;
  }
};

TEST_F(CliCkptE2e, TheListShowsEveryStepAndWhatIsDamaged) {
  write(folder(8) + "/param.safetensors", "short");
  const ProgramResult listed = ckpt({"ls", "run"});
  ASSERT_EQ(listed.exit_code, 0) << listed.output();
  EXPECT_THAT(listed.out, AllOf(HasSubstr("         4"), HasSubstr("damaged: param.safetensors has 5 bytes"),
                                HasSubstr("5 checkpoints, ")));
  const ProgramResult json = ckpt({"ls", "run", "--json"});
  EXPECT_THAT(json.out, AllOf(HasSubstr("{\"step\": 8, "), HasSubstr("\"is_whole\": false}"),
                              HasSubstr("\"is_whole\": true}")));
  EXPECT_EQ(ckpt({"ls", "run/checkpoints"}).exit_code, 0) << "a folder of checkpoints is enough";
  EXPECT_EQ(ckpt({"ls", "nowhere"}).exit_code, 2);
}

TEST_F(CliCkptE2e, PruningKeepsTheNewestWholeOnesAndThoseOfEveryNthStep) {
  write(folder(16) + "/param.safetensors", "short");
  const ProgramResult dry = ckpt({"prune", "run", "--keep", "1", "--every", "8", "--dry-run"});
  ASSERT_EQ(dry.exit_code, 0) << dry.output();
  EXPECT_THAT(dry.out, HasSubstr("would remove 3 checkpoints"));
  EXPECT_EQ(list("run/checkpoints").size(), 5u);
  const ProgramResult pruned = ckpt({"prune", "run", "--keep", "1", "--every", "8"});
  ASSERT_EQ(pruned.exit_code, 0) << pruned.output();
  EXPECT_THAT(pruned.out, AllOf(HasSubstr("removed step 16"), HasSubstr("2 checkpoints left")));
  EXPECT_THAT(list("run/checkpoints"), ElementsAre("step-00000008", "step-00000020"));
  EXPECT_EQ(strata({"train", "--resume", "run", "train.steps=24"}).exit_code, 0);
}

TEST_F(CliCkptE2e, VerifyFindsASingleBitInAnyCheckpoint) {
  const ProgramResult fine = ckpt({"verify", "run"});
  ASSERT_EQ(fine.exit_code, 0) << fine.output();
  EXPECT_THAT(fine.out, HasSubstr("step 20: ok"));
  damage(12);
  const ProgramResult bad = ckpt({"verify", "run"});
  EXPECT_EQ(bad.exit_code, 5);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("step 20: ok"), Not(HasSubstr("step 12: ok"))));
  EXPECT_THAT(bad.err, HasSubstr("step 12 is damaged"));
  EXPECT_EQ(ckpt({"verify", "run", "--checkpoint", "8"}).exit_code, 0);
  const ProgramResult missing = ckpt({"verify", "run", "--checkpoint", "8", "9", "10"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("no checkpoint of step 9, 10; it has 4, 8, 12, 16, 20"));
}

TEST_F(CliCkptE2e, AnAverageIsARunWithTheMeanOfTheParameters) {
  const ProgramResult made = ckpt({"average", "run", "--last", "3", "--out", "mean"});
  ASSERT_EQ(made.exit_code, 0) << made.output();
  const std::string tensor = "layers.0.qkv.weight", mean = "mean/checkpoints/step-00000020";
  const std::vector<float> a = values(folder(12), tensor), b = values(folder(16), tensor),
                           c = values(folder(20), tensor), found = values(mean, tensor);
  ASSERT_EQ(found.size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(found[i], static_cast<float>((double{a[i]} + double{b[i]} + double{c[i]}) / 3)) << i;
  EXPECT_EQ(values(mean, tensor, "m"), values(folder(20), tensor, "m"));
  EXPECT_EQ(ckpt({"verify", "mean"}).exit_code, 0);
  EXPECT_EQ(strata({"eval", "mean"}).exit_code, 0);
  EXPECT_EQ(strata({"train", "--resume", "mean", "train.steps=22"}).exit_code, 0);
}

TEST_F(CliCkptE2e, AverageSaysWhatIsWrong) {
  const auto refused = [&](const Words& words, const std::string& says) {
    const ProgramResult result = ckpt(words);
    EXPECT_NE(result.exit_code, 0) << result.output();
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_FALSE(exists("mean"));
  };
  refused({"average", "run", "--out", "mean"}, "--last N, or their steps");
  refused({"average", "run", "--last", "2"}, "--out DIR");
  refused({"average", "run", "--last", "9", "--out", "mean"}, "has 5 whole checkpoints");
  refused({"average", "run/checkpoints", "--last", "2", "--out", "mean"}, "is no run");
  damage(16);
  refused({"average", "run", "--checkpoint", "16", "--out", "mean"}, "m.safetensors");
}

}  // namespace
}  // namespace strata::test
