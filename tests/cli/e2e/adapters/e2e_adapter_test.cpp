// Runs that train adapters of a frozen model.
#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliAdapterE2e : public CliE2e {
 protected:
  Words run_of(const std::string& name, const Words& words = {}) const {
    Words all = {"--out",
                 name,
                 "train.steps=6",
                 "adapter.method=lora",
                 "log.every=1",
                 "optim.lr=1e-2",
                 "adapter.targets=all-linear",
                 "train.dtype=f32",
                 "adapter.rank_pattern=c_attn=3"};
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  void succeeds(const Words& words) {
    const ProgramResult done = strata(words);
    ASSERT_EQ(done.exit_code, 0) << done.err;
  }
};

TEST_F(CliAdapterE2e, ARunResumesBitForBitEvaluatesAndGenerates) {
  const ProgramResult whole = strata(run_of("whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("adapter  LoRA of rank 3, 8 on 8 modules: c_attn, c_fc, c_proj\n"));
  succeeds(run_of("run", {"train.max_time=0s"}));
  succeeds({"train", "--resume", "run", "train.max_time=none"});
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
  succeeds({"eval", "run"});
  succeeds({"generate", "run", "--prompt", "She ", "--tokens", "4"});
  const ProgramResult other = strata({"train", "--resume", "run", "adapter.alpha=9", "train.steps=7"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("adapter.alpha: the checkpoint was made with 8, this run has 9"));
}

// The base is exported, an adapter of it is trained and exported; it goes on from there, and merged it is a
// model.
TEST_F(CliAdapterE2e, AnAdapterIsExportedGoesOnAndIsMerged) {
  succeeds(tiny("train", {"--out", "first", "train.steps=4", "train.dtype=f32"}));
  succeeds({"export", "first", "--out", "base"});
  succeeds(run_of("run", {"--init", "base"}));
  succeeds({"export", "run", "--out", "adapter", "--check"});
  const auto config = nlohmann::json::parse(read_all(file("adapter/adapter_config.json")));
  EXPECT_EQ(config["r"], 8);
  EXPECT_EQ(config["rank_pattern"]["c_attn"], 3);
  EXPECT_EQ(config["fan_in_fan_out"], true);
  // The folder says which adapter it is.
  succeeds(tiny("train", {"--out", "more", "--init", "base", "--adapter", "adapter", "train.max_time=0s",
                          "train.dtype=f32", "log.every=1"}));
  const auto first_loss = [&](const std::string& run) { return metrics(run).front()["loss"].get<double>(); };
  EXPECT_LT(first_loss("more"), first_loss("run") - 1e-3) << "it goes on from what was trained";
  succeeds({"train", "--resume", "more", "train.max_time=none", "train.steps=3"});
  succeeds({"export", "run", "--out", "merged", "--format", "merged", "--check"});
  const auto evaluated = [&](const Words& words) {
    Words all = {"eval"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult done = strata(all);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.exit_code == 0 ? nlohmann::json::parse(done.out) : nlohmann::json{{"loss", 0}};
  };
  const Words of_folder = {"--json", "train.dtype=f32", "--data", "val.txt"};
  const auto with = [&](Words words) {
    words.insert(words.end(), of_folder.begin(), of_folder.end());
    return words;
  };
  const auto trained = evaluated({"run", "--json", "--data", "val.txt"});
  for (const Words& model : {Words{"base", "--adapter", "adapter"}, Words{"merged"}})
    EXPECT_NEAR(evaluated(with(model))["loss"].get<double>(), trained["loss"].get<double>(), 1e-5)
        << model.front();
  EXPECT_GT(std::abs(evaluated(with({"base"}))["loss"].get<double>() - trained["loss"].get<double>()), 1e-3);
  succeeds({"generate", "base", "--adapter", "adapter", "--prompt", "She ", "--tokens", "4"});
  const auto refused = [&](const Words& words) {
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, 2) << done.output();
    return done.err;
  };
  EXPECT_THAT(
      refused(tiny("train", {"--out", "other", "--init", "base", "--adapter", "adapter", "adapter.rank=4"})),
      HasSubstr("adapter.rank = 4, but 8 according to adapter/adapter_config.json"));
  EXPECT_THAT(refused({"generate", "run", "--adapter", "adapter", "--prompt", "She "}),
              HasSubstr("run is a run, which has parameters of its own"));
  EXPECT_THAT(refused({"eval", "run", "--adapter", "adapter", "--data", "val.txt"}),
              HasSubstr("run is a run, which has parameters of its own"));
}

TEST_F(CliAdapterE2e, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(
      strata(tiny("plan", {"adapter.method=lora", "adapter.targets=q_proj"})).err,
      HasSubstr("targets 'q_proj' names no module of the model; the modules are c_attn, c_fc, c_proj"));
  EXPECT_THAT(strata(tiny("plan", {"adapter.method=lora", "adapter.rank_pattern=c_attn"})).err,
              HasSubstr("adapter.rank_pattern: 'c_attn' does not have the form NAME=NUMBER"));
  EXPECT_THAT(strata(run_of("run", {"adapter.from=nowhere"})).err,
              HasSubstr("nowhere has no adapter_config.json"));
  succeeds(run_of("run", {"train.max_time=0s", "--overwrite"}));
  EXPECT_THAT(strata({"export", "run", "--out", "hf", "--format", "hf"}).err,
              HasSubstr("--format hf: the run trained an adapter; its formats are peft, merged and gguf"));
}

}  // namespace
}  // namespace strata::test
