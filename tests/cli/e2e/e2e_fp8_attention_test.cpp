// Runs with optional kernels: FP8 GEMMs in the blocks, attention with wgmma or cuDNN.
#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliFp8E2e : public CliE2e {
 protected:
  static Words run_of(const std::string& name, const Words& words = {}) {
    Words all = {"--out", name, "train.steps=6", "train.fp8=true", "log.every=1", "train.eval_every=3"};
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
};

TEST_F(CliFp8E2e, ARunResumesBitForBitInOtherBudgetsAndEvaluatesAsItValidated) {
  const ProgramResult whole = strata(run_of("whole", {"train.dtype=auto"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(
      strata(run_of("run", {"train.dtype=auto", "train.max_time=0s", "train.recompute=full"})).exit_code, 0);
  ASSERT_EQ(strata({"train", "--resume", "run", "train.max_time=none", "offload.policy=pinned"}).exit_code,
            0);
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
  ASSERT_EQ(
      strata(tiny("train", {"--out", "bf16", "train.steps=6", "train.dtype=bf16", "log.every=1"})).exit_code,
      0);
  EXPECT_NE(loss_bits("bf16"), loss_bits("whole"));
  EXPECT_THAT(read_all(file("whole/config.resolved.toml")), HasSubstr("the dtype that train.fp8 quantizes"));
  const ProgramResult evaluated = strata({"eval", "run", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(nlohmann::json::parse(evaluated.out)["loss_bits"], summary("run")["val_loss_bits"]);
  EXPECT_EQ(strata({"generate", "run", "--prompt", "She ", "--tokens", "4"}).exit_code, 0);
}

TEST_F(CliFp8E2e, InvalidFp8SettingsAreRefusedAndAResumedRunKeepsFp8) {
  const ProgramResult f32 = strata(run_of("f32", {"train.dtype=f32"}));
  EXPECT_EQ(f32.exit_code, 2);
  EXPECT_THAT(f32.err,
              AllOf(HasSubstr("train.fp8"), HasSubstr("but train.dtype is f32"), HasSubstr("bf16 or f16")));
  const ProgramResult odd = strata(run_of("odd", {"model.hidden=40", "model.heads=4", "model.ffn=100"}));
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_THAT(odd.err, AllOf(HasSubstr("no GEMM of a block has dimensions that are multiples of 16"),
                             HasSubstr("model.hidden = 40"), HasSubstr("model.ffn = 100")));
  ASSERT_EQ(strata(run_of("run", {"train.max_time=0s"})).exit_code, 0);
  const ProgramResult other = strata({"train", "--resume", "run", "train.max_time=none", "train.fp8=false"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("train.fp8: the checkpoint was made with true, this run has false"));
}

// The attention backend has no effect on the host backend, but it is part of the run's identity.
TEST_F(CliE2e, TheAttentionBackendIsPartOfTheRunAndHasNoEffectOnTheHost) {
  const Words words = {"train.steps=6", "train.dtype=bf16",    "log.every=1",        "model.hidden=128",
                       "model.heads=2", "memory.device=64MiB", "memory.pinned=64MiB"};
  const auto run_of = [&](const std::string& name, Words more) {
    more.insert(more.end(), {"--out", name});
    more.insert(more.end(), words.begin(), words.end());
    return strata(tiny("train", more));
  };
  ASSERT_EQ(run_of("usual", {}).exit_code, 0);
  for (const std::string by : {"wgmma", "cudnn"}) {
    ASSERT_EQ(run_of(by, {"train.attention_backend=" + by, "train.max_time=0s"}).exit_code, 0);
    const ProgramResult other =
        strata({"train", "--resume", by, "train.max_time=none", "train.attention_backend=mma"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_THAT(other.err, HasSubstr("train.attention_backend: the checkpoint was made with " + by +
                                     ", this run has mma"));
    ASSERT_EQ(strata({"train", "--resume", by, "train.max_time=none"}).exit_code, 0);
    EXPECT_EQ(loss_bits(by), loss_bits("usual"));
    EXPECT_EQ(digest(by), digest("usual"));
  }
  // A run that a GPU could not continue is refused on the host backend too.
  const ProgramResult none =
      strata(tiny("train", {"--out", "none", "train.dtype=f32", "train.attention_backend=wgmma"}));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(
      none.err,
      HasSubstr(
          "train.attention_backend = wgmma, but it does not support the attention of this model: heads of"));
}

}  // namespace
}  // namespace strata::test
