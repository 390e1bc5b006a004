// Runs of adapters with trained magnitudes (DoRA).
#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

class CliDoraE2e : public AdapterRunsE2e {};

TEST_F(CliDoraE2e, AKilledRunResumesBitForBitFromTheAdapterAlone) {
  make_base("base");
  expect_killed_run_resumes("adapter.dora=true");
  EXPECT_THAT(refused({"train", "--resume", "run", "train.steps=9", "adapter.dora=false"}),
              HasSubstr("adapter.dora: the checkpoint was made with true, this run has false"));
}

TEST_F(CliDoraE2e, TiersAndRanksChangeNoBit) {
  make_base("base");
  expect_tiers_and_ranks_change_no_bit({"adapter.dora=true", "train.base=nf4-dq"});
}

// Over the base as it is and quantized: what is exported goes on with the loss of the run, and merged it has
// that loss, too.
TEST_F(CliDoraE2e, AnAdapterIsExportedGoesOnAndIsMerged) {
  make_base("base");
  for (const std::string base : {"full", "nf4"}) {
    const Words keys = {"adapter.dora=true", "train.dtype=f32", "train.base=" + base, "--overwrite"};
    succeeds(run_of("run", keys));
    const double loss = evaluated({"run"})["loss"];
    const std::string adapter = "adapter-" + base, merged = "merged-" + base;
    succeeds({"export", "run", "--out", adapter, "--check"});
    EXPECT_EQ(nlohmann::json::parse(read_all(file(adapter + "/adapter_config.json")))["use_dora"], true);
    succeeds({"export", "run", "--out", merged, "--format", "merged", "--check"});
    EXPECT_NEAR(evaluated({merged, "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5 * loss) << base;
    succeeds({"generate", "run", "--prompt", "She ", "--tokens", "4"});
    if (base != "full") continue;
    EXPECT_NEAR(evaluated({"base", "--adapter", adapter, "train.dtype=f32"})["loss"].get<double>(), loss,
                1e-5 * loss);
    succeeds(tiny("train", {"--out", "more", "--init", "base", "--adapter", adapter, "train.steps=2",
                            "train.dtype=f32"}));
    EXPECT_THAT(refused(tiny("train", {"--out", "other", "--init", "base", "--adapter", adapter,
                                       "adapter.dora=false"})),
                HasSubstr("adapter.dora = false, but true according to"));
  }
}

TEST_F(CliDoraE2e, ARandomBaseTrainsWithMagnitudesToo) {
  Words random = run_of("random", {"adapter.dora=true", "train.dtype=f32", "adapter.rslora=true"});
  random.erase(std::find(random.begin(), random.end(), "--init"));
  random.erase(std::find(random.begin(), random.end(), "base"));
  const ProgramResult trained = strata(random);
  ASSERT_EQ(trained.exit_code, 0) << trained.output();
  EXPECT_THAT(trained.out, HasSubstr("adapter  rsDoRA of rank 8 on 8 modules"));
  succeeds({"train", "--resume", "random", "train.steps=7"});
  const double loss = evaluated({"random"})["loss"];
  succeeds({"export", "random", "--out", "merged", "--format", "merged", "--check"});
  EXPECT_NEAR(evaluated({"merged", "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5 * loss);
}

}  // namespace
}  // namespace strata::test
