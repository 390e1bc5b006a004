// `strata plan`: forecasts and plans before a run exists.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using CliPlanE2e = CliE2e;

Words for_machine(const Words& more) {
  Words words = {"plan", "--machine", "h200", "--params", "7e9", "model.seq=2048", "train.micro_batch=8"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(CliPlanE2e, AStepIsForecastForAnotherMachine) {
  const ProgramResult shown = strata(for_machine({}));
  ASSERT_EQ(shown.exit_code, 0) << shown.output();
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("7.01 B parameters"), HasSubstr("136.0 GiB"), HasSubstr("forecast for h200"),
                    HasSubstr("tokens/s"), HasSubstr("the largest wait was for")));
  const auto plan = nlohmann::json::parse(strata(for_machine({"--json"})).out);
  EXPECT_GT(plan["forecast"]["step_s"].get<double>(), 0.5);
  EXPECT_LT(plan["forecast"]["step_s"].get<double>(), 5);
  EXPECT_EQ(plan["forecast"]["machine"], "h200");
}

TEST_F(CliPlanE2e, UserSettingsOverrideThoseOfAnotherMachine) {
  const auto plan =
      nlohmann::json::parse(strata(for_machine({"--json", "memory.device=24GiB", "model.layers=4"})).out);
  EXPECT_EQ(plan["tiers"]["device"]["budget_bytes"].get<std::uint64_t>(), std::uint64_t{24} << 30);
  EXPECT_LT(plan["parameters"].get<double>(), 2e9);
}

TEST_F(CliPlanE2e, APlanThatDoesNotFitAMachineIsRefusedWithBudgetsThatDo) {
  const ProgramResult refused =
      strata(for_machine({"memory.pinned=1GiB", "memory.nvme=0", "memory.device=20GiB"}));
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("smallest that fits"), HasSubstr("it fits with:")));
}

TEST_F(CliPlanE2e, BudgetsAreSweptAndTheSmallestSufficientOnesAreNamed) {
  const Words small = {"plan", "--machine", "h200", "--params", "1e8"};
  const auto with = [&](const char* option) {
    Words words = small;
    words.emplace_back(option);
    return strata(words);
  };
  const ProgramResult sweep = with("--sweep");
  ASSERT_EQ(sweep.exit_code, 0) << sweep.output();
  EXPECT_THAT(sweep.out,
              AllOf(HasSubstr("tokens/s by budget"), HasSubstr("34.0 GiB"), HasSubstr("136.0 GiB"),
                    HasSubstr("114.0 GiB"), Not(HasSubstr("272.0 GiB")), Not(HasSubstr("228.0 GiB"))))
      << "it has 136 and 114 GiB";
  const ProgramResult optimized = with("--optimize");
  EXPECT_THAT(optimized.out, HasSubstr("at most 2 % slower with memory.device="));
}

TEST_F(CliPlanE2e, ParameterCountsAreAcceptedInCommonNotations) {
  const auto parameters = [&](const std::string& size) {
    return nlohmann::json::parse(
        strata({"plan", "--machine", "h200", "--params", size, "--json"}).out)["parameters"];
  };
  EXPECT_EQ(parameters("7b"), parameters("7e9"));
  EXPECT_EQ(parameters("7B"), parameters("7000000000"));
}

TEST_F(CliPlanE2e, ARefusalNamesTheTierThatIsTooSmall) {
  const ProgramResult refused =
      strata({"plan", "--machine", "h200", "--params", "30b", "memory.nvme=0", "train.recompute=full"});
  EXPECT_EQ(refused.exit_code, 3) << refused.output();
  EXPECT_THAT(refused.err, AllOf(HasSubstr("no budgets within the memory of this machine fit: it has "),
                                 Not(HasSubstr("it fits with:"))));
}

// --- The model and dtype of a plan ---

TEST_F(CliPlanE2e, AFolderIsPlannedByItsNameOrItsConfiguration) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=1"})).exit_code, 0);
  ASSERT_EQ(strata({"export", "run", "--out", "hf"}).exit_code, 0);
  const auto plan = [&](const std::string& what) {
    // Fixed, because the reason for a measured choice contains the times, and free memory changes.
    const ProgramResult planned = strata({"plan", what, "model.seq=32", "cpu.bf16_matmul=widened",
                                          "memory.device=64MiB", "memory.pinned=64MiB"});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    return planned.out;
  };
  const std::string by_key = plan("model.from=hf");
  EXPECT_THAT(by_key, HasSubstr("gpt2: 2 layers, hidden 64"));
  for (const std::string name : {"hf", "hf/", "./hf", "hf/config.json"})
    EXPECT_EQ(plan(name), by_key) << name;
  must(posix_io().remove_all(file("hf/model.safetensors")));
  EXPECT_EQ(plan("hf"), by_key) << "a plan needs no weights";
  write("config.json", R"({"model": {"layers": 3}})");  // a strata configuration
  EXPECT_THAT(plan("config.json"), HasSubstr("3 layers"));
}

TEST_F(CliPlanE2e, TheTablesNameTheDtype) {
  for (const std::string dtype : {"f32", "bf16", "f16"}) {
    const std::string says = str("tokens (2 micro-batches of 2 sequences) in ", dtype, ", adamw in fp32");
    EXPECT_THAT(strata(tiny("plan", {"train.dtype=" + dtype})).out, HasSubstr(says));
    EXPECT_THAT(strata(tiny("train", {"--out", dtype, "train.steps=1", "train.dtype=" + dtype})).out,
                HasSubstr(says));
    const auto parsed = nlohmann::json::parse(strata(tiny("plan", {"--json", "train.dtype=" + dtype})).out);
    EXPECT_EQ(parsed["dtype"], dtype);
  }
}

TEST_F(CliPlanE2e, OneOfAThingIsNotCalledSeveral) {
  const ProgramResult planned =
      strata(tiny("plan", {"model.layers=1", "train.grad_accum=1", "train.micro_batch=1"}));
  EXPECT_THAT(planned.out,
              AllOf(HasSubstr("gpt2: 1 layer, hidden"), HasSubstr("tokens (1 micro-batch of 1 sequence) in"),
                    Not(ContainsRegex("[^0-9.]1 (micro-batches|sequences|layers|home payloads|"
                                      "chunks)"))));
}

// The model has 33 heads of 128 values. wgmma and cuDNN support these; a cuDNN backward that would keep more
// than 256 MiB runs in groups of heads.
TEST_F(CliPlanE2e, TheAttentionBackendIsShownAndRefusedIfUnsupported) {
  EXPECT_THAT(strata(for_machine({})).out,
              AllOf(HasSubstr(", attention by cudnn\n"), Not(HasSubstr("is forecast as"))));
  EXPECT_THAT(strata(for_machine({"train.attention_backend=mma"})).out,
              Not(AnyOf(HasSubstr("attention by"), HasSubstr("is forecast as"))));
  EXPECT_THAT(strata(for_machine({"train.fp8=true"})).out, HasSubstr("FP8 GEMM is forecast as 16-bit GEMM"));
  EXPECT_THAT(strata(for_machine({"train.attention_backend=wgmma"})).out,
              AllOf(HasSubstr(", attention by wgmma\n"), Not(HasSubstr("is forecast as"))));
  EXPECT_THAT(
      strata({"plan", "--machine", "a100-80gb", "--params", "1e9", "train.attention_backend=cudnn"}).out,
      HasSubstr("cuDNN attention is forecast as mma attention"));
  EXPECT_THAT(strata(for_machine({"train.attention_backend=cudnn"})).out,
              HasSubstr(", attention by cudnn\n"));
  EXPECT_THAT(strata({"plan", "--machine", "h200", "--params", "7e9", "model.seq=1024", "train.micro_batch=8",
                      "train.attention_backend=cudnn"})
                  .out,
              HasSubstr(", attention by cudnn\n"));
  const auto none = [](const ProgramResult& result, const std::string& says) {
    EXPECT_EQ(result.exit_code, 2) << result.output();
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("does not support the attention of this model"), HasSubstr(says)));
  };
  none(strata(for_machine({"train.attention_backend=wgmma", "model.heads=64"})),
       "heads of 66 values in bf16; it supports");
  none(strata(for_machine({"train.attention_backend=cudnn", "train.dtype=f32"})),
       "with 33 heads of 128 values in f32; it supports");
  none(strata(for_machine({"train.attention_backend=cudnn", "model.family=bloom", "model.ffn=16896"})),
       "in bf16, with ALiBi; it supports");
}

// 70e9 parameters in four bits and their adapters, on a card of 24 GB.
TEST_F(CliPlanE2e, ATaskSetsWhatARunIsFor) {
  const Words words = {"plan", "--machine", "rtx-4090", "--params", "70e9", "--task", "qlora", "--json"};
  const ProgramResult planned = strata(words);
  ASSERT_EQ(planned.exit_code, 0) << planned.output();
  const auto plan = nlohmann::json::parse(planned.out);
  EXPECT_NEAR(plan["parameters"].get<double>(), 70e9, 1e9);
  EXPECT_LT(plan["tiers"]["device"]["planned_bytes"].get<double>() +
                plan["tiers"]["pinned"]["planned_bytes"].get<double>(),
            0.6 * 70e9 + 24e9);
  const ProgramResult shown = strata({"config", "show", "--origin", "--task", "qlora", "adapter.rank=4"});
  EXPECT_THAT(shown.out, AllOf(ContainsRegex("base += \"?nf4-dq\"? .*--task qlora"),
                               ContainsRegex("method += \"?lora\"? .*--task qlora"),
                               ContainsRegex("rank += 4 .*argument adapter.rank=4")));
  EXPECT_THAT(strata({"plan", "--task", "lora", "--params", "1e9", "train.base=nf4"}).out,
              HasSubstr("nf4 of 60 matrices"));
}

TEST_F(CliPlanE2e, MistakesAreNamed) {
  const auto refused = [&](const Words& words, int code, const std::string& says) {
    const ProgramResult result = strata(words);
    EXPECT_EQ(result.exit_code, code) << result.output();
    EXPECT_THAT(result.err, HasSubstr(says));
  };
  refused({"plan", "--machine", "h20"}, 2, "no machine profile 'h20'; shipped are");
  refused({"plan", "--machine", "gone.toml"}, 2, "gone.toml");
  refused({"plan", "--machine", "h200", "--params", "7"}, 2,
          "--params 7 is out of range; it must be from 1e+06");
  refused({"plan", "--machine", "h200", "--params", "0"}, 2,
          "--params 0 is out of range; it must be from 1e+06");
  for (const char* none : {"7x", "seven"})
    refused({"plan", "--machine", "h200", "--params", none}, 2, str("--params ", none));
  refused({"plan", "--task", "tune"}, 2, "--task tune is no task; the tasks are full, lora, qlora");
  refused(tiny("plan", {"--sweep"}), 2, "strata bench measures this machine");
  refused({"plan", "--machine", "h200", "--optimize", "--sweep"}, 2, "--sweep");
  refused({"plan", "--machine", "h200", "--optimize", "--json"}, 2, "--json");
  write("broken.toml", "[machine]\ncores = 0\n[link]\nh2d_gb_per_s = -1\n");
  refused({"plan", "--machine", "broken.toml"}, 2, "link.h2d_gb_per_s");
}

TEST_F(CliPlanE2e, AStoredProfileIsUsedByPlansAndRunsAndComparedWithTheRun) {
  const ProgramResult without = strata(tiny("plan"));
  EXPECT_THAT(without.out, HasSubstr("no forecast: strata bench measures this machine"));
  const ProgramResult bench = strata({"bench", "--quick", "--nvme-dir", "nvme"});
  ASSERT_EQ(bench.exit_code, 0) << bench.output();
  EXPECT_THAT(bench.out, AllOf(HasSubstr("AdamW, states in int8"), HasSubstr("NVMe tier, both at once"),
                               HasSubstr("pageable to device"), HasSubstr("threads (cpu.threads)"),
                               HasSubstr("writes of nvme, GB/s"), HasSubstr("io.block=1.0 MiB"),
                               HasSubstr("sent by each of 2 threads")));
  ASSERT_TRUE(exists("cache/strata/machine.toml"));
  const ProgramResult plan = strata(tiny("plan"));
  EXPECT_THAT(plan.out, AllOf(HasSubstr("measured by strata bench --quick"), HasSubstr("tokens/s")));
  const ProgramResult run = strata(tiny("train", {"--out", "run", "train.steps=8"}));
  ASSERT_EQ(run.exit_code, 0) << run.output();
  EXPECT_THAT(run.out, HasSubstr("forecast     measured"));
  const nlohmann::json forecast = summary("run")["forecast"];
  EXPECT_GT(forecast["step_s"].get<double>(), 0);
  EXPECT_GT(forecast["measured_step_s"].get<double>(), 0);
}

TEST_F(CliPlanE2e, ThePlanOfARankPricesWhatItExchangesByTheNetworkOfTheProfile) {
  const std::string machine = read_all(str(STRATA_SOURCE_DIR, "/offload/machines/h200.toml"));
  const auto plan_with = [&](double gb_per_s, bool as_json) {
    write("machine.toml",
          str(machine, "\n[network]\ngb_per_s = ", gb_per_s, "\nlatency_us = 10\nranks = 8\n"));
    Words words = {"--machine", file("machine.toml"), "parallel.ranks=4", "train.grad_accum=4"};
    if (as_json) words.push_back("--json");
    return strata(tiny("plan", words));
  };
  const ProgramResult without = plan_with(0, false);
  EXPECT_EQ(without.exit_code, 0) << without.output();
  EXPECT_THAT(without.out, HasSubstr("collectives are taken as free: the profile has no rate of the network "
                                     "(mpirun -np 4 strata bench measures it)"));
  const ProgramResult with = plan_with(1, false);
  EXPECT_THAT(with.out, HasSubstr("1 GB/s sent by each rank, 10 us for a small collective; measured with 8 "
                                  "processes"));
  EXPECT_THAT(with.out, ContainsRegex("\n  collective "));
  const auto slow = nlohmann::json::parse(plan_with(0.001, true).out)["forecast"],
             fast = nlohmann::json::parse(plan_with(1, true).out)["forecast"];
  EXPECT_GT(slow["lanes"]["collective"]["bytes"], 0);
  EXPECT_GT(slow["step_s"].get<double>(), 2 * fast["step_s"].get<double>());
}

TEST_F(CliPlanE2e, LayoutsOfRanksAreComparedByDryRuns) {
  const Words model = {"plan",           "--machine",           "h100-80gb",           "model.family=llama",
                       "model.layers=8", "model.hidden=512",    "model.heads=8",       "model.ffn=1536",
                       "model.seq=256",  "train.micro_batch=1", "train.grad_accum=16", "--ranks"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), model.begin(), model.end());
    return strata(more);
  };
  const ProgramResult shown = with({"16"});
  ASSERT_EQ(shown.exit_code, 0) << shown.output();
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("layouts of 16 ranks of h100-80gb: "), HasSubstr("the best 5 were run dry"),
                    HasSubstr("by closed forms, "), HasSubstr("strata plan with parallel.ranks=16 ")));
  const auto found = nlohmann::json::parse(with({"16", "parallel.pp=2", "--json"}).out);
  EXPECT_EQ(found["ranks"], 16);
  double before = 0;
  for (const auto& layout : found["layouts"]) {
    EXPECT_EQ(layout["pp"], 2);
    EXPECT_EQ(layout["stages"].size(), 2u);
    EXPECT_GE(layout["step_s"].get<double>(), before);
    EXPECT_EQ(layout["parameters"], found["layouts"][0]["parameters"]);
    before = layout["step_s"].get<double>();
  }
  const ProgramResult prime = with({"17"});
  EXPECT_EQ(prime.exit_code, 2);
  EXPECT_THAT(prime.err, HasSubstr("the nearest number of ranks that has one is 16"));
  EXPECT_THAT(strata(tiny("plan", {"--ranks", "4"})).err, HasSubstr("need a machine profile"));
}

TEST_F(CliPlanE2e, TheStagesOfAPipelineAreForecastTogether) {
  const Words words = {"plan",           "--machine",           "h100-80gb",          "model.family=llama",
                       "model.layers=8", "model.hidden=512",    "model.heads=8",      "model.ffn=1536",
                       "model.seq=256",  "train.micro_batch=1", "train.grad_accum=8", "parallel.pp=4"};
  const ProgramResult shown = strata(words);
  ASSERT_EQ(shown.exit_code, 0) << shown.output();
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("pipeline stage 0 of 4 with "), HasSubstr("schedule 1f1b: 8 micro-batches"),
                    HasSubstr("waits for ranks"), HasSubstr("forecast for h100-80gb")));
  Words as_json = words;
  as_json.emplace_back("--json");
  const auto plan = nlohmann::json::parse(strata(as_json).out);
  ASSERT_EQ(plan["stages"].size(), 4u);
  for (const auto& stage : plan["stages"]) {
    EXPECT_GT(stage["waits_for_ranks_s"].get<double>(), 0.1 * stage["step_s"].get<double>());
    EXPECT_LE(stage["step_s"], plan["forecast"]["step_s"]);
  }
  for (const char* file_name : {"step.svg", "step.json"}) {
    Words timeline = words;
    timeline.insert(timeline.end(), {"--timeline", file_name});
    EXPECT_EQ(strata(timeline).exit_code, 0);
  }
  EXPECT_THAT(read_all(file("step.svg")),
              AllOf(HasSubstr("A step of 4 stages of a pipeline, schedule 1f1b, on h100-80gb"),
                    HasSubstr("rank 3"), HasSubstr("fill=\"#72b7b2\"")));
  EXPECT_GT(nlohmann::json::parse(read_all(file("step.json")))["traceEvents"].size(), 100u);
  Words sweep = words;
  sweep.emplace_back("--sweep");
  EXPECT_THAT(strata(sweep).err, HasSubstr("the stages of a pipeline wait for each other"));
}

TEST_F(CliPlanE2e, AnUnmeasuredNvmeTierHasNoForecastAndIsReported) {
  ASSERT_EQ(strata({"bench", "--quick"}).exit_code, 0);
  const ProgramResult plan = strata(tiny("plan", {"memory.nvme=64MiB", "offload.policy=nvme"}));
  ASSERT_EQ(plan.exit_code, 0) << plan.output();
  EXPECT_THAT(plan.out, AllOf(HasSubstr("has no NVMe rates, but memory.nvme is 64.0 MiB"),
                              HasSubstr("--nvme-dir"), Not(HasSubstr("tokens/s"))));
}

TEST_F(CliPlanE2e, TheNvmeTierOfAnotherMachineIsUsedIfNeeded) {
  const ProgramResult plan = strata(for_machine({"offload.policy=nvme", "model.layers=16"}));
  ASSERT_EQ(plan.exit_code, 0) << plan.output();
  EXPECT_THAT(plan.out, AllOf(HasSubstr("forecast for h200"), HasSubstr("machine  h200 (profile)"),
                              Not(HasSubstr("avx"))));
  EXPECT_EQ(strata(for_machine({"offload.policy=nvme", "memory.nvme=0"})).exit_code, 2);
}

TEST_F(CliPlanE2e, TheForecastsChoicesAreInTheConfigurationAndKeptOnResume) {
  ASSERT_EQ(strata({"bench", "--quick", "--nvme-dir", "nvme"}).exit_code, 0);
  const Words budgets = {"memory.device=1MiB", "memory.pinned=1MiB", "memory.nvme=8MiB"};
  Words words = {"--out", "run", "train.steps=4"};
  words.insert(words.end(), budgets.begin(), budgets.end());
  const ProgramResult run = strata(tiny("train", words));
  ASSERT_EQ(run.exit_code, 0) << run.output();
  const nlohmann::json first = nlohmann::json::parse(read_all(file("run/plan.json")));
  const ProgramResult resumed = strata({"train", "--resume", "run", "train.steps=6"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output();
  const nlohmann::json second = nlohmann::json::parse(read_all(file("run/plan.json")));
  for (const char* key : {"chunk_elems", "recompute", "prefetch", "tiers"})
    EXPECT_EQ(first[key], second[key]) << key;
}

TEST_F(CliPlanE2e, ARunWithGradientsInTwoTiersKeepsThemOnResume) {
  const ProgramResult run =
      strata(tiny("train", {"--out", "run", "train.steps=2", "memory.device=1400KiB", "memory.pinned=8MiB",
                            "memory.nvme=0", "offload.chunk=4096"}));
  ASSERT_EQ(run.exit_code, 0) << run.output();
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), HasSubstr("gradients = \"auto\""));
  const nlohmann::json first = nlohmann::json::parse(read_all(file("run/plan.json")));
  const ProgramResult resumed = strata({"train", "--resume", "run", "train.steps=3"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output();
  EXPECT_EQ(first["tiers"], nlohmann::json::parse(read_all(file("run/plan.json")))["tiers"]);
}

TEST_F(CliPlanE2e, AProfileOfAnotherMachineIsUsedWithAWarning) {
  ASSERT_EQ(strata({"bench", "--quick", "--out", "cache/strata/machine.toml"}).exit_code, 0);
  std::string profile = read_all(file("cache/strata/machine.toml"));
  const std::size_t name = profile.find("name = \"");
  profile.insert(name + 8, "Another ");
  write("cache/strata/machine.toml", profile);
  EXPECT_THAT(strata(tiny("plan")).out, AllOf(HasSubstr("was measured on a different machine, Another "),
                                              HasSubstr("run strata bench")));
}

TEST_F(CliPlanE2e, ADamagedProfileIsNotIgnored) {
  must(posix_io().make_dirs(file("cache/strata")));
  write("cache/strata/machine.toml", "[machine]\ncores = -3\n");
  const ProgramResult plan = strata(tiny("plan"));
  EXPECT_EQ(plan.exit_code, 2);
  EXPECT_THAT(plan.err, HasSubstr("machine.cores"));
}

// The command that each example names in its first lines.
TEST_F(CliPlanE2e, TheExamplesFitTheMachinesThatTheyName) {
  int planned = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STRATA_SOURCE_DIR "/examples/configs")) {
    if (entry.path().extension() != ".toml") continue;
    std::ifstream file(entry.path());
    std::string line, word;
    while (std::getline(file, line) && !line.starts_with("#   strata plan ")) continue;
    ASSERT_TRUE(file) << entry.path() << " names no command that plans it";
    std::istringstream rest(line.substr(std::string_view("#   strata ").size()));
    Words words;
    while (rest >> word)
      words.push_back(word.starts_with("examples/") ? str(STRATA_SOURCE_DIR, "/", word) : word);
    const ProgramResult plan = strata(words);
    EXPECT_EQ(plan.exit_code, 0) << line << plan.output();
    if (line.find("--machine") != std::string::npos) {
      EXPECT_THAT(plan.out, HasSubstr("tokens/s")) << line;
    }
    ++planned;
  }
  EXPECT_GE(planned, 4);
}

}  // namespace
}  // namespace strata::test
