// Runs that train matrices in subspaces of their gradients.
#include <cmath>
#include <csignal>
#include <filesystem>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliGaloreE2e : public CliE2e {
 protected:
  static Words galore_run(const std::string& name, const Words& words = {}) {
    Words all = {"--out", name, "optim.name=galore"};
    for (const std::string key : {"optim.weight_decay=0", "optim.galore_rank=4", "optim.galore_gap=3",
                                  "train.steps=8", "log.every=1", "optim.lr=1e-2"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(key.substr(0, key.find('=') + 1));
          }))
        all.push_back(key);
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  ProgramResult succeeds(const Words& words) {
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, 0) << done.output();
    return done;
  }
  std::string refused(const Words& words) {
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, 2) << done.output();
    return done.err;
  }
  void expect_same(const std::string& run, const std::string& as) {
    EXPECT_EQ(loss_bits(run), loss_bits(as)) << run;
    EXPECT_EQ(digest(run), digest(as)) << run;
  }
  double evaluated(Words words) {
    words.insert(words.begin(), "eval");
    words.insert(words.end(), {"--json", "--data", "val.txt"});
    const ProgramResult done = succeeds(words);
    return done.exit_code == 0 ? nlohmann::json::parse(done.out)["loss"].get<double>() : 0;
  }
};

TEST_F(CliGaloreE2e, ARunLearnsAndSaysWhatItTrains) {
  const ProgramResult done = succeeds(galore_run("run", {"train.steps=20"}));
  EXPECT_THAT(done.out,
              HasSubstr("galore   8 modules of rank 4: 0.10 M parameters are trained as 0.01 M in subspaces, "
                        "whose bases have 0.00 M and change every 3 steps (subspace)\n"));
  std::vector<double> losses;
  std::vector<int> renewed;
  for (const auto& line : metrics("run")) {
    if (line.contains("loss")) losses.push_back(line["loss"]);
    if (!line.contains("renew_bases_s")) continue;
    renewed.push_back(line["step"]);
    EXPECT_GT(line["basis_energy"].get<double>(), 0.2);
    EXPECT_LE(line["basis_energy"].get<double>(), 1);
  }
  EXPECT_LT(losses.back(), losses.front() - 0.3);
  EXPECT_THAT(renewed, ::testing::ElementsAre(1, 4, 7, 10, 13, 16, 19));
  EXPECT_EQ(summary("run")["steady_state"]["heap_allocations"], 0);
}

// In every step of a gap, also right before the bases change, and at every one of several saves.
TEST_F(CliGaloreE2e, ARunResumesBitForBitAtAnyStep) {
  for (const std::string dtype : {"train.dtype=f32", "train.dtype=bf16"}) {
    succeeds(galore_run("whole", {dtype, "--overwrite"}));
    succeeds(galore_run("run", {dtype, "train.max_time=0s", "--overwrite"}));
    for (int step = 1; step < 7; ++step) succeeds({"train", "--resume", "run"});
    succeeds({"train", "--resume", "run", "train.max_time=none"});
    expect_same("run", "whole");
  }
}

TEST_F(CliGaloreE2e, AKilledRunResumesBitForBit) {
  succeeds(galore_run("whole"));
  RunningProgram program(STRATA_PROGRAM, galore_run("run", {"checkpoint.every=1"}), options_);
  ASSERT_TRUE(program.wait_for("saved run/checkpoints/step-00000003"));
  program.send(SIGKILL);
  EXPECT_EQ(program.finish().signal, SIGKILL);
  succeeds({"train", "--resume", "run"});
  expect_same("run", "whole");
}

TEST_F(CliGaloreE2e, NeitherSavesNorValidationsNorTiersChangeABit) {
  for (const Words& keys : {Words{"optim.clip=1"}, Words{"optim.clip=0", "train.grad_accum=3"},
                            Words{"optim.clip=0.5", "train.grad_accum=3"}}) {
    const auto with = [&](Words words) {
      words.insert(words.end(), keys.begin(), keys.end());
      words.emplace_back("--overwrite");
      return words;
    };
    succeeds(galore_run("whole", with({})));
    succeeds(galore_run("saved", with({"checkpoint.every=1", "train.eval_every=2"})));
    succeeds(galore_run("tiers", with({"memory.device=2MiB", "memory.pinned=1MiB", "memory.nvme=64MiB",
                                       "offload.step_mode=serial"})));
    succeeds(galore_run("undo", with({"offload.step_mode=hybrid", "train.recompute=full"})));
    for (const char* run : {"saved", "tiers", "undo"}) expect_same(run, "whole");
  }
}

TEST_F(CliGaloreE2e, ActivationsOnAnyTierChangeNoBit) {
  succeeds(galore_run("whole"));
  for (const std::string tier : {"pinned", "nvme"}) {
    succeeds(galore_run(tier, {"offload.activations=" + tier, "memory.nvme=64MiB"}));
    expect_same(tier, "whole");
  }
}

TEST_F(CliGaloreE2e, BudgetsChangeDuringTheRun) {
  const Words words = {"train.steps=120", "train.grad_accum=1", "memory.device=8MiB", "memory.pinned=8MiB"};
  succeeds(galore_run("whole", words));
  RunningProgram program(STRATA_PROGRAM, galore_run("run", words), options_);
  ASSERT_TRUE(program.wait_for("step 3/"));
  program.send(SIGSTOP);
  const ProgramResult asked = strata({"budget", "run", "memory.device=2MiB"});
  program.send(SIGCONT);
  ASSERT_EQ(asked.exit_code, 0) << asked.output();
  ASSERT_TRUE(program.wait_for("continuing with memory.device=2MiB"));
  const ProgramResult ended = program.finish();
  ASSERT_EQ(ended.exit_code, 0) << ended.output();
  expect_same("run", "whole");
}

TEST_F(CliGaloreE2e, ItsModelIsExportedEvaluatedGeneratesAndScores) {
  succeeds(galore_run("run", {"train.dtype=f32"}));
  const double loss = evaluated({"run"});
  succeeds({"export", "run", "--out", "model", "--check"});
  EXPECT_NEAR(evaluated({"model", "train.dtype=f32", "model.seq=32", "train.micro_batch=2"}), loss, 1e-5);
  EXPECT_FALSE(std::filesystem::exists(file("model/adapter_config.json")));
  const Words prompt = {"--prompt", "She ", "--tokens", "8", "--temperature", "0"};
  const auto generated = [&](const std::string& from) {
    Words words = {"generate", from};
    words.insert(words.end(), prompt.begin(), prompt.end());
    return succeeds(words).out;
  };
  EXPECT_EQ(generated("run"), generated("model"));
  succeeds(tiny("train", {"--out", "lora", "--init", "model", "adapter.method=lora", "train.steps=4"}));
  succeeds({"export", "lora", "--out", "adapter"});
  const auto adapted = [&](const std::string& from) {
    return succeeds({"generate", from, "--adapter", "a=adapter", "--prompt", "She ", "--tokens", "8",
                     "--temperature", "0"})
        .out;
  };
  EXPECT_EQ(adapted("run"), adapted("model"));
  EXPECT_THAT(refused({"export", "run", "--out", "other", "--states"}),
              HasSubstr("--states: the run trained matrices in subspaces of their gradients"));
  EXPECT_THAT(refused({"export", "run", "--out", "other", "--format", "peft"}),
              HasSubstr("--format peft: the run trained a whole model; its formats are hf and gguf"));
}

// A run over a Hugging Face folder starts as it is, and bases change nothing but by rounding.
TEST_F(CliGaloreE2e, ARunOverAFolderStartsWithItsLoss) {
  succeeds(tiny("train", {"--out", "first", "train.steps=4", "train.dtype=f32"}));
  succeeds({"export", "first", "--out", "base"});
  succeeds(galore_run("run", {"--init", "base", "optim.lr=0", "train.dtype=f32"}));
  EXPECT_NEAR(evaluated({"run"}), evaluated({"first"}), 1e-6);
}

TEST_F(CliGaloreE2e, ItIsVerifiedOverAllPlacements) {
  Words words = galore_run("none");
  words.erase(std::find(words.begin(), words.end(), "--out"),
              std::find(words.begin(), words.end(), "none") + 1);
  words.front() = "verify";
  words.insert(words.end(), {"--steps", "5"});
  succeeds(words);
}

TEST_F(CliGaloreE2e, OtherSubspacesAreAnotherRun) {
  succeeds(galore_run("run", {"train.max_time=0s"}));
  EXPECT_THAT(
      refused({"train", "--resume", "run", "optim.galore_rank=5", "optim.galore_gap=4",
               "optim.galore_svd=exact"}),
      AllOf(HasSubstr("optim.galore_rank: the checkpoint was made with 4, this run has 5"),
            HasSubstr("optim.galore_gap: the checkpoint was made with 3, this run has 4"),
            HasSubstr("optim.galore_svd: the checkpoint was made with subspace, this run has exact")));
}

TEST_F(CliGaloreE2e, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(
      refused(galore_run("run", {"optim.galore_rank=128"})),
      HasSubstr("optim.galore:\n  the rank of transformer.h.0.attn.c_attn is 128; its matrix [192, 64] "
                "allows 1 to 64"));
  EXPECT_THAT(refused(galore_run("run", {"train.frozen_masters=false"})),
              HasSubstr("train.frozen_masters = false, but optim.name = galore in bf16"));
  EXPECT_THAT(refused(galore_run("run", {"optim.weight_decay=0.1"})),
              HasSubstr("optim.weight_decay = 0.1, but optim.name is galore"));
  EXPECT_FALSE(exists("run"));
}

}  // namespace
}  // namespace strata::test
