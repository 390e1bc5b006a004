// Runs of adapters that start as the principal parts of the base's matrices (PiSSA).
#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliPissaE2e : public AdapterRunsE2e {
 protected:
  double first_loss(const std::string& run) const { return metrics(run).front()["loss"].get<double>(); }
};

TEST_F(CliPissaE2e, ANewRunStartsAsTheBase) {
  make_base("base");
  const auto started = [&](const std::string& name, const std::string& key) {
    succeeds(run_of(name, {"train.steps=1", "train.dtype=f32", key}));
    return first_loss(name);
  };
  const double want = started("lora", "adapter.rslora=false");
  for (const std::string init : {"pissa", "pissa-subspace"})
    EXPECT_NEAR(started(init, "adapter.init=" + init), want, 1e-6 * want) << init;
}

TEST_F(CliPissaE2e, AKilledRunResumesBitForBitFromItsSmallCheckpoint) {
  make_base("base");
  for (const std::string dtype : {"train.dtype=f32", "train.dtype=bf16"}) {
    succeeds(run_of("whole", {"adapter.init=pissa", dtype, "--overwrite"}));
    RunningProgram program(STRATA_PROGRAM,
                           run_of("run", {"adapter.init=pissa", dtype, "checkpoint.every=1", "--overwrite"}),
                           options_);
    ASSERT_TRUE(program.wait_for("saved run/checkpoints/step-00000003"));
    program.send(SIGKILL);
    EXPECT_EQ(program.finish().signal, SIGKILL);
    expect_small("run/checkpoints/step-00000003");
    const auto saved = manifest("run/checkpoints/step-00000003");
    EXPECT_TRUE(saved["files"][0]["tensors"].contains("layers.0.qkv.lora_A0"));
    EXPECT_FALSE(saved["frozen"].contains("layers.0.qkv.lora_A0"));
    EXPECT_TRUE(saved["frozen"].contains("layers.0.qkv.weight"));
    succeeds({"train", "--resume", "run"});
    EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
    EXPECT_EQ(digest("run"), digest("whole"));
  }
  EXPECT_THAT(refused({"train", "--resume", "run", "train.steps=9", "adapter.init=default"}),
              HasSubstr("adapter.init: the checkpoint was made with pissa, this run has default"));
}

TEST_F(CliPissaE2e, TiersAndRanksChangeNoBit) {
  make_base("base");
  expect_tiers_and_ranks_change_no_bit({"adapter.init=pissa", "train.base=nf4-dq"});
}

// The folder is LoRA of twice the rank, over the base that it was trained over.
TEST_F(CliPissaE2e, AnAdapterIsExportedGoesOnAndIsMerged) {
  make_base("base");
  for (const std::string base : {"full", "nf4"}) {
    const std::string adapter = "adapter-" + base, merged = "merged-" + base;
    const ProgramResult trained =
        strata(run_of("run", {"adapter.init=pissa", "train.dtype=f32", "train.base=" + base, "adapter.rank=5",
                              "--overwrite"}));
    ASSERT_EQ(trained.exit_code, 0) << trained.output();
    EXPECT_THAT(trained.out, HasSubstr("adapter  LoRA from PiSSA of rank 5 on 8 modules"));
    const double loss = evaluated({"run"})["loss"];
    const ProgramResult exported = strata({"export", "run", "--out", adapter, "--check"});
    EXPECT_THAT(exported.out, AllOf(HasSubstr("adapters of rank 10 for PEFT"), HasSubstr("checked")));
    const auto config = nlohmann::json::parse(read_all(file(adapter + "/adapter_config.json")));
    EXPECT_EQ(config["r"], 10);
    EXPECT_EQ(config["lora_alpha"], 16);
    succeeds({"export", "run", "--out", merged, "--format", "merged", "--check"});
    EXPECT_NEAR(evaluated({merged, "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5 * loss) << base;
    succeeds({"generate", "run", "--prompt", "She ", "--tokens", "4"});
    if (base != "full") continue;
    EXPECT_NEAR(evaluated({"base", "--adapter", adapter, "train.dtype=f32"})["loss"].get<double>(), loss,
                1e-5 * loss);
    EXPECT_GT(std::abs(evaluated({"base", "train.dtype=f32"})["loss"].get<double>() - loss), 1e-3);
    succeeds({"generate", "base", "--adapter", "notes=" + adapter, "--prompt", "She ", "--tokens", "4"});
    succeeds(tiny("train", {"--out", "more", "--init", "base", "--adapter", adapter, "train.steps=2",
                            "train.dtype=f32"}));
    EXPECT_THAT(refused(tiny("train", {"--out", "other", "--init", "base", "--adapter", adapter,
                                       "adapter.init=pissa"})),
                HasSubstr("adapter.init = pissa, but default according to"));
  }
}

// A new adapter changes nothing, so that what is exported merges to the base.
TEST_F(CliPissaE2e, ANewAdapterMergesToTheBase) {
  make_base("base");
  for (const std::string dtype : {"train.dtype=f32", "train.dtype=bf16"}) {
    succeeds(run_of("run", {"adapter.init=pissa", dtype, "optim.lr=1e-30", "train.steps=1", "--overwrite"}));
    const std::string merged = "merged-" + dtype;
    succeeds({"export", "run", "--out", merged, "--format", "merged", "--check"});
    const double want = evaluated({"base", "train.dtype=f32"})["loss"];
    EXPECT_NEAR(evaluated({merged, "train.dtype=f32"})["loss"].get<double>(), want, 1e-6 * want) << dtype;
  }
}

TEST_F(CliPissaE2e, ARandomBaseHasPrincipalPartsToo) {
  Words random = run_of("random", {"adapter.init=pissa", "train.dtype=f32", "adapter.rslora=true"});
  random.erase(std::find(random.begin(), random.end(), "--init"));
  random.erase(std::find(random.begin(), random.end(), "base"));
  const ProgramResult trained = strata(random);
  ASSERT_EQ(trained.exit_code, 0) << trained.output();
  EXPECT_THAT(trained.out, HasSubstr("adapter  rsLoRA from PiSSA of rank 8 on 8 modules"));
  succeeds({"train", "--resume", "random", "train.steps=7"});
  const double loss = evaluated({"random"})["loss"];
  succeeds({"export", "random", "--out", "merged", "--format", "merged", "--check"});
  EXPECT_NEAR(evaluated({"merged", "train.dtype=f32"})["loss"].get<double>(), loss, 1e-5 * loss);
}

TEST_F(CliPissaE2e, WhatItCannotBeCombinedWithIsNamed) {
  const auto planned = [&](Words words) {
    words.insert(words.begin(), {"adapter.method=lora", "adapter.init=pissa"});
    return refused(tiny("plan", words));
  };
  EXPECT_THAT(planned({"adapter.dora=true", "adapter.rslora=true", "adapter.rank_pattern=c_attn=3"}),
              AllOf(HasSubstr("adapter.init = pissa, but adapter.dora = true"),
                    HasSubstr("; PiSSA and DoRA cannot be combined"),
                    HasSubstr("adapter.init = pissa, but adapter.rank_pattern = c_attn=3"),
                    HasSubstr("with adapter.rslora = true, for which PEFT has no converted form")));
  EXPECT_THAT(planned({"adapter.rank=60"}),
              HasSubstr("with PiSSA, whose exported adapter has twice the rank"));
  EXPECT_THAT(refused(tiny("plan", {"adapter.method=prefix", "adapter.init=pissa"})),
              HasSubstr("adapter.init = pissa is of adapter.method = lora, but adapter.method is prefix"));
}

}  // namespace
}  // namespace strata::test
