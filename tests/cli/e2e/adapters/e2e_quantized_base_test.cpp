// Runs of adapters over a base that is quantized when it is loaded.
#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliQuantizedBaseE2e : public AdapterRunsE2e {};

TEST_F(CliQuantizedBaseE2e, AKilledRunResumesBitForBitFromTheAdapterAlone) {
  make_base("base");
  for (const std::string base : {"train.base=nf4-dq", "train.base=int8"}) {
    expect_killed_run_resumes(base);
    EXPECT_THAT(refused({"train", "--resume", "run", "train.steps=9", "train.base=full"}),
                HasSubstr("train.base: the checkpoint was made with " + base.substr(base.find('=') + 1)));
  }
}

TEST_F(CliQuantizedBaseE2e, TiersAndRanksChangeNoBit) {
  make_base("base");
  expect_tiers_and_ranks_change_no_bit({"train.base=nf4-dq"});
}

// An exported adapter is merged into the values that it was trained over.
TEST_F(CliQuantizedBaseE2e, AMergedModelHasTheLossOfTheRun) {
  make_base("base");
  for (const std::string base : {"int8", "nf4", "nf4-dq", "mxfp4", "fp8", "int4"}) {
    succeeds(run_of("run", {"train.base=" + base, "train.dtype=f32", "--overwrite"}));
    const std::string merged = "merged-" + base;
    succeeds({"export", "run", "--out", merged, "--format", "merged", "--check"});
    const double loss = evaluated({"run"})["loss"];
    EXPECT_NEAR(evaluated({merged, "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5 * loss) << base;
    succeeds({"generate", "run", "--prompt", "She ", "--tokens", "4"});
  }
}

TEST_F(CliQuantizedBaseE2e, ARandomBaseIsInTheCheckpoint) {
  Words random = run_of("random", {"train.base=nf4", "train.dtype=f32"});
  random.erase(std::find(random.begin(), random.end(), "--init"));
  random.erase(std::find(random.begin(), random.end(), "base"));
  succeeds(random);
  succeeds({"train", "--resume", "random", "train.steps=7"});
  const double loss = evaluated({"random"})["loss"];
  succeeds({"export", "random", "--out", "merged", "--format", "merged", "--check"});
  EXPECT_NEAR(evaluated({"merged", "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5 * loss);
}

TEST_F(CliQuantizedBaseE2e, TheExpertsOfAMixtureAreQuantizedToo) {
  Words random = run_of("random", {"train.base=mxfp4", "train.dtype=f32", "model.family=qwen3_moe",
                                   "model.experts=4", "model.experts_per_token=2", "model.expert_ffn=48"});
  random.erase(std::find(random.begin(), random.end(), "--init"));
  random.erase(std::find(random.begin(), random.end(), "base"));
  succeeds(random);
  succeeds({"train", "--resume", "random", "train.steps=7"});
  const double loss = evaluated({"random"})["loss"];
  succeeds({"export", "random", "--out", "merged", "--format", "merged", "--check"});
  EXPECT_NEAR(evaluated({"merged", "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5 * loss);
  succeeds({"generate", "random", "--prompt", "She ", "--tokens", "4"});
}

TEST_F(CliQuantizedBaseE2e, APlanNamesTheFormatAndItsBytes) {
  make_base("base");
  const Words words = tiny(
      "plan", {"model.from=base", "adapter.method=lora", "adapter.targets=all-linear", "train.base=nf4-dq"});
  const ProgramResult planned = strata(words);
  ASSERT_EQ(planned.exit_code, 0) << planned.output();
  EXPECT_THAT(planned.out, HasSubstr("base     nf4-dq of "));
}

TEST_F(CliQuantizedBaseE2e, WhatIsTrainedCannotBeQuantized) {
  EXPECT_THAT(
      refused(tiny("train", {"--out", "run", "train.base=nf4", "train.fp8=true"})),
      AllOf(
          HasSubstr("train.base = nf4, but only a frozen base can be quantized, and adapter.method is none"),
          HasSubstr("train.base = nf4, but train.fp8 is true")));
}

}  // namespace
}  // namespace strata::test
