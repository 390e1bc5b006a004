// `strata eval` reproduces the validation loss that a run measured, from the run or from its export.
#include <cmath>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliEvalE2e : public CliE2e {
 protected:
  void train(const Words& words = {}) {
    Words all = {
        "--out", "run", "train.steps=6", "checkpoint.every=3", "train.eval_every=0", "log.sample_every=0"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult trained = strata(tiny("train", all));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  nlohmann::json eval(const Words& words) {
    Words all = {"eval"};
    all.insert(all.end(), words.begin(), words.end());
    all.push_back("--json");
    const ProgramResult done = strata(all);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.exit_code == 0 ? nlohmann::json::parse(done.out) : nlohmann::json();
  }
  void expect_refused(const Words& words, int code, const std::string& says) {
    Words all = {"eval"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult refused = strata(all);
    EXPECT_EQ(refused.exit_code, code) << refused.output();
    EXPECT_THAT(refused.err, HasSubstr(says));
  }
};

TEST_F(CliEvalE2e, EvalOfTheRunsDataHasTheBitsOfItsLastValidation) {
  train();
  const nlohmann::json measured = eval({"run", "--data", "val.txt"}), last = summary("run");
  EXPECT_EQ(measured["loss_bits"], last["val_loss_bits"]);
  EXPECT_EQ(measured["bits_per_byte"], last["bits_per_byte"]);
  EXPECT_EQ(measured["model"], "run/checkpoints/step-00000006");
  EXPECT_EQ(eval({"run"})["loss_bits"], last["val_loss_bits"]);  // the default is the run's own data
}

TEST_F(CliEvalE2e, EvalOfPackedConversationsHasTheBitsOfTheLastValidation) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines +=
        str(R"({"messages": [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": ")",
            std::string(static_cast<std::size_t>(1 + i % 9), 'x'), "\"}]}\n");
  write("chat.jsonl", lines);
  train({"data.train=chat.jsonl", "data.val=chat.jsonl"});
  const nlohmann::json measured = eval({"run", "--data", "chat.jsonl"});
  EXPECT_EQ(measured["loss_bits"], summary("run")["val_loss_bits"]);
  EXPECT_EQ(measured["packing"], "pack");
}

TEST_F(CliEvalE2e, PlacementDoesNotChangeTheBitsOfEval) {
  train();
  const auto last = summary("run")["val_loss_bits"];
  for (const Words& placement : {Words{"memory.device=unlimited", "memory.pinned=1MiB", "memory.nvme=0"},
                                 Words{"offload.policy=pinned", "memory.device=unlimited", "cpu.threads=1"},
                                 Words{"offload.policy=nvme", "offload.chunk=4096"}}) {
    Words words = {"run"};
    words.insert(words.end(), placement.begin(), placement.end());
    EXPECT_EQ(eval(words)["loss_bits"], last) << placement.front();
  }
}

TEST_F(CliEvalE2e, EvalAllocatesNoOptimizerStates) {
  train();
  const nlohmann::json plan = nlohmann::json::parse(strata(tiny("plan", {"--json"})).out);
  const auto parameters = plan["parameters"].get<std::uint64_t>();
  const Words device = {"run", "memory.device=unlimited", "memory.pinned=unlimited", "memory.nvme=0"};
  const nlohmann::json measured = eval(device);
  const auto held = measured["planned_bytes"]["device"].get<std::uint64_t>() +
                    measured["planned_bytes"]["pinned"].get<std::uint64_t>();
  EXPECT_GE(held, 4 * parameters);
  EXPECT_LT(held, 12 * parameters);  // less than the bytes of training states alone
  EXPECT_EQ(measured["peak_bytes"], measured["planned_bytes"]);
}

TEST_F(CliEvalE2e, AnEarlierCheckpointIsSelectedByItsStep) {
  train();
  const nlohmann::json early = eval({"run", "--checkpoint", "3"});
  EXPECT_EQ(early["model"], "run/checkpoints/step-00000003");
  EXPECT_NE(early["loss_bits"], summary("run")["val_loss_bits"]);
  EXPECT_EQ(eval({"run", "--checkpoint", "6"})["loss_bits"], summary("run")["val_loss_bits"]);
  expect_refused({"run", "--checkpoint", "5"}, 2, "run: no checkpoint of step 5; available: 3, 6");
}

TEST_F(CliEvalE2e, AnExportHasTheLossOfItsRun) {
  train({"model.family=qwen3"});
  ASSERT_EQ(strata({"export", "run", "--out", "hf"}).exit_code, 0);
  const nlohmann::json measured = eval({"hf", "train.micro_batch=2", "--data", "val.txt", "model.seq=32",
                                        "train.dtype=bf16", "cpu.bf16_matmul=widened"});  // as in the run
  EXPECT_EQ(measured["loss_bits"], summary("run")["val_loss_bits"]);
  EXPECT_EQ(measured["model"], "hf");
  expect_refused({"hf", "--data", "val.txt", "--checkpoint", "6"}, 2, "hf is a Hugging Face folder");
  expect_refused({"hf"}, 2, "data.val is empty; name at least one file");
}

TEST_F(CliEvalE2e, TheOutputNamesTheDtype) {
  train({"train.dtype=bf16"});
  const nlohmann::json own = eval({"run"}), other = eval({"run", "train.dtype=f32"});
  EXPECT_EQ(own["dtype"], "bf16");
  EXPECT_EQ(own["loss_bits"], summary("run")["val_loss_bits"]);
  EXPECT_EQ(other["dtype"], "f32");
  EXPECT_NE(other["loss_bits"], own["loss_bits"]);
  EXPECT_THAT(strata({"eval", "run"}).out, HasSubstr(", stream, in bf16"));
}

TEST_F(CliEvalE2e, TheReportedNumbersAreConsistent) {
  train();
  const nlohmann::json all = eval({"run"}), some = eval({"run", "--batches", "3"});
  EXPECT_EQ(some["micro_batches"], 3);
  EXPECT_EQ(some["sequences"], 6);
  EXPECT_EQ(some["tokens"], 6 * 32);
  EXPECT_EQ(all["dropped_sequences"].get<int>(),
            some["dropped_sequences"].get<int>() - (all["sequences"].get<int>() - 6));
  EXPECT_NEAR(all["perplexity"].get<double>(), std::exp(all["loss"].get<double>()), 1e-2);
  EXPECT_NEAR(
      all["bits_per_byte"].get<double>(),
      all["loss"].get<double>() * all["tokens"].get<double>() / std::log(2.0) / all["bytes"].get<double>(),
      1e-5);
  EXPECT_EQ(eval({"run", "--batches", "1000000"})["loss_bits"], all["loss_bits"]);
  EXPECT_THAT(strata({"eval", "run"}).out,
              AllOf(HasSubstr("nats per token, perplexity "), HasSubstr(" bits per byte\n"),
                    HasSubstr(" sequences of 32, stream")));
}

TEST_F(CliEvalE2e, EverySequenceCountsInMicroBatchesOfAnySize) {
  train();
  std::string lines;
  for (int i = 0; i < 11; ++i)
    lines += str(R"({"prompt": "Box )", i, R"( holds ", "completion": "red tea, and )", i, " of them\"}\n");
  write("ask.jsonl", lines);
  const nlohmann::json one = eval({"run", "--data", "ask.jsonl", "train.micro_batch=1"});
  EXPECT_EQ(one["dropped_sequences"], 0);
  ASSERT_EQ(one["sequences"], 7);  // which fills no micro-batch of the sizes below
  for (const int n : {2, 3, 4, 8}) {
    const nlohmann::json many = eval({"run", "--data", "ask.jsonl", str("train.micro_batch=", n)});
    EXPECT_NEAR(many["loss"].get<double>(), one["loss"].get<double>(), 1e-5) << n;
    for (const char* const key : {"tokens", "bytes", "sequences", "dropped_sequences"})
      EXPECT_EQ(many[key], one[key]) << key << ", micro-batches of " << n;
  }
}

TEST_F(CliEvalE2e, MistakesHaveTheirExitCodes) {
  train();
  write("bad.jsonl", "{\"text\": 1}\n");
  expect_refused({}, 2, "missing run or Hugging Face folder");
  expect_refused({"--data", "val.txt"}, 2, "missing run or Hugging Face folder");
  expect_refused({"gone", "--data", "val.txt"}, 2, "gone");
  expect_refused({"run", "--data", "gone.txt"}, 2, "gone.txt: No such file");
  expect_refused({"run", "--data", "bad.jsonl"}, 2, "bad.jsonl: line 1: 'text' must be a string");
  expect_refused({"run", "--batches", "0"}, 2, "--batches");
  expect_refused({"run", "memory.devise=1"}, 2, "did you mean 'memory.device'?");
  expect_refused({"run", "memory.device=64KiB"}, 3, "does not fit");
  std::string damaged = read_all(file("run/checkpoints/step-00000006/param.safetensors"));
  damaged[damaged.size() - 9] ^= 1;
  write("run/checkpoints/step-00000006/param.safetensors", damaged);
  expect_refused({"run"}, 5, " is damaged: its digest is ");
}

}  // namespace
}  // namespace strata::test
