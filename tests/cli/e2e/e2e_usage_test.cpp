// User errors: each is refused with its exit code and a helpful message.
#include <algorithm>
#include <filesystem>
#include <regex>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliUsageE2e : public CliE2e {
 protected:
  /// Expects that the command fails with `code` before it creates a run folder.
  void expect_refused(const Words& words, int code, const std::vector<std::string>& says) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, code) << refused.output();
    for (const std::string& text : says) EXPECT_THAT(refused.err, HasSubstr(text));
    EXPECT_FALSE(exists("run"));
  }
};

TEST_F(CliUsageE2e, AllProblemsOfAConfigurationAreReportedAtOnce) {
  expect_refused(
      tiny("train", {"--out", "run", "modle.layers=1", "train.steps=abc", "optim.lr=-3", "memory.devise=1"}),
      2,
      {"4 problems", "did you mean 'model.layers'?", "'abc' is not a 64-bit integer", "'-3' is outside 0 to",
       "did you mean 'memory.device'?"});
}

TEST_F(CliUsageE2e, AMissingDataFileIsNamedWithItsKey) {
  expect_refused(tiny("train", {"--out", "run", "data.train=gone.txt"}), 2,
                 {"data.train: ", "gone.txt: No such file"});
  expect_refused(tiny("train", {"--out", "run", "data.val=gone.txt"}), 2,
                 {"data.val: ", "gone.txt: No such file"});
  expect_refused(tiny("train", {"--out", "run", "data.tokenizer=gone.json"}), 2,
                 {"data.tokenizer: ", "gone.json: No such file"});
}

TEST_F(CliUsageE2e, ADataFileThatMayNotBeReadIsAnIoError) {
  write("secret.txt", "Elizabeth");
  ASSERT_EQ(::chmod(file("secret.txt").c_str(), 0), 0);
  options_.before_exec = obey_permissions;
  expect_refused(tiny("train", {"--out", "run", "data.train=secret.txt"}), 5,
                 {"data.train: ", "secret.txt: Permission denied"});
}

TEST_F(CliUsageE2e, AnEmptyCorpusIsRefusedByName) {
  write("empty.txt", "");
  expect_refused(tiny("train", {"--out", "run", "data.train=empty.txt"}), 2,
                 {"data.train: ", "the corpus is empty", "empty.txt"});
  expect_refused(tiny("train", {"--out", "run", "data.val=empty.txt"}), 2,
                 {"data.val: ", "the corpus is empty", "empty.txt"});
}

TEST_F(CliUsageE2e, SequencesLongerThanTheDataAreRefusedWithBothNumbers) {
  write("short.txt", "It is a truth");
  expect_refused(tiny("train", {"--out", "run", "data.val=short.txt"}), 2,
                 {"data.val: sequences of 32 tokens need 32 + 1 tokens, but the data has "});
  expect_refused(tiny("train", {"--out", "run", "model.seq=20000"}), 2,
                 {"data.train: sequences of 20000 tokens need 20000 + 1 tokens, but the data has "});
}

TEST_F(CliUsageE2e, AVocabularyBelowTheBytesIsRefused) {
  expect_refused(tiny("train", {"--out", "run", "model.vocab=256"}), 2,
                 {"model.vocab: a vocabulary of 256 tokens; allowed are 257 to "});
}

TEST_F(CliUsageE2e, ATokenizerThatDoesNotMatchTheModelIsRefusedWithBothNumbers) {
  ASSERT_EQ(strata({"tokenizer", "train", "train.txt", "--vocab", "400", "-o", "t.json"}).exit_code, 0);
  expect_refused(tiny("train", {"--out", "run", "data.tokenizer=t.json", "model.vocab=300"}), 2,
                 {"400 tokens", "model.vocab is 300"});
}

TEST_F(CliUsageE2e, ADamagedTokenizerFileIsAnIoErrorThatNamesIt) {
  ASSERT_EQ(strata({"tokenizer", "train", "train.txt", "--vocab", "300", "-o", "t.json"}).exit_code, 0);
  write("t.json", read_all(file("t.json")).substr(0, 1000));
  expect_refused(tiny("train", {"--out", "run", "data.tokenizer=t.json"}), 5, {"data.tokenizer: ", "t.json"});
  EXPECT_EQ(strata({"tokenizer", "encode", "-t", "t.json", "Elizabeth"}).exit_code, 5);
}

TEST_F(CliUsageE2e, TokensDecodeToTheOriginalText) {
  ASSERT_EQ(strata({"tokenizer", "train", "train.txt", "--vocab", "300", "-o", "t.json"}).exit_code, 0);
  std::string ids = strata({"tokenizer", "encode", "-t", "t.json", "Elizabeth Bennet"}).out;
  Words words = {"tokenizer", "decode", "-t", "t.json"};
  for (std::size_t at = 0, end = 0; (end = ids.find_first_of(" \n", at)) != std::string::npos; at = end + 1)
    words.push_back(ids.substr(at, end - at));
  EXPECT_EQ(strata(words).out, "Elizabeth Bennet\n");
  EXPECT_THAT(strata({"tokenizer", "decode", "-t", "t.json", "300"}).err,
              HasSubstr("'300' is not a token id below 300"));
}

TEST_F(CliUsageE2e, ATokenizerOfAHuggingFaceFolderIsShownAndUsed) {
  const std::string fixture = std::string(STRATA_SOURCE_DIR) + "/tests/text/tokenizers/llama3.json";
  ASSERT_TRUE(posix_io().make_dirs(file("hf")).is_ok());
  write("hf/tokenizer.json", read_all(fixture));
  write("hf/tokenizer_config.json",
        R"({"bos_token": "<|begin_of_text|>", "chat_template": "{{ bos_token }}"})");
  write("hf/generation_config.json", R"({"eos_token_id": [422, 423]})");
  const std::string info = strata({"tokenizer", "info", "-t", "hf"}).out;
  for (const char* line :
       {"tokens        425", "splits as     cl100k", "template      421 before, nothing after",
        "bos           <|begin_of_text|> (421)", "stop tokens   422 423", "chat          own"})
    EXPECT_THAT(info, HasSubstr(line));
  EXPECT_EQ(
      strata({"tokenizer", "encode", "-t", "hf", "--parse-special", "--add-special-tokens", "<|eot_id|>"})
          .out,
      "421 423\n");
}

TEST_F(CliUsageE2e, AnUnsupportedTokenizerTypeIsRefusedByName) {
  write("bert.json", R"({"model": {"type": "WordPiece", "vocab": {}}})");
  const auto refused = strata({"tokenizer", "info", "-t", "bert.json"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("bert.json: model.type is \"WordPiece\", only \"BPE\" is supported"));
}

// --- Budgets ---

using Budgets = std::map<std::string, std::uint64_t>;

// The budgets that the message of a refusal proposes.
Budgets proposed(const std::string& message) {
  Budgets found;
  const std::regex key("memory\\.(\\w+)=(\\d+)");
  const std::size_t at = message.find("it fits with:");
  EXPECT_NE(at, std::string::npos) << message;
  const std::string keys = message.substr(std::min(at, message.size()));
  for (std::sregex_iterator i(keys.begin(), keys.end(), key), end; i != end; ++i)
    found[(*i)[1]] = std::stoull((*i)[2]);
  return found;
}

class CliProposedBudgetE2e : public CliUsageE2e,
                             public ::testing::WithParamInterface<std::map<std::string, std::uint64_t>> {
 protected:
  static Words with(const std::string& verb, const Budgets& budgets, Words words = {}) {
    for (const auto& [tier, bytes] : budgets) words.push_back(str("memory.", tier, "=", bytes));
    return tiny(verb, words);
  }
};

TEST_P(CliProposedBudgetE2e, TheProposedBudgetFitsAndAPageLessDoesNot) {
  const ProgramResult refused = strata(with("plan", GetParam()));
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("does not fit its budgets"), HasSubstr("shortfall"),
                                 Not(HasSubstr("problems"))));
  expect_refused(with("train", GetParam(), {"--out", "run"}), 3, {"it fits with:"});
  const Budgets raised = proposed(refused.err);
  ASSERT_FALSE(raised.empty());
  Budgets exact = raised;
  exact.insert(GetParam().begin(), GetParam().end());  // budgets that were not raised
  const ProgramResult planned = strata(with("plan", exact));
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  const ProgramResult trained = strata(with("train", exact, {"--out", "run", "train.steps=2"}));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  for (const auto& [tier, bytes] : raised) {
    Budgets less = exact;
    less[tier] = bytes - 4096;
    EXPECT_EQ(strata(with("plan", less)).exit_code, 3) << tier << " of " << bytes << " bytes";
  }
}

TEST_F(CliUsageE2e, AutoRecomputeIsTheLeastThatFits) {
  const auto plan = [&](const std::string& recompute, std::uint64_t device) {
    return strata(
        tiny("plan", {"--json", "model.layers=6", "memory.pinned=unlimited", "train.recompute=" + recompute,
                      "offload.activations=none", str("memory.device=", device)}));
  };
  std::uint64_t more = std::uint64_t{1} << 40;
  for (const std::string mode : {"none", "selective", "full"}) {
    const std::uint64_t least = proposed(plan(mode, 1 << 16).err)["device"];
    EXPECT_LT(least, more) << mode;
    EXPECT_EQ(nlohmann::json::parse(plan("auto", least).out)["recompute"], mode);
    more = least;
  }
}

TEST_F(CliUsageE2e, AutoOffloadsActivationsOnlyIfNecessary) {
  const auto plan = [&](const std::string& activations, std::uint64_t device) {
    return strata(
        tiny("plan", {"--json", "model.layers=8", "memory.pinned=unlimited", "train.recompute=selective",
                      "offload.activations=" + activations, str("memory.device=", device)}));
  };
  const auto away = [&](const std::string& activations, std::uint64_t device) -> std::uint64_t {
    return nlohmann::json::parse(plan(activations, device).out)["offloaded_activations"]["moved_bytes"];
  };
  const std::uint64_t kept = proposed(plan("none", 1 << 16).err)["device"],
                      least = proposed(plan("auto", 1 << 16).err)["device"];
  EXPECT_LT(least, kept);
  EXPECT_EQ(proposed(plan("pinned", 1 << 16).err)["device"], least);
  EXPECT_EQ(away("auto", kept), 0u);
  EXPECT_GT(away("auto", kept - 4096), 0u);
  EXPECT_LT(away("auto", kept - 4096), away("auto", least));
  EXPECT_EQ(away("auto", least), away("pinned", least));
  EXPECT_GT(away("pinned", kept), 0u);
}

TEST_F(CliUsageE2e, TheResolvedConfigurationHasTheActivationDecisions) {
  const Words keys = {"model.layers=8",
                      "memory.device=650KiB",
                      "memory.pinned=unlimited",
                      "memory.nvme=0",
                      "train.recompute=selective",
                      "train.steps=2",
                      "--out",
                      "run"};
  const ProgramResult trained = strata(tiny("train", keys));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), HasSubstr("activations = \"pinned\""));
  const nlohmann::json was = nlohmann::json::parse(read_all(file("run/plan.json"))),
                       again =
                           nlohmann::json::parse(strata({"plan", "run/config.resolved.toml", "--json"}).out);
  EXPECT_GT(was["offloaded_activations"]["moved_bytes"], 0u);
  EXPECT_EQ(again["offloaded_activations"], was["offloaded_activations"]);
  EXPECT_EQ(again["tiers"], was["tiers"]);
}

TEST_F(CliUsageE2e, ActivationsMoveToNvmeIfPinnedMemoryIsFull) {
  const auto plan = [&](const std::string& activations, const std::string& pinned) {
    return strata(tiny("plan", {"--json", "model.layers=12", "memory.device=unlimited", "memory.nvme=64MiB",
                                "train.recompute=none", "offload.policy=nvme",
                                "offload.activations=" + activations, "memory.pinned=" + pinned}));
  };
  const nlohmann::json roomy = nlohmann::json::parse(plan("pinned", "unlimited").out);
  const nlohmann::json stored = nlohmann::json::parse(plan("nvme", "unlimited").out);
  EXPECT_EQ(stored["activation_bytes"], roomy["activation_bytes"]);
  EXPECT_LT(stored["offloaded_activations"]["pinned_bytes"], roomy["offloaded_activations"]["pinned_bytes"]);
  EXPECT_GT(stored["offloaded_activations"]["nvme_bytes"], 0u);
  const std::string least = std::to_string(proposed(plan("nvme", "4096").err)["pinned"]);
  EXPECT_EQ(plan("pinned", least).exit_code, 3);
  EXPECT_GT(nlohmann::json::parse(plan("auto", "unlimited").out)["activation_bytes"],
            stored["activation_bytes"]);
  const ProgramResult fits =
      strata(tiny("train", {"--out", "run", "model.layers=12", "memory.device=unlimited", "memory.nvme=64MiB",
                            "train.steps=2", "train.recompute=none", "offload.policy=nvme",
                            "offload.activations=nvme", "memory.pinned=" + least}));
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
}

INSTANTIATE_TEST_SUITE_P(
    Budgets, CliProposedBudgetE2e,
    ::testing::Values(
        std::map<std::string, std::uint64_t>{{"device", 1 << 20}, {"pinned", 1 << 20}, {"nvme", 0}},
        std::map<std::string, std::uint64_t>{{"device", 256 << 10}},
        std::map<std::string, std::uint64_t>{{"pinned", 64 << 10}},
        std::map<std::string, std::uint64_t>{{"pinned", 512 << 10}, {"nvme", 64 << 10}},
        std::map<std::string, std::uint64_t>{{"device", 4096}, {"pinned", 0}, {"nvme", 0}},
        std::map<std::string, std::uint64_t>{{"device", 4096}, {"pinned", 4096}, {"nvme", 4096}}));

// --- Run folders ---

TEST_F(CliUsageE2e, ARunIsNotOverwrittenByDefault) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2"})).exit_code, 0);
  const std::string before = read_all(file("run/metrics.jsonl"));
  const ProgramResult refused = strata(tiny("train", {"--out", "run", "train.steps=3"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("run contains a run; continue it with --resume run, replace it with --overwrite"));
  EXPECT_EQ(read_all(file("run/metrics.jsonl")), before);
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=3", "--overwrite"})).exit_code, 0);
  EXPECT_EQ(metrics("run").size(), 3u);
  EXPECT_EQ(list("run/checkpoints"), std::vector<std::string>{"step-00000003"});
}

TEST_F(CliUsageE2e, RunsOfOneSecondHaveFoldersOfTheirOwn) {
  constexpr std::size_t kRuns = 3;  // each takes a fraction of a second
  for (std::size_t i = 0; i < kRuns; ++i)
    ASSERT_EQ(strata(tiny("train", {"train.steps=1"})).exit_code, 0) << i;
  const std::vector<std::string> folders = list("runs");
  EXPECT_EQ(std::count_if(folders.begin(), folders.end(),
                          [](const auto& name) { return name.starts_with("austen-tiny-"); }),
            static_cast<std::ptrdiff_t>(kRuns))
      << testing::PrintToString(folders);
}

TEST_F(CliUsageE2e, ResumingWithOtherKeysIsRefusedWithAllDifferences) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2"})).exit_code, 0);
  const ProgramResult refused =
      strata({"train", "--resume", "run", "model.layers=1", "optim.lr=0.25", "train.seed=9"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("3 problems"),
                                 HasSubstr("model.layers: the checkpoint was made with 2, this run has 1"),
                                 HasSubstr("optim.lr: the checkpoint was made with 0.003, this run has 0.25"),
                                 HasSubstr("train.seed: the checkpoint was made with 1, this run has 9")));
}

TEST_F(CliUsageE2e, AnOptimizerResumesOnlyFromItsOwnCheckpointAndFormat) {
  const Words lion = {"--out",
                      "run",
                      "train.steps=4",
                      "optim.name=lion",
                      "offload.states=int8",
                      "optim.schedule=wsd",
                      "optim.non_finite=skip"};
  ASSERT_EQ(strata(tiny("train", lion)).exit_code, 0);
  const nlohmann::json whole = summary("run");
  EXPECT_EQ(list("run/checkpoints/step-00000004"),
            (std::vector<std::string>{"m.safetensors", "manifest.json", "param.safetensors"}));
  EXPECT_EQ(whole["skipped_steps"], 0);
  Words first_half = lion;
  first_half.insert(first_half.end(), {"--overwrite", "checkpoint.every=2"});
  ASSERT_EQ(strata(tiny("train", first_half)).exit_code, 0);
  std::filesystem::remove_all(file("run/checkpoints/step-00000004"));
  ASSERT_EQ(strata({"train", "--resume", "run"}).exit_code, 0);
  EXPECT_EQ(summary("run")["state_digest"], whole["state_digest"]);
  const ProgramResult refused =
      strata({"train", "--resume", "run", "train.steps=5", "optim.name=adamw", "offload.states=fp32"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("optim.name: the checkpoint was made with lion, this run has adamw"),
                    HasSubstr("offload.states: the checkpoint was made with int8, this run has fp32")));
}

TEST_F(CliUsageE2e, UnsupportedOptimizerSettingsAreRefusedByKey) {
  const ProgramResult refused =
      strata(tiny("train", {"--out", "run", "optim.name=adamax", "optim.nesterov=true", "optim.momentum=0"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("adamw, adam, lion, "));
  const ProgramResult alone =
      strata(tiny("train", {"--out", "run", "optim.name=sgd", "optim.nesterov=true", "optim.momentum=0"}));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("optim.nesterov = true, but optim.momentum is 0"));
}

TEST_F(CliUsageE2e, ResumingOnAnotherTextIsRefused) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2"})).exit_code, 0);
  write("train.txt", austen("emma").substr(0, 30000) + austen("persuasion").substr(0, 30000));
  const ProgramResult refused = strata({"train", "--resume", "run"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("data: the checkpoint was made with "));
}

TEST_F(CliUsageE2e, AFolderWithoutARunCannotBeResumed) {
  const ProgramResult refused = strata({"train", "--resume", "nowhere"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("nowhere does not exist; strata train --out nowhere starts a run there"));
  EXPECT_EQ(strata({"train", "--resume", "nowhere", "--overwrite"}).exit_code, 2);
}

TEST_F(CliUsageE2e, ARunThatHadNotSavedYetStartsFromTheBeginning) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=4"})).exit_code, 0);
  const std::string want = digest("run");
  must(posix_io().remove_all(file("run/checkpoints")));
  must(posix_io().make_dirs(file("run/checkpoints/.unfinished-step-00000002-1")));
  const ProgramResult resumed = strata({"train", "--resume", "run"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("run has no checkpoint yet: starting from the beginning"));
  EXPECT_EQ(digest("run"), want);
  EXPECT_EQ(metrics("run").size(), 4u);
}

TEST_F(CliUsageE2e, ResumingAFinishedRunChangesNothing) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=4"})).exit_code, 0);
  const std::string before = read_all(file("run/summary.json")), samples = read_all(file("run/samples.txt"));
  const ProgramResult resumed = strata({"train", "--resume", "run"});
  EXPECT_EQ(resumed.exit_code, 0);
  EXPECT_THAT(resumed.out, HasSubstr("run is finished: 4 of 4 steps; nothing to do"));
  EXPECT_EQ(read_all(file("run/summary.json")), before);
  EXPECT_EQ(read_all(file("run/samples.txt")), samples);
}

TEST_F(CliUsageE2e, AFinishedRunCanBeExtended) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2"})).exit_code, 0);
  const ProgramResult resumed = strata({"train", "--resume", "run", "train.steps=4"});
  EXPECT_EQ(resumed.exit_code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("train.steps was 2 and is 4"));
  EXPECT_EQ(metrics("run").size(), 4u);
}

TEST_F(CliUsageE2e, ARunKilledBeforeItsSummaryWritesTheSameOneWhenResumed) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=4"})).exit_code, 0);
  const nlohmann::json before = summary("run");
  const std::string samples = read_all(file("run/samples.txt"));
  must(posix_io().remove_all(file("run/summary.json")));
  ASSERT_EQ(strata({"train", "--resume", "run"}).exit_code, 0);
  for (const char* key : {"steps", "train_loss", "val_loss", "bits_per_byte", "state_digest"})
    EXPECT_EQ(summary("run")[key], before[key]) << key;
  EXPECT_EQ(read_all(file("run/samples.txt")), samples) << "the last sample is taken again, and kept once";
}

TEST_F(CliUsageE2e, CheckpointsOfAnotherRunAreNotMixedWithNewOnes) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=4", "checkpoint.dir=saved"})).exit_code, 0);
  const ProgramResult refused =
      strata(tiny("train", {"--out", "other", "train.steps=2", "checkpoint.dir=saved"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("checkpoint.dir = saved contains checkpoints of another run"));
}

}  // namespace
}  // namespace strata::test
