// The demo: other verbs in a row, each shown as a shell would have it.
#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliDemoE2e : public CliE2e {
 protected:
  ProgramResult demo(const Words& words) const {
    Words all = {
        "demo",          "model.layers=1", "model.hidden=32",      "model.vocab=300",  "model.seq=32",
        "train.steps=2", "optim.warmup=1", "data.train=train.txt", "data.val=val.txt", "train.eval_every=0"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(all);
  }
};

TEST_F(CliDemoE2e, ItTrainsExportsAndGeneratesAndNamesWhatIsThere) {
  const ProgramResult shown = demo({"--out", "it works"});
  ASSERT_EQ(shown.exit_code, 0) << shown.output();
  EXPECT_THAT(shown.out, AllOf(HasSubstr("$ strata train --preset austen-5m --out 'it works'"),
                               HasSubstr("$ strata export 'it works' --out 'it works/model' --check"),
                               HasSubstr("checked: all tensors"), HasSubstr("The run is in it works:")));
  EXPECT_THAT(shown.out,
              HasSubstr("$ strata generate 'it works/model' --prompt 'Elizabeth ' --tokens 64\nElizabeth "));
  EXPECT_TRUE(exists("it works/model/model.safetensors"));
}

TEST_F(CliDemoE2e, EarlierResultsAreLeftAsTheyAre) {
  must(posix_io().make_dirs(file("strata-demo")));
  write("strata-demo/mine.txt", "mine");
  const ProgramResult again = demo({});
  ASSERT_EQ(again.exit_code, 0) << again.output();
  EXPECT_EQ(list("strata-demo"), Words({"mine.txt"}));
  EXPECT_TRUE(exists("strata-demo-2/model/config.json"));
}

TEST_F(CliDemoE2e, TheFirstStepThatFailsEndsIt) {
  const ProgramResult refused = demo({"memory.device=1KiB"});
  EXPECT_EQ(refused.exit_code, 3) << refused.output();
  EXPECT_THAT(refused.out, Not(HasSubstr("strata export")));
}

}  // namespace
}  // namespace strata::test
