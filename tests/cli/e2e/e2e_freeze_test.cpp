// Runs that freeze a part of a model, or train parameter groups with their own settings.
#include <cstring>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliFreezeE2e : public CliE2e {
 protected:
  Words run_of(const std::string& name, const Words& words = {}) const {
    Words all = {"--out",           name,
                 "train.steps=6",   "train.freeze=tokens.weight,layers.0.*",
                 "log.every=1",     "optim.param_groups=layers.1.mlp_* lr_scale=0.5 weight_decay=0",
                 "train.dtype=bf16"};
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  void export_as(const std::string& folder, const Words& words) {
    Words all = {"export", "run", "--out", folder};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult exported = strata(all);
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
  }
  /// The bytes of one tensor in the only safetensors file of a folder.
  std::string bytes_of(const std::string& folder, const std::string& tensor) const {
    const std::string text = read_all(file(folder + "/model.safetensors"));
    std::uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    const auto at = nlohmann::json::parse(text.substr(8, header))[tensor]["data_offsets"];
    const auto begin = at[0].get<std::size_t>(), end = at[1].get<std::size_t>();
    return text.substr(8 + header + begin, end - begin);
  }
};

TEST_F(CliFreezeE2e, ARunWithFrozenParametersResumesBitForBitEvaluatesAndGenerates) {
  const ProgramResult whole = strata(run_of("whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("frozen   0.08 M parameters; 0.05 M are trained"));
  ASSERT_EQ(strata(run_of("run", {"train.max_time=0s", "offload.step_mode=speculative"})).exit_code, 0);
  ASSERT_EQ(strata({"train", "--resume", "run", "train.max_time=none"}).exit_code, 0);
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
  EXPECT_EQ(strata({"eval", "run"}).exit_code, 0);
  EXPECT_EQ(strata({"generate", "run", "--prompt", "She ", "--tokens", "4"}).exit_code, 0);
}

TEST_F(CliFreezeE2e, ResumingWithOtherFrozenParametersOrGroupsIsRefused) {
  ASSERT_EQ(strata(run_of("run", {"train.max_time=0s"})).exit_code, 0);
  const ProgramResult other = strata({"train", "--resume", "run", "train.freeze=layers.0.*",
                                      "optim.param_groups=", "train.frozen_masters=true"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(
      other.err,
      AllOf(HasSubstr("train.freeze: the checkpoint was made with tokens.weight,layers.0.*"),
            HasSubstr("optim.param_groups: the checkpoint was made with layers.1.mlp_* lr_scale"),
            HasSubstr("train.frozen_masters: the checkpoint was made with false, this run has true")));
}

TEST_F(CliFreezeE2e, ThePlanCountsWhatIsFrozen) {
  const auto plan = nlohmann::json::parse(strata(tiny("plan", {"train.freeze=tokens.weight", "--json"})).out);
  EXPECT_EQ(plan["frozen_parameters"], 512 * 64);
  EXPECT_EQ(plan["trainable_parameters"].get<int>() + 512 * 64, plan["parameters"]);
}

TEST_F(CliFreezeE2e, UnknownParameterNamesAreRefusedTogetherWithSuggestions) {
  const ProgramResult refused = strata(tiny("plan", {"train.freeze=token.weight,layer.0.*"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("2 problems"),
                                 HasSubstr("train.freeze: 'token.weight' matches none of 28 parameters; the "
                                           "nearest are tokens.weight"),
                                 HasSubstr("train.freeze: 'layer.0.*' matches none")));
  EXPECT_THAT(strata(tiny("plan", {"train.freeze=*"})).err, HasSubstr("nothing is left to train"));
  EXPECT_THAT(strata(tiny("plan", {"optim.param_groups=layers.* lr_scal=2,x"})).err,
              AllOf(HasSubstr("did you mean 'lr_scale'?"), HasSubstr("'x' does not have the form PATTERN")));
  EXPECT_THAT(strata(tiny("plan", {"optim.param_groups=layers.* lr_scale=two"})).err,
              HasSubstr("'two' is not a number"));
}

// A bf16 run from an f32 folder keeps f32 masters of frozen parameters. From a bf16 folder there are no more
// bits to keep.
TEST_F(CliFreezeE2e, FrozenParametersAreExportedWithTheirOriginalBits) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=4", "train.dtype=f32"})).exit_code, 0);
  export_as("wide", {});
  export_as("narrow", {"--dtype", "bf16"});
  for (const std::string folder : {"wide", "narrow"}) {
    const ProgramResult tuned = strata(run_of("run", {"--init", folder, "--overwrite"}));
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
    EXPECT_THAT(read_all(file("run/config.resolved.toml")),
                HasSubstr(folder == "wide" ? "frozen_masters = true" : "frozen_masters = false"));
    export_as(folder + "-tuned", {"--dtype", folder == "wide" ? "f32" : "bf16"});
    const std::string frozen = "transformer.wte.weight", trained = "transformer.h.1.ln_1.weight";
    EXPECT_FALSE(bytes_of(folder, frozen).empty());
    EXPECT_EQ(bytes_of(folder + "-tuned", frozen), bytes_of(folder, frozen)) << folder;
    EXPECT_NE(bytes_of(folder + "-tuned", trained), bytes_of(folder, trained)) << folder;
  }
}

}  // namespace
}  // namespace strata::test
