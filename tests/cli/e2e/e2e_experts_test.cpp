// Runs of mixtures of experts: the same bits wherever their bytes are, folders in both forms, and what is
// refused.
#include <cmath>
#include <cstring>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliExpertsE2e : public CliE2e {
 protected:
  static Words run_of(const std::string& name, const Words& words = {}) {
    Words all = {"--out", name};
    for (const std::string key :
         {"train.steps=4", "log.every=1", "train.eval_every=2", "model.family=qwen2_moe", "model.experts=6",
          "model.expert_ffn=48", "model.shared_ffn=64", "memory.device=16MiB", "memory.pinned=16MiB"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(key.substr(0, key.find('=') + 1));
          }))
        all.push_back(key);
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
};

TEST_F(CliExpertsE2e, ARunHasTheSameBitsInAnyBudgetsOrderAndStepMode) {
  ASSERT_EQ(strata(run_of("whole")).exit_code, 0);
  const nlohmann::json line = metrics("whole")[0];
  EXPECT_GE(line["expert_load"].get<double>(), 1) << "the busiest expert by the mean one";
  EXPECT_LE(line["expert_load"].get<double>(), 3) << "six experts, two of which compute a token";
  double largest = 0;
  for (const auto& [layer, load] : line["expert_loads"].items())
    largest = std::max(largest, load.get<double>());
  EXPECT_NEAR(largest, line["expert_load"].get<double>(), 0.01) << "of all layers";
  EXPECT_LE(line["expert_load_mean"].get<double>(), line["expert_load"].get<double>());
  EXPECT_GT(line["expert_entropy"].get<double>(), 0.5);
  EXPECT_LE(line["expert_entropy"].get<double>(), 1);
  EXPECT_EQ(line["experts_empty"].get<double>(), 0);
  const Words ways[] = {
      {"memory.device=3MiB", "memory.pinned=4MiB", "memory.nvme=64MiB"},
      {"memory.device=3MiB", "memory.pinned=4MiB", "memory.nvme=64MiB", "offload.expert_block=1",
       "offload.chunk=8192"},
      {"offload.micro_batch_order=breadth_first", "train.recompute=full"},
      {"offload.micro_batch_order=breadth_first", "offload.expert_block=4", "offload.chunk=4096"},
      {"parallel.ranks=2", "parallel.zero=3", "offload.expert_block=2", "offload.chunk=8192"},
      {"parallel.ranks=2", "parallel.pp=2", "offload.expert_block=2", "offload.chunk=8192"},
      {"offload.step_mode=speculative", "offload.policy=pinned", "cpu.threads=1"}};
  for (const Words& words : ways) {
    const ProgramResult run = strata(run_of("run", words));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(loss_bits("run"), loss_bits("whole")) << words[0];
    const nlohmann::json first = metrics("run")[0];
    // The digest of a pipeline is that of each rank's own tensors, and each knows its own mixtures.
    if (std::find(words.begin(), words.end(), "parallel.pp=2") == words.end()) {
      EXPECT_EQ(digest("run"), digest("whole")) << words[0];
      for (const char* of_all : {"expert_load", "expert_loads", "expert_entropy", "experts_empty"})
        EXPECT_EQ(first[of_all], line[of_all]) << words[0];
    } else {
      EXPECT_FALSE(first.contains("expert_load"));
    }
    EXPECT_EQ(summary("run")["peak_bytes"], summary("run")["planned_bytes"]) << words[0];
    std::filesystem::remove_all(file("run"));
  }
  ASSERT_EQ(strata(run_of("run", {"train.max_time=0s"})).exit_code, 0);
  ASSERT_EQ(strata({"train", "--resume", "run", "train.max_time=none", "offload.policy=pinned"}).exit_code,
            0);
  EXPECT_EQ(digest("run"), digest("whole"));
  const ProgramResult evaluated = strata({"eval", "whole", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(nlohmann::json::parse(evaluated.out)["loss_bits"], summary("whole")["val_loss_bits"]);
}

TEST_F(CliExpertsE2e, AFolderIsWrittenReadAdaptedAndContinued) {
  ASSERT_EQ(strata(run_of("run")).exit_code, 0);
  const ProgramResult exported = strata({"export", "run", "--out", "model", "--check"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const Words generate = {"generate", "model", "--prompt", "She ", "--tokens", "8", "--seed", "3"};
  const ProgramResult written = strata(generate);
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_FALSE(written.out.empty());
  const Words tuned = {"train",
                       "--init",
                       "model",
                       "--out",
                       "tuned",
                       "train.steps=2",
                       "data.train=train.txt",
                       "data.val=",
                       "train.dtype=f32",
                       "adapter.method=lora"};
  const ProgramResult adapted = strata(tuned);
  ASSERT_EQ(adapted.exit_code, 0) << adapted.err;
  EXPECT_THAT(adapted.out, HasSubstr("modules: "));
  ASSERT_EQ(strata({"export", "tuned", "--out", "merged", "--check"}).exit_code, 0);
}

// Each expert has an adapter of its own, whose bits do not depend on blocks and tiers, and which merges into
// its matrix.
TEST_F(CliExpertsE2e, AdaptersOfExpertsAreTrainedMergedAndContinued) {
  ASSERT_EQ(strata(run_of("base", {"train.steps=1"})).exit_code, 0);
  ASSERT_EQ(strata({"export", "base", "--out", "model"}).exit_code, 0);
  const auto tuned = [&](const std::string& name, const Words& words) {
    Words all = {"train",
                 "--init",
                 "model",
                 "--out",
                 name,
                 "train.steps=3",
                 "train.grad_accum=2",
                 "data.train=train.txt",
                 "data.val=",
                 "train.dtype=bf16",
                 "adapter.method=lora",
                 "adapter.targets=all-linear",
                 "adapter.rank=3",
                 "adapter.target_parameters=experts.gate_up_proj,experts.down_proj,gate.weight"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(all);
  };
  const ProgramResult whole = tuned("whole", {});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const Words ways[] = {
      {"memory.device=3MiB", "memory.pinned=4MiB", "memory.nvme=64MiB", "offload.expert_block=1",
       "offload.chunk=8192"},
      {"offload.micro_batch_order=breadth_first", "train.recompute=full", "offload.expert_block=2"},
      {"parallel.ranks=2", "parallel.zero=3", "offload.expert_block=2"}};
  for (const Words& words : ways) {
    const ProgramResult run = tuned("run", words);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(loss_bits("run"), loss_bits("whole")) << words[0];
    EXPECT_EQ(digest("run"), digest("whole")) << words[0];
    std::filesystem::remove_all(file("run"));
  }
  const ProgramResult exported = strata({"export", "whole", "--out", "adapter", "--check"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const ProgramResult merged =
      strata({"export", "whole", "--out", "merged", "--format", "merged", "--check"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  const ProgramResult on = strata({"train", "--init", "model", "--adapter", "adapter", "--out", "on",
                                   "train.steps=1", "data.train=train.txt", "data.val=", "train.dtype=bf16"});
  ASSERT_EQ(on.exit_code, 0) << on.err;
}

TEST_F(CliExpertsE2e, LossesOfRoutersAreInTheMetricsAndTheLossStaysTheCrossEntropy) {
  ASSERT_EQ(strata(run_of("plain")).exit_code, 0);
  ASSERT_EQ(strata(run_of("both", {"train.router_aux=0.5", "train.router_z=0.01"})).exit_code, 0);
  const nlohmann::json first = metrics("both")[0];
  EXPECT_EQ(first["loss_bits"], metrics("plain")[0]["loss_bits"]);
  EXPECT_NE(first["grad_norm"], metrics("plain")[0]["grad_norm"]);
  EXPECT_FALSE(metrics("plain")[0].contains("router_aux"));
  EXPECT_GE(first["router_aux"].get<double>(), 1.9) << "two of six experts, evenly";
  EXPECT_LE(first["router_aux"].get<double>(), 6);
  EXPECT_GT(first["router_z"].get<double>(), 0);
  EXPECT_LT(metrics("both").back()["router_aux"], first["router_aux"]);
  const Words order = {"train.router_aux=0.5", "train.router_z=0.01", "train.recompute=full",
                       "offload.micro_batch_order=breadth_first"};
  ASSERT_EQ(strata(run_of("again", order)).exit_code, 0);
  EXPECT_EQ(digest("again"), digest("both"));
  ASSERT_EQ(
      strata(run_of("ranks", {"train.router_aux=0.5", "train.router_z=0.01", "parallel.ranks=2"})).exit_code,
      0);
  EXPECT_EQ(digest("ranks"), digest("both"));
  EXPECT_EQ(metrics("ranks")[0]["router_aux"], first["router_aux"]);
  EXPECT_EQ(metrics("ranks")[0]["router_z"], first["router_z"]);
  const ProgramResult dense =
      strata(run_of("dense", {"model.family=llama", "model.experts=auto", "model.expert_ffn=auto",
                              "model.shared_ffn=auto", "train.router_aux=0.5"}));
  EXPECT_EQ(dense.exit_code, 2);
  EXPECT_THAT(dense.err, HasSubstr("train.router_aux = 0.5, but the model has no routers with a softmax: "
                                   "model.family is llama"));
}

TEST_F(CliExpertsE2e, AFolderThatAsksForLogitsOfRoutersTrainsWithItsCoefficient) {
  ASSERT_EQ(strata(run_of("run", {"train.steps=1"})).exit_code, 0);
  ASSERT_EQ(strata({"export", "run", "--out", "model"}).exit_code, 0);
  nlohmann::json config = nlohmann::json::parse(read_all(file("model/config.json")));
  config["output_router_logits"] = true;
  config["router_aux_loss_coef"] = 0.25;
  write("model/config.json", config.dump());
  const auto tune = [&](const std::string& out, const Words& more) {
    Words words = {
        "train",     "--init",         "model", "--out", out, "train.steps=1", "data.train=train.txt",
        "data.val=", "train.dtype=f32"};
    words.insert(words.end(), more.begin(), more.end());
    return strata(words);
  };
  const ProgramResult tuned = tune("tuned", {});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.out + tuned.err,
              HasSubstr("model/config.json has output_router_logits = true: the load of "
                        "experts is balanced with train.router_aux = 0.25"));
  EXPECT_TRUE(metrics("tuned")[0].contains("router_aux"));
  const ProgramResult without = tune("without", {"train.router_aux=0"});
  ASSERT_EQ(without.exit_code, 0) << without.err;
  EXPECT_EQ((without.out + without.err).find("output_router_logits"), std::string::npos);
  EXPECT_FALSE(metrics("without")[0].contains("router_aux"));
  ASSERT_EQ(strata({"export", "tuned", "--out", "exported"}).exit_code, 0);
  const nlohmann::json exported = nlohmann::json::parse(read_all(file("exported/config.json")));
  EXPECT_EQ(exported["output_router_logits"], true);
  EXPECT_EQ(exported["router_aux_loss_coef"], 0.25);
}

// Stacks with gates and ups in turn, sinks and biases; and a bias that is f32 in a run of bf16, after a dense
// layer.
TEST_F(CliExpertsE2e, FoldersOfGptOssAndGlmAreWrittenReadAndContinued) {
  const std::pair<std::string, Words> families[] = {
      {"gpt_oss", {"model.expert_ffn=0", "model.shared_ffn=0"}},
      {"glm4_moe", {"model.expert_ffn=48", "model.shared_ffn=auto"}}};
  for (const auto& [family, own] : families) {
    const auto run = [&, &family = family, &own = own](const std::string& name, const Words& more) {
      Words words = {"model.family=" + family};
      words.insert(words.end(), own.begin(), own.end());
      words.insert(words.end(), more.begin(), more.end());
      return strata(run_of(name, words));
    };
    const ProgramResult trained = run(family, {});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const Words ways[] = {{"memory.device=3MiB", "memory.pinned=4MiB", "memory.nvme=64MiB",
                           "offload.expert_block=2", "offload.chunk=8192"},
                          {"parallel.ranks=2", "parallel.zero=3"}};
    for (const Words& words : ways) {
      const ProgramResult other = run("run", words);
      ASSERT_EQ(other.exit_code, 0) << other.err;
      EXPECT_EQ(loss_bits("run"), loss_bits(family)) << family << ", " << words[0];
      EXPECT_EQ(digest("run"), digest(family)) << family << ", " << words[0];
      std::filesystem::remove_all(file("run"));
    }
    ASSERT_EQ(run("stopped", {"train.max_time=0s"}).exit_code, 0);
    ASSERT_EQ(strata({"train", "--resume", "stopped", "train.max_time=none"}).exit_code, 0);
    EXPECT_EQ(digest("stopped"), digest(family)) << family;
    std::filesystem::remove_all(file("stopped"));
    const ProgramResult exported = strata({"export", family, "--out", family + "-hf", "--check"});
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    const ProgramResult written = strata({"generate", family + "-hf", "--prompt", "She ", "--tokens", "4"});
    ASSERT_EQ(written.exit_code, 0) << written.err;
    const ProgramResult tuned =
        strata({"train", "--init", family + "-hf", "--out", family + "-tuned", "train.steps=2",
                "data.train=train.txt", "data.val=", "adapter.method=lora"});
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  }
}

/// The values of the f32 tensors of an exported folder whose names end in `ending`.
std::vector<float> values_of(const std::string& file, std::string_view ending) {
  const std::string bytes = read_all(file);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::vector<float> values;
  const nlohmann::json tensors = nlohmann::json::parse(bytes.substr(8, header));
  for (const auto& [name, tensor] : tensors.items()) {
    if (!name.ends_with(ending)) continue;
    EXPECT_EQ(tensor["dtype"], "F32") << name;
    const std::size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1], n = values.size();
    values.resize(n + (end - begin) / sizeof(float));
    std::memcpy(values.data() + n, bytes.data() + 8 + header + begin, end - begin);
  }
  return values;
}

// They are states: the same bits anywhere, on any number of ranks, and after a run goes on.
TEST_F(CliExpertsE2e, BiasesOfRoutersMoveByTheRateAfterEachStep) {
  const auto balanced = [](const std::string& name, const Words& more) {
    Words words = {"model.family=glm4_moe", "model.shared_ffn=auto"};
    words.insert(words.end(), more.begin(), more.end());
    // After an even number of steps at such a rate, which turns the order of experts round, all are 0 again.
    if (std::none_of(more.begin(), more.end(),
                     [](const auto& word) { return word.starts_with("train.steps"); }))
      words.push_back("train.steps=3");
    if (std::none_of(more.begin(), more.end(),
                     [](const auto& word) { return word.starts_with("train.router"); }))
      words.push_back("train.router_bias_rate=0.0625");
    return run_of(name, words);
  };
  const ProgramResult whole = strata(balanced("whole", {}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(summary("whole")["steady_state"]["heap_allocations"], 0);
  const Words ways[] = {
      {"memory.device=3MiB", "memory.pinned=4MiB", "memory.nvme=64MiB", "offload.chunk=8192"},
      {"offload.step_mode=speculative", "offload.policy=pinned"},
      {"offload.micro_batch_order=breadth_first", "offload.step_mode=serial"},
      {"parallel.ranks=2", "parallel.zero=0"},
      {"parallel.ranks=2", "parallel.zero=3"}};
  for (const Words& words : ways) {
    const ProgramResult run = strata(balanced("run", words));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(digest("run"), digest("whole")) << words[0];
    EXPECT_EQ(summary("run")["peak_bytes"], summary("run")["planned_bytes"]) << words[0];
    std::filesystem::remove_all(file("run"));
  }
  ASSERT_EQ(strata(balanced("stopped", {"train.max_time=0s"})).exit_code, 0);
  ASSERT_EQ(strata({"train", "--resume", "stopped", "train.max_time=none"}).exit_code, 0);
  EXPECT_EQ(digest("stopped"), digest("whole"));
  ASSERT_EQ(strata({"export", "whole", "--out", "model", "--check"}).exit_code, 0);
  const std::vector<float> biases = values_of(file("model/model.safetensors"), "e_score_correction_bias");
  EXPECT_EQ(biases.size() % 6, 0u);
  EXPECT_GT(std::count_if(biases.begin(), biases.end(), [](float bias) { return bias != 0; }), 0);
  for (const float bias : biases) {
    EXPECT_EQ(std::fmod(bias, 0.0625f), 0) << "a sum of steps";
    EXPECT_LE(std::fabs(bias), 3 * 0.0625f) << "of three of them";
  }
  const ProgramResult long_run = strata(balanced("long", {"train.steps=24", "train.router_bias_rate=0.01"}));
  ASSERT_EQ(long_run.exit_code, 0) << long_run.err;
  ASSERT_EQ(strata(balanced("plain", {"train.steps=24", "train.router_bias_rate=0"})).exit_code, 0);
  EXPECT_NE(digest("long"), digest("plain"));
  const auto last_load = [&](const char* run) {
    double load = 0;
    for (const auto& line : metrics(run))  // validations have none
      if (line.contains("expert_load_mean")) load = line["expert_load_mean"];
    return load;
  };
  EXPECT_GT(last_load("long"), 1);
  EXPECT_LT(last_load("long"), last_load("plain"));
}

TEST_F(CliExpertsE2e, ThePlanSaysWhatWorksForATokenAndRefusalsSayWhy) {
  Words plan = run_of("unused");
  plan[0] = "plan";
  plan.erase(std::find(plan.begin(), plan.end(), "--out"), std::find(plan.begin(), plan.end(), "--out") + 2);
  const ProgramResult planned = strata(plan);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out,
              AllOf(HasSubstr("\nexperts  6 in each of "), HasSubstr(", 2 for a token, for which "),
                    HasSubstr(" rows an expert and step\n")));
  const auto refused = [&](const Words& words) {
    const ProgramResult result = strata(run_of("refused", words));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused({"model.experts_per_token=7"}),
              HasSubstr("model.experts_per_token is 7 and model.experts 6"));
  EXPECT_THAT(refused({"model.experts=0"}), HasSubstr("the MLPs of Qwen2-MoE are mixtures of experts"));
  EXPECT_THAT(refused({"model.family=llama"}), HasSubstr("the MLPs of LLaMA are no mixtures of experts"));
  EXPECT_THAT(refused({"model.family=qwen3_moe"}),
              HasSubstr("model.shared_ffn is 64; it must be 0, since no MLP"));
  EXPECT_THAT(refused({"model.shared_ffn=0"}),
              HasSubstr("model.shared_ffn is 0; it must be 1 or more in Qwen2-MoE"));
  EXPECT_THAT(refused({"model.family=mixtral", "model.shared_ffn=0"}),
              HasSubstr("in Mixtral they are equal"));
}

}  // namespace
}  // namespace strata::test
