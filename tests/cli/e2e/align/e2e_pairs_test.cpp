// Runs that learn from pairs of answers: reward models and DPO.
#include <cmath>
#include <filesystem>

#include <strata/runtime/str.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliPairsE2e : public CliE2e {
 protected:
  CliPairsE2e() {
    write_pairs("pairs.jsonl", 60, 0);
    write_pairs("val.jsonl", 24, 1000);
  }
  /// The chosen answer says yes; the rejected one says no, with the same words around it.
  void write_pairs(const std::string& name, int n, int first) {
    std::string text;
    for (int i = first; i < first + n; ++i)
      text += str("{\"prompt\": \"Is ", i, " good?\", \"chosen\": \" It is YES", i % 3 == 0 ? " indeed" : "",
                  "\", \"rejected\": \" It is no", i % 4 == 0 ? ", sir" : "", "\"}\n");
    write(name, text);
  }
  static Words run_of(const std::string& name, const std::string& task, const Words& words = {}) {
    Words all = {"--out", name, "--task", task};
    for (const std::string key :
         {"data.train=pairs.jsonl", "data.val=val.jsonl", "model.seq=48", "train.steps=12", "optim.lr=0.003",
          "train.eval_every=4", "train.eval_batches=100", "log.every=1"})
      if (std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return word.starts_with(key.substr(0, key.find('=') + 1));
          }))
        all.push_back(key);
    all.insert(all.end(), words.begin(), words.end());
    return tiny("train", all);
  }
  /// The last value of `key` in a run's metrics.
  double last(const std::string& run, const std::string& key) const {
    double value = NAN;
    for (const nlohmann::json& line : metrics(run))
      if (line.contains(key)) value = line[key].get<double>();
    return value;
  }
};

TEST_F(CliPairsE2e, ARewardModelLearnsWhichAnswersAreChosen) {
  const ProgramResult run = strata(run_of("run", "reward", {"train.steps=60", "optim.lr=0.01"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr(", accuracy "));
  EXPECT_GE(last("run", "val_accuracy"), 0.95);
  EXPECT_GT(last("run", "chosen"), last("run", "rejected"));
  const nlohmann::json evaluated = nlohmann::json::parse(strata({"eval", "run", "--json"}).out);
  EXPECT_EQ(evaluated["pairs"], 24);
  EXPECT_EQ(evaluated["accuracy"].get<double>(), last("run", "val_accuracy"));
  EXPECT_THAT(strata({"generate", "run", "--prompt", "It"}).err, HasSubstr("run is a reward model"));
}

// As transformers has it: sequence classification with one label.
TEST_F(CliPairsE2e, ARewardModelIsExportedAndReadAsAClassifier) {
  ASSERT_EQ(strata(run_of("run", "reward", {"train.steps=5", "train.dtype=f32"})).exit_code, 0);
  const ProgramResult exported = strata({"export", "run", "--out", "hf", "--check"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const nlohmann::json config = nlohmann::json::parse(read_all(file("hf/config.json")));
  EXPECT_EQ(config["architectures"][0], "GPT2ForSequenceClassification");
  EXPECT_EQ(config["id2label"].size(), 1u);
  EXPECT_EQ(config["pad_token_id"], config["eos_token_id"]);
  const ProgramResult more =
      strata({"train", "--init", "hf", "--task", "reward", "--out", "more", "data.train=pairs.jsonl",
              "data.val=val.jsonl", "model.seq=48", "train.steps=1", "train.dtype=f32", "train.micro_batch=2",
              "train.grad_accum=2", "memory.nvme_dir=nvme", "train.eval_every=0"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  const ProgramResult as_texts =
      strata({"train", "--init", "hf", "--out", "texts", "data.train=train.txt", "model.seq=48"});
  EXPECT_EQ(as_texts.exit_code, 2);
  EXPECT_THAT(as_texts.err, HasSubstr("is a reward model, which scores sequences"));
  // The same score of the same pairs.
  const auto scores = [&](const std::string& target) {
    return nlohmann::json::parse(
        strata({"eval", target, "--json", "train.objective=reward", "--data", "val.jsonl", "model.seq=48",
                "train.dtype=f32", "train.micro_batch=2"})
            .out);
  };
  EXPECT_EQ(scores("hf")["chosen"], nlohmann::json::parse(strata({"eval", "run", "--json"}).out)["chosen"]);
}

// The run has the bits of the whole run in any placement, also if it is interrupted.
TEST_F(CliPairsE2e, DpoStartsAtItsReferenceAndResumesBitForBit) {
  const ProgramResult whole = strata(run_of("whole", "dpo", {"optim.lr=0.001"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const nlohmann::json first = metrics("whole").front();
  EXPECT_EQ(static_cast<float>(first["loss"].get<double>()),
            0.693147f);  // log 2: no pair differs from itself
  EXPECT_EQ(first["chosen"].get<double>(), 0.0);
  EXPECT_EQ(first["rejected"].get<double>(), 0.0);
  EXPECT_GE(last("whole", "val_accuracy"), 0.8);
  ASSERT_EQ(strata(run_of("run", "dpo",
                          {"optim.lr=0.001", "train.max_time=0s", "offload.policy=nvme",
                           "offload.step_mode=speculative"}))
                .exit_code,
            0);
  const ProgramResult resumed = strata({"train", "--resume", "run", "train.max_time=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(digest("run"), digest("whole"));
  const ProgramResult ranks =
      strata(run_of("ranks", "dpo", {"optim.lr=0.001", "parallel.ranks=2", "parallel.zero=3"}));
  ASSERT_EQ(ranks.exit_code, 0) << ranks.err;
  EXPECT_EQ(digest("ranks"), digest("whole"));
}

TEST_F(CliPairsE2e, AdaptersLearnThemTooAndIpoIsAnotherLoss) {
  ASSERT_EQ(
      strata(run_of("base", "sft", {"data.train=train.txt", "data.val=val.txt", "train.steps=2"})).exit_code,
      0);
  ASSERT_EQ(strata({"export", "base", "--out", "hf"}).exit_code, 0);
  for (const char* task : {"reward", "dpo"}) {
    const ProgramResult run =
        strata({"train", "--init", "hf", "--task", task, "--out", task, "data.train=pairs.jsonl",
                "data.val=val.jsonl", "model.seq=48", "train.steps=3", "train.eval_every=0",
                "adapter.method=lora", "align.loss=ipo", "memory.nvme_dir=nvme"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(metrics(task).size(), 3u);
  }
  // The reference's mean log-probabilities are those of the model: (0 - 1 / (2 beta))^2.
  EXPECT_NEAR(metrics("dpo").front()["loss"].get<double>(), 25.0, 1e-5);
}

TEST_F(CliPairsE2e, OtherDataAndSettingsAreRefusedWithWhatToDo) {
  write("texts.jsonl", "{\"text\": \"one\"}\n");
  const ProgramResult texts = strata(run_of("a", "dpo", {"data.train=texts.jsonl"}));
  EXPECT_EQ(texts.exit_code, 2);
  EXPECT_THAT(texts.err, HasSubstr("texts.jsonl: line 1: the first record must be a pair"));
  const ProgramResult as_texts = strata(run_of("b", "sft"));
  EXPECT_EQ(as_texts.exit_code, 2);
  EXPECT_THAT(as_texts.err, HasSubstr("train with --task reward or --task dpo"));
  const ProgramResult ranks = strata(run_of("c", "reward", {"parallel.tp=2", "data.weights=1"}));
  EXPECT_EQ(ranks.exit_code, 2);
  EXPECT_THAT(ranks.err, AllOf(HasSubstr("but train.objective is reward (--task reward)"),
                               HasSubstr("which mixes no data"), HasSubstr("ranks share the model (tp 2)")));
  ASSERT_EQ(strata(run_of("d", "dpo", {"train.max_time=0s"})).exit_code, 0);
  const ProgramResult other = strata({"train", "--resume", "d", "align.beta=0.5"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("align.beta: the checkpoint was made with 0.1, this run has 0.5"));
}

// Checkpoints have what the reference gives the pairs.
TEST_F(CliPairsE2e, ADamagedReferenceFallsBackToAnEarlierCheckpoint) {
  ASSERT_EQ(strata(run_of("d", "dpo", {"train.steps=2", "checkpoint.every=1"})).exit_code, 0);
  const std::string newest = "d/checkpoints/step-00000002/task.safetensors";
  std::string bytes = read_all(file(newest));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write(newest, bytes);
  EXPECT_EQ(strata({"ckpt", "verify", "d"}).exit_code, 5);
  const ProgramResult resumed = strata({"train", "--resume", "d", "train.steps=4"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("task.safetensors is damaged: its digest is"),
                                 HasSubstr("using the previous checkpoint")));
}

// The reference's values are of these pairs.
TEST_F(CliPairsE2e, AResumedRunOfDpoKeepsItsValidationData) {
  ASSERT_EQ(strata(run_of("d", "dpo", {"train.max_time=0s"})).exit_code, 0);
  write_pairs("other.jsonl", 24, 2000);  // as many
  const ProgramResult other =
      strata({"train", "--resume", "d", "train.max_time=none", "data.val=other.jsonl"});
  EXPECT_EQ(other.exit_code, 2) << other.output();
  EXPECT_THAT(other.err, HasSubstr("data.val: the checkpoint was made with "));
}

TEST_F(CliPairsE2e, ARunOfDpoIsEvaluatedOnItsPairsAndOnOthers) {
  ASSERT_EQ(strata(run_of("d", "dpo", {"train.dtype=f32", "checkpoint.every=6"})).exit_code, 0);
  const auto loss = [&](const std::string& run, const Words& words) {
    Words all = {"eval", run, "--json"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult result = strata(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["loss_bits"];
  };
  EXPECT_EQ(loss("d", {}), summary("d")["val_loss_bits"]);
  write("copy.jsonl",
        read_all(file("val.jsonl")) + "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  EXPECT_NE(loss("d", {"--data", "copy.jsonl"}), summary("d")["val_loss_bits"]) << "computed for other pairs";
  ASSERT_EQ(strata({"ckpt", "average", "d", "--last", "1", "--out", "mean"}).exit_code, 0);
  EXPECT_EQ(loss("mean", {}), summary("d")["val_loss_bits"]);
  EXPECT_EQ(strata({"train", "--resume", "mean", "train.steps=14"}).exit_code, 0);
}

}  // namespace
}  // namespace strata::test
