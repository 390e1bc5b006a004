// Runs that learn from answers that they sample: GRPO and PPO.
#include <cmath>
#include <filesystem>

#include <strata/runtime/str.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliPolicyE2e : public CliE2e {
 protected:
  CliPolicyE2e() {
    std::string prompts;
    for (const char* text : {"It is a truth", "She was", "The man of", "In the morning", "He had", "They"})
      prompts += str("{\"prompt\": \"", text, "\", \"note\": 1}\n");
    write("prompts.jsonl", prompts);
  }
  /// A small model that writes texts, as a Hugging Face folder.
  void make_base(const Words& more = {}) {
    Words words = {"--out",
                   "base",
                   "--overwrite",
                   "--task",
                   "sft",
                   "data.train=train.txt",
                   "train.steps=20",
                   "data.val=val.txt",
                   "optim.lr=0.01",
                   "train.eval_every=0",
                   "train.dtype=f32"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult base = strata(tiny("train", words));
    ASSERT_EQ(base.exit_code, 0) << base.err;
    std::filesystem::remove_all(file("hf"));
    ASSERT_EQ(strata({"export", "base", "--out", "hf"}).exit_code, 0);
  }
  static Words run_of(const std::string& name, const std::string& task, const Words& words = {}) {
    Words all = {"train", "--init", "hf", "--task", task, "--out", name, "data.train=prompts.jsonl"};
    for (const std::string key :
         {"model.seq=32", "train.steps=6", "train.dtype=f32", "optim.lr=0.002", "optim.warmup=0",
          "train.micro_batch=2", "align.prompts=3", "align.samples=4", "align.mini_batches=2",
          "align.max_tokens=12", "align.max_prompt=12", "align.reward=density:[aeiou]", "align.slots=5",
          "memory.nvme_dir=nvme", "log.every=1"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(key.substr(0, key.find('=') + 1));
          }))
        all.push_back(key);
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  std::vector<double> all_of(const std::string& run, const std::string& key) const {
    std::vector<double> values;
    for (const nlohmann::json& line : metrics(run))
      if (line.contains(key)) values.push_back(line[key].get<double>());
    return values;
  }
};

TEST_F(CliPolicyE2e, GrpoRaisesTheRewardFromTheModelThatItStartsFrom) {
  make_base();
  const ProgramResult run =
      strata(run_of("run", "grpo",
                    {"train.steps=30", "optim.lr=0.01", "align.prompts=6", "align.samples=8",
                     "align.mini_batches=1", "log.prometheus=run/metrics.prom", "log.tensorboard=true"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<double> rewards = all_of("run", "reward"), kl = all_of("run", "kl");
  ASSERT_EQ(rewards.size(), 30u);
  EXPECT_EQ(kl.front(), 0.0);  // the policy is its reference
  EXPECT_GT(kl.back(), 0.0);
  for (const double ratio : all_of("run", "ratio_max")) EXPECT_EQ(ratio, 1.0);  // one step an iteration
  EXPECT_GT(rewards[28] + rewards[29], rewards[0] + rewards[1] + 0.2);
  EXPECT_THAT(all_of("run", "packed"), ::testing::Each(::testing::Gt(0.3)));
  EXPECT_THAT(read_all(file("run/metrics.prom")), HasSubstr("strata_reward{run=\"run\"} "));
  const ProgramResult text = strata({"generate", "run", "--prompt", "She was", "--tokens", "5"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
}

// Contract C9: what the sampler says of a token is what the forward of training says, so that no pass over
// the answers is needed before the first of several steps.
TEST_F(CliPolicyE2e, TheSamplersLogProbabilitiesAreThoseOfTraining) {
  struct Case {
    Words model, run;
  };
  const Case cases[] = {
      {{}, {"align.temperature=0.7"}},
      {{"model.family=gemma2"}, {"align.temperature=1.3"}},  // its logits have a soft cap
      {{"model.family=qwen3_moe", "model.experts=6", "model.expert_ffn=48"},
       {"train.dtype=bf16", "cpu.bf16_matmul=widened", "adapter.method=lora"}},
      {{"model.family=qwen3_5_text", "model.layers=4", "memory.device=64MiB", "memory.pinned=64MiB"},
       {"adapter.method=lora", "train.base=nf4-dq"}},
  };
  for (const auto& [model, settings] : cases)
    for (const std::string task : {"grpo", "ppo"}) {
      if (task == "grpo") make_base(model);
      const std::string of = str(model.empty() ? "gpt2" : model[0], " ", task);
      Words words = settings;
      words.insert(words.end(), {"--overwrite", "align.mini_batches=2", "align.old_log_probs=sampler"});
      const ProgramResult sampled = strata(run_of("sampled", task, words));
      ASSERT_EQ(sampled.exit_code, 0) << of << sampled.err;
      EXPECT_THAT(all_of("sampled", "sampler_mismatch"), ::testing::Each(0.0)) << of;
      EXPECT_EQ(all_of("sampled", "sampler_mismatch").size(), 6u);
      EXPECT_EQ(all_of("sampled", "ratio_max")[0], 1.0) << of;
      const nlohmann::json plan = nlohmann::json::parse(read_all(file("sampled/plan.json")));
      words.back() = "align.old_log_probs=scored";
      const ProgramResult scored = strata(run_of("scored", task, words));
      ASSERT_EQ(scored.exit_code, 0) << of << scored.err;
      EXPECT_THAT(all_of("scored", "sampler_mismatch"), ::testing::Each(0.0)) << of;
      EXPECT_EQ(loss_bits("scored"), loss_bits("sampled")) << of;
      EXPECT_EQ(digest("scored"), digest("sampled")) << of;
      for (const char* key : {"kl", "entropy", "old_kl"})
        EXPECT_EQ(all_of("scored", key), all_of("sampled", key)) << of << " " << key;
      const nlohmann::json other = nlohmann::json::parse(read_all(file("scored/plan.json")));
      EXPECT_EQ(plan["programs"].size() + 1, other["programs"].size()) << of;
    }
}

TEST_F(CliPolicyE2e, RolloutsAreWrittenWithTheirLogProbabilities) {
  make_base();
  const ProgramResult whole = strata(run_of("whole", "grpo", {"log.rollouts=true"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  std::istringstream lines(read_all(file("whole/rollouts.jsonl")));
  std::vector<nlohmann::json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(answers.size(), 3u * 12u);  // three iterations of two steps
  double rewards = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const nlohmann::json& answer = answers[i];
    EXPECT_EQ(answer["step"], 1 + 2 * (i / 12));
    const std::size_t n = answer["ids"].size() - answer["n_prompt"].get<std::size_t>();
    EXPECT_EQ(answer["log_probs"].size(), n);
    for (const nlohmann::json& log_prob : answer["log_probs"]) EXPECT_LE(log_prob.get<double>(), 0.0);
    if (i < 12) rewards += answer["reward"].get<double>() / 12;
  }
  EXPECT_NEAR(rewards, all_of("whole", "reward")[0], 1e-5);
  // A run that is stopped in the midst of an iteration has the same file once it has gone on.
  const ProgramResult stopped =
      strata(run_of("stopped", "grpo", {"log.rollouts=true", "train.max_time=0s", "checkpoint.every=1"}));
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  write("stopped/rollouts.jsonl",
        read_all(file("stopped/rollouts.jsonl")) + "{\"step\": 3, \"prompt\": \"old\"}\n{");
  const ProgramResult resumed = strata({"train", "--resume", "stopped", "train.max_time=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(read_all(file("stopped/rollouts.jsonl")), read_all(file("whole/rollouts.jsonl")));
}

TEST_F(CliPolicyE2e, ASamplerWithOtherLogProbabilitiesIsNoticed) {
  make_base();
  options_.environment.emplace_back("ONEDNN_MAX_CPU_ISA=SSE41");  // its sums are no chains then
  const ProgramResult scored = strata(run_of("scored", "grpo"));
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  EXPECT_THAT(read_all(file("scored/config.resolved.toml")), HasSubstr("old_log_probs = \"scored\""));
  EXPECT_GT(all_of("scored", "sampler_mismatch").at(2), 0.0);
  EXPECT_EQ(all_of("scored", "ratio_max").at(2), 1.0);
  EXPECT_THAT(scored.out + scored.err, ::testing::Not(HasSubstr("align.old_log_probs")));
  const ProgramResult sampled = strata(run_of("sampled", "grpo", {"align.old_log_probs=sampler"}));
  ASSERT_EQ(sampled.exit_code, 0) << sampled.err;
  EXPECT_GT(all_of("sampled", "sampler_mismatch").at(2), 0.0);
  EXPECT_EQ(all_of("sampled", "sampler_mismatch").at(3), 0.0);  // the second step of the iteration
  EXPECT_THAT(sampled.out + sampled.err, HasSubstr("align.old_log_probs=scored computes them by the rows"));
}

TEST_F(CliPolicyE2e, ARunWhoseRewardsAreEqualSaysThatItLearnsNothingFromThem) {
  make_base();
  const ProgramResult run = strata(run_of("run", "grpo", {"align.reward=matches:[0-9]{9}"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out + run.err, HasSubstr("steps 1 to 5 learned nothing from the rewards: all 4 answers"));
  EXPECT_THAT(all_of("run", "equal_rewards"), ::testing::Each(1.0));
  const ProgramResult other = strata(run_of("other", "grpo", {}));
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(all_of("other", "equal_rewards"), ::testing::Each(::testing::Lt(1.0)));
  EXPECT_THAT(other.out + other.err, ::testing::Not(HasSubstr("learned nothing")));
}

// The run has the bits and texts of the whole run in any placement, also if it is stopped in the midst of an
// iteration that has several steps.
TEST_F(CliPolicyE2e, IterationsHaveTheSameBitsWhereverTheirBytesLie) {
  make_base();
  struct Case {
    std::string run, task, epochs;  // an epoch has as many mini-batches
  };
  for (const auto& [name, task, epochs] :
       {Case{"grpo", "grpo", "2"}, Case{"ppo", "ppo", "2"}, Case{"once", "grpo", "1"}}) {
    const Words settings = {"align.epochs=" + epochs,
                            "align.mini_batches=" + epochs,
                            "align.samples=4",
                            "data.mixture=train.txt",
                            "align.mixture_weight=0.3",
                            "optim.ema_decay=0.9",
                            "train.dtype=bf16",
                            "cpu.bf16_matmul=widened",
                            task == "ppo" ? "align.kl_target=0.1" : "align.kl=k3"};
    const auto with = [&](Words more) {
      more.insert(more.end(), settings.begin(), settings.end());
      return more;
    };
    const ProgramResult whole = strata(run_of(name, task, with({})));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(all_of(name, "ratio_max")[0], 1.0);  // the first step of an iteration
    // A step of a later epoch, if there is one.
    EXPECT_EQ(all_of(name, "ratio_max")[2] == 1.0, epochs == "1");
    EXPECT_EQ(all_of(name, "ratio_max")[4], 1.0);
    const std::string other = name + "-nvme";
    const ProgramResult stopped =
        strata(run_of(other, task,
                      with({"memory.nvme=1GiB", "offload.policy=nvme", "offload.step_mode=speculative",
                            "train.max_time=0s"})));
    ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
    const ProgramResult resumed = strata({"train", "--resume", other, "train.max_time=none"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(loss_bits(other), loss_bits(name));
    EXPECT_EQ(digest(other), digest(name));
    for (const char* key : {"reward", "kl", "entropy", "answer_tokens", "kl_coef"})
      EXPECT_EQ(all_of(other, key), all_of(name, key)) << key;
  }
}

TEST_F(CliPolicyE2e, AdaptersShareTheirBaseWithReferenceAndCritic) {
  make_base();
  for (const std::string task : {"grpo", "ppo"}) {
    const ProgramResult run = strata(run_of(
        task, task, {"adapter.method=lora", "adapter.rank=4", "align.kl_coef=0.1", "align.samples=4"}));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(all_of(task, "kl").front(), 0.0);
    const ProgramResult resumed = strata({"train", "--resume", task, "train.steps=8"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(all_of(task, "reward").size(), 8u);
    const ProgramResult exported = strata({"export", task, "--out", task + "-peft", "--format", "peft"});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
  }
}

// Actor, reference, critic and reward model: one base with three adapters of its own, and two heads.
TEST_F(CliPolicyE2e, ARewardModelSaysWhatAnswersAreWorth) {
  make_base();
  write("pairs.jsonl",
        "{\"prompt\": \"She was\", \"chosen\": \" aaaa\", \"rejected\": \" tttt\"}\n"
        "{\"prompt\": \"They\", \"chosen\": \" eaea\", \"rejected\": \" xz\"}\n");
  const Words of_reward = {"--task",          "reward",        "data.train=pairs.jsonl",
                           "model.seq=32",    "train.steps=8", "train.micro_batch=2",
                           "train.dtype=f32", "optim.lr=0.01", "memory.nvme_dir=nvme"};
  const auto train_reward = [&](const std::string& out, const Words& more) {
    Words words = {"train", "--init", "hf", "--out", out};
    words.insert(words.end(), of_reward.begin(), of_reward.end());
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult run = strata(words);
    ASSERT_EQ(run.exit_code, 0) << run.err;
  };
  train_reward("scores", {"adapter.method=lora", "adapter.rank=4"});
  const Words lora = {"adapter.method=lora", "adapter.rank=4", "align.samples=4",
                      "align.reward=model:scores,0.5*ended"};
  const ProgramResult shared = strata(run_of("shared", "ppo", lora));
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  // The same scores from a folder with all values of its own.
  ASSERT_EQ(strata({"export", "scores", "--out", "scores_hf", "--format", "merged"}).exit_code, 0);
  Words merged = lora;
  merged.back() = "align.reward=model:scores_hf,0.5*ended";
  const ProgramResult whole = strata(run_of("whole", "ppo", merged));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_NEAR(all_of("shared", "reward")[0], all_of("whole", "reward")[0], 1e-4);
  EXPECT_NE(all_of("shared", "reward")[0], 0.0);
  // Resumed, also by a run whose checkpoint leaves out what is frozen.
  const ProgramResult resumed = strata({"train", "--resume", "shared", "train.steps=9"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(all_of("shared", "reward").size(), 9u);
  // Full models, all with their own parameters, from a run.
  train_reward("full_scores", {});
  const ProgramResult full =
      strata(run_of("full", "grpo", {"align.reward=2*model:full_scores", "train.steps=2"}));
  ASSERT_EQ(full.exit_code, 0) << full.err;
  // The policy alone writes texts, and has a loss on texts.
  for (const char* run : {"full", "shared", "whole"}) {
    const ProgramResult texts = strata({"generate", run, "--prompt", "She was", "--tokens", "3"});
    EXPECT_EQ(texts.exit_code, 0) << texts.err;
    const ProgramResult loss = strata({"eval", run, "--data", "val.txt"});
    EXPECT_EQ(loss.exit_code, 0) << loss.err;
  }
  const ProgramResult trained = strata(run_of("trained", "grpo", {"align.reward=model:scores"}));
  EXPECT_EQ(trained.exit_code, 2);
  EXPECT_THAT(trained.err, HasSubstr("it is an adapter over a base that this run would train"));
  const ProgramResult none = strata(run_of("none", "grpo", {"align.reward=model:hf"}));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("it has a head for tokens, and no score"));
}

TEST_F(CliPolicyE2e, WhatDoesNotGoTogetherIsRefusedAtOnce) {
  make_base();
  const ProgramResult run = strata(
      run_of("a", "grpo",
             {"align.reward=lenght:3", "align.samples=1", "align.mini_batches=2", "align.max_tokens=40",
              "align.loss=ipo", "train.grad_accum=7", "data.val=prompts.jsonl", "parallel.ranks=2"}));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(
      run.err,
      AllOf(HasSubstr("the kinds of rewards are"), HasSubstr("there must be 2 or more"),
            HasSubstr("does not divide the 3 answers"), HasSubstr("do not fit into model.seq = 32"),
            HasSubstr("align.loss = ipo is a loss of dpo"), HasSubstr("which follow from section align"),
            HasSubstr("which has no validation"), HasSubstr("which runs on one rank")));
  const ProgramResult kl = strata(run_of(
      "k", "grpo",
      {"align.kl=k1", "align.kl_target=1", "align.samples=4", "offload.micro_batch_order=breadth_first"}));
  EXPECT_EQ(kl.exit_code, 2);
  EXPECT_THAT(kl.err, AllOf(HasSubstr("whose gradient in the loss of grpo is none"),
                            HasSubstr("only the penalty of ppo adapts to it"),
                            HasSubstr("which leaves out those that are empty")));
  const ProgramResult unanswered = strata(run_of("u", "grpo", {"align.reward=answer"}));
  EXPECT_EQ(unanswered.exit_code, 2);
  EXPECT_THAT(unanswered.err, HasSubstr("the prompt 'It is a truth' has no \"answer\""));
  Words verified = run_of("v", "grpo");
  verified[0] = "verify";
  verified.erase(verified.begin() + 1, verified.begin() + 3);  // --init
  verified.push_back("model.from=hf");
  verified.erase(std::find(verified.begin(), verified.end(), "--out"),
                 std::find(verified.begin(), verified.end(), "--out") + 2);
  EXPECT_THAT(strata(verified).err, HasSubstr("which strata verify does not"));
  const ProgramResult none = strata(run_of("b", "ppo", {"align.reward="}));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("align.reward is empty, but train.objective is ppo (--task ppo)"));
  const ProgramResult dead = strata(run_of("c", "grpo", {"align.reward=command:exit 3"}));
  EXPECT_EQ(dead.exit_code, 5);
  EXPECT_THAT(dead.err, HasSubstr("align.reward = exit 3: it ended before it had answered everything"));
}

}  // namespace
}  // namespace strata::test
