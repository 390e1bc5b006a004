// A start or resume that fails leaves the folder as it was, whatever the task and the reason.
#include <filesystem>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class CliFailedStartE2e : public CliE2e {
 protected:
  CliFailedStartE2e() {
    std::string pairs, prompts;
    for (int i = 0; i < 16; ++i)
      pairs +=
          str("{\"prompt\": \"Is ", i, " good?\", \"chosen\": \" yes\", \"rejected\": \" no ", i, "\"}\n");
    for (const char* text : {"It is", "She was", "The man", "He had"})
      prompts += str("{\"prompt\": \"", text, "\"}\n");
    write("pairs.jsonl", pairs);
    write("prompts.jsonl", prompts);
  }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static Words run_of(const std::string& task, const Words& more = {}) {
    const std::string data = task == "sft" ? "train.txt" : task == "grpo" ? "prompts.jsonl" : "pairs.jsonl";
    Words all = {"train",
                 "--init",
                 "hf",
                 "--task",
                 task,
                 "--out",
                 task,
                 "data.train=" + data,
                 "model.seq=32",
                 "train.steps=3",
                 "train.dtype=f32",
                 "train.micro_batch=2",
                 "memory.nvme_dir=nvme",
                 "checkpoint.every=1",
                 "train.eval_every=0",
                 "log.sample_every=0"};
    if (task == "dpo") all.emplace_back("data.val=pairs.jsonl");
    if (task == "grpo")
      all = with(all, {"align.prompts=2", "align.samples=2", "align.mini_batches=2", "align.max_tokens=6",
                       "align.max_prompt=8", "align.reward=density:[aeiou]"});
    return with(all, more);
  }
  void make_base() {
    ASSERT_EQ(strata(tiny("train", {"--out", "base", "train.steps=2", "train.dtype=f32"})).exit_code, 0);
    ASSERT_EQ(strata({"export", "base", "--out", "hf"}).exit_code, 0);
  }
  std::map<std::string, std::string> contents(const std::string& folder) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(file(folder)))
      all[entry.path().string()] = entry.is_regular_file() ? read_all(entry.path().string()) : "";
    return all;
  }
  void expect_failure(const Words& words, const std::string& says) {
    const ProgramResult failed = strata(words);
    EXPECT_NE(failed.exit_code, 0) << says;
    EXPECT_THAT(failed.err, HasSubstr(says));
  }
};

TEST_F(CliFailedStartE2e, ANewRunThatFailsLeavesNothing) {
  make_base();
  write("bad.jsonl", "{\"prompt\": 1}\n");
  const auto fails = [&](const std::string& task, const std::string& key, const std::string& says) {
    Words words = run_of(task);
    std::erase_if(
        words, [&](const std::string& word) { return word.starts_with(key.substr(0, key.find('=') + 1)); });
    words.push_back(key);
    expect_failure(words, says);
    EXPECT_FALSE(exists(task)) << says;
    EXPECT_FALSE(exists("saved")) << says;
  };
  for (const char* task : {"sft", "dpo", "grpo"}) {
    fails(task, "data.train=nowhere.jsonl", "nowhere.jsonl");
    fails(task, "data.train=bad.jsonl", "bad.jsonl: line 1");
    fails(task, "data.train=table.csv", ".csv is a table");
    fails(task, "data.tokenizer=train.txt", "train.txt");
    fails(task, "memory.device=1KiB", "memory.device");
  }
  fails("grpo", "align.reward=answer", "has no \"answer\"");
  fails("grpo", "align.reward=model:hf", "no score");
  Words saved = run_of("dpo", {"checkpoint.dir=saved", "memory.device=1KiB"});
  expect_failure(saved, "memory.device");
  EXPECT_FALSE(exists("saved"));
}

TEST_F(CliFailedStartE2e, AResumeThatFailsLeavesTheRunAsItWas) {
  make_base();
  for (const char* task : {"sft", "dpo", "grpo"}) {
    ASSERT_EQ(strata(run_of(task)).exit_code, 0) << task;
    must(posix_io().remove_all(file(str(task, "/.lock"))));  // as in a copy
    const auto before = contents(task);
    const auto fails = [&](const std::string& key, const std::string& says) {
      expect_failure({"train", "--resume", task, "train.steps=6", key}, says);
      EXPECT_EQ(contents(task), before) << task << " " << key;
    };
    fails("data.train=nowhere.txt", "nowhere.txt");
    fails("optim.beta1=0.5", "optim.beta1: the checkpoint was made with");
    fails("memory.device=1KiB", "memory.device");
    fails("data.tokenizer=train.txt", "train.txt");
    fails("no.such=1", "no.such");
  }
}

TEST_F(CliFailedStartE2e, AResumeWithoutAReadableCheckpointLeavesTheRunAsItWas) {
  make_base();
  for (const char* task : {"sft", "dpo", "grpo"}) {
    ASSERT_EQ(strata(run_of(task, {"checkpoint.keep=1"})).exit_code, 0) << task;
    const std::string name = str(task, "/checkpoints/step-00000003/param.safetensors");
    std::string bytes = read_all(file(name));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write(name, bytes);
    const auto before = contents(task);
    expect_failure({"train", "--resume", task, "train.steps=6"}, "is damaged");
    EXPECT_EQ(contents(task), before) << task;
  }
}

// Step 3 of iterations of two steps is in the midst of one.
TEST_F(CliFailedStartE2e, LostAnswersFallBackToAnEarlierCheckpoint) {
  make_base();
  ASSERT_EQ(strata(run_of("grpo")).exit_code, 0);
  ASSERT_TRUE(exists("grpo/checkpoints/step-00000003/task.safetensors"));
  must(posix_io().remove_all(file("grpo/checkpoints/step-00000003/task.safetensors")));
  const ProgramResult resumed = strata({"train", "--resume", "grpo", "train.steps=5"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.output(), HasSubstr("resuming from grpo/checkpoints/step-00000002"));
}

TEST_F(CliFailedStartE2e, RunsOfGrpoAreReadAfterTheirRewardModelMoved) {
  make_base();
  ASSERT_EQ(strata(run_of("reward")).exit_code, 0);
  Words words = run_of("grpo");
  words.back() = "align.reward=model:reward";
  ASSERT_EQ(strata(words).exit_code, 0);
  must(posix_io().rename(file("reward"), file("elsewhere")));
  for (const Words& read : {Words{"ckpt", "verify", "grpo"},
                            {"ckpt", "average", "grpo", "--last", "2", "--out", "mean"},
                            {"export", "grpo", "--out", "out", "--check"},
                            {"eval", "grpo", "--data", "val.txt"},
                            {"eval", "mean", "--data", "val.txt"}}) {
    const ProgramResult result = strata(read);
    EXPECT_EQ(result.exit_code, 0) << read[0] << result.output();
  }
}

TEST_F(CliFailedStartE2e, ASampleThatLooksLikeAHeadingSurvivesAResume) {
  const std::string prompt = "She was\n--- step 9 ---\nhere";
  ASSERT_EQ(
      strata(tiny("train", {"--out", "run", "train.steps=2", "log.sample_every=1", "log.sample_tokens=1",
                            "log.sample_prompt=" + prompt, "checkpoint.every=1"}))
          .exit_code,
      0);
  const std::string samples = read_all(file("run/samples.txt"));
  EXPECT_THAT(samples, HasSubstr("She was\n\\--- step 9 ---\nhere"));
  ASSERT_EQ(strata({"train", "--resume", "run", "train.steps=3"}).exit_code, 0);
  const std::string first = samples.substr(0, samples.find("--- step 2 ---"));
  EXPECT_EQ(read_all(file("run/samples.txt")).substr(0, first.size()), first);
}

}  // namespace
}  // namespace strata::test
