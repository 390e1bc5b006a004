// Training data in all forms: .jsonl records, packed files, several sources with weights.
#include <filesystem>

#include "cli/e2e/data/e2e_data_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliDataE2e, ConversationsArePackedAndARunResumesWithTheSameBits) {
  expect_resumable({"data.train=chat.jsonl", "data.val=ask.jsonl"});
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), HasSubstr("packing = \"pack\""));
}

TEST_F(CliDataE2e, AStreamOfRecordsResumesWithTheSameBits) {
  expect_resumable({"data.train=ask.jsonl,train.txt", "data.packing=stream"});
}

TEST_F(CliDataE2e, WeightedSourcesResumeWithTheSameBits) {
  expect_resumable({"data.train=chat.jsonl,train.txt,ask.jsonl", "data.weights=0.5,0.2,0.3"});
}

// --- Chat templates ---

class CliChatE2e : public CliDataE2e {
 protected:
  /// Creates a tokenizer folder whose template is ChatML with its own system message.
  CliChatE2e() {
    EXPECT_EQ(strata({"tokenizer", "train", "train.txt", "--vocab", "400", "-o", "t.json"}).exit_code, 0);
    auto tokenizer = nlohmann::json::parse(read_all(file("t.json")));
    for (const char* marker : {"<|im_start|>", "<|im_end|>"}) {
      nlohmann::json added = tokenizer["added_tokens"][0];
      added["id"] = tokenizer["model"]["vocab"].size();
      added["content"] = marker;
      tokenizer["model"]["vocab"][marker] = added["id"];
      tokenizer["added_tokens"].push_back(added);
    }
    must(posix_io().make_dirs(file("hf")));
    write("hf/tokenizer.json", tokenizer.dump());
    write(
        "hf/tokenizer_config.json",
        R"({"chat_template": "{{'<|im_start|>system\\nBe kind.<|im_end|>\\n'}}{% for m in messages %}{{ '<|im_start|>')"
        R"( + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"})");
  }
  std::string first_sample(const Words& words) {
    Words all = {"data", "pack", "chat.jsonl", "--out", "p.tokens", "-t", "hf"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult packed = strata(all);
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
    return packed.out + strata({"data", "inspect", "p.tokens", "-t", "hf", "--seq", "128"}).out;
  }
};

TEST_F(CliChatE2e, ConversationsUseTheTokenizersTemplate) {
  EXPECT_THAT(first_sample({}),
              AllOf(HasSubstr("chat.jsonl: 200 conversations (messages) read as chats (own)\n"),
                    HasSubstr("context  \"<|im_start|>system\\nBe kind.<|im_end|>\\n<|im_start|>user\\n"),
                    HasSubstr("<|im_end|>\"\n")));
  EXPECT_THAT(first_sample({"--chat-template", "plain"}),
              AllOf(HasSubstr("read as chats (plain)\n"), HasSubstr("context  \"User:\\n"),
                    Not(HasSubstr("<|im_start|>"))));
}

TEST_F(CliChatE2e, InspectShowsTheFirstRecordWithWhatIsTrainedMarked) {
  write("alpaca.json", R"([{"instruction": "Add.", "input": "1 2", "output": "3"}])");
  const ProgramResult shown = strata({"data", "inspect", "alpaca.json", "--model", "hf"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(
      shown.out,
      HasSubstr("data     alpaca.json: Alpaca records (instruction, input, output) read as chats (own)\n"));
  EXPECT_THAT(shown.out,
              HasSubstr("<|im_start|>user\nAdd.\n1 2<|im_end|>\n[[<|im_start|>assistant\n3<|im_end|>]]\n"))
      << "the template has no prompt for an answer, so that its begin is the model's";
  const auto json =
      nlohmann::json::parse(strata({"data", "inspect", "alpaca.json", "--model", "hf", "--json"}).out);
  const nlohmann::json& document = json[0]["documents"][0];
  EXPECT_EQ(document["ids"].size(), document["tokens"].get<std::size_t>());
  EXPECT_EQ(document["loss_mask"].size(), document["tokens"].get<std::size_t>());
  EXPECT_EQ(document["loss_tokens"], 10);
  EXPECT_EQ(strata({"data", "pack", "alpaca.json", "--out", "p.tokens", "-t", "hf", "--seq", "64"}).exit_code,
            0);
  const auto packed =
      nlohmann::json::parse(strata({"data", "inspect", "p.tokens", "-t", "hf", "--seq", "64", "--json"}).out);
  EXPECT_EQ(packed["tokens"], document["tokens"]);
}

TEST_F(CliChatE2e, InspectOfAConfigurationShowsItsDataAndPromptsOfItsTask) {
  write("run.toml", "[data]\ntrain = [\"chat.jsonl\"]\ntokenizer = \"hf\"\n");
  EXPECT_THAT(strata({"data", "inspect", "run.toml"}).out,
              HasSubstr("chat.jsonl: conversations (messages) read as chats (own)"));
  EXPECT_THAT(
      strata({"data", "inspect", "chat.jsonl", "--model", "hf", "--task", "grpo"}).out,
      AllOf(HasSubstr("record   1, prompt: "), HasSubstr(", 0 of them trained"), Not(HasSubstr("[["))));
}

TEST_F(CliDataE2e, AFolderIsItsFilesOfRecordsAndARunKeepsTheirNames) {
  must(posix_io().make_dirs(file("d")));
  write("d/b.jsonl", read_all(file("ask.jsonl")));
  write("d/a.json", R"([{"prompt": "a", "completion": "b"}])");
  write("d/README.md", "x");
  const ProgramResult run = strata(tiny("train", {"--out", "run", "train.steps=1", "data.train=d"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("d: not read: README.md\n"),
                             HasSubstr("d/a.json: 1 prompt-completion record ")));
  EXPECT_THAT(read_all(file("run/config.resolved.toml")),
              AllOf(HasSubstr("/d/a.json\", \""), HasSubstr("/d/b.jsonl\"]")));
  must(posix_io().make_dirs(file("none")));
  const ProgramResult none = strata(tiny("train", {"--out", "run2", "data.train=none"}));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("none: the folder has no .jsonl, .json or .txt file"));
}

TEST_F(CliChatE2e, ARunReportsItsChatFormatAndKeepsItOnResume) {
  expect_resumable({"data.train=chat.jsonl", "data.val=chat.jsonl", "data.tokenizer=hf"});
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), HasSubstr("chat_template = \"own\""));
  EXPECT_THAT(strata({"config", "show", "--origin", "data.tokenizer=hf"}).out,
              HasSubstr("the chat_template beside hf"));
  EXPECT_THAT(strata({"config", "show", "--origin"}).out,
              HasSubstr("a tokenizer trained on data.train has no chat_template"));
}

TEST_F(CliChatE2e, AnExportHasTheTemplateOfItsRun) {
  ASSERT_EQ(
      strata(tiny("train", {"--out", "run", "train.steps=1", "data.train=chat.jsonl", "data.tokenizer=hf"}))
          .exit_code,
      0);
  ASSERT_EQ(strata({"export", "run", "--out", "out"}).exit_code, 0);
  EXPECT_THAT(strata({"tokenizer", "info", "-t", "out"}).out, HasSubstr("chat          own"));
}

TEST_F(CliChatE2e, FormatsThatCannotBeWrittenAreRefused) {
  const auto refusal = [&](const Words& words) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.output();
    return refused.err;
  };
  EXPECT_THAT(refusal(tiny("train", {"data.chat_template=vicuna"})),
              HasSubstr("'vicuna' is not one of auto, plain, chatml, qwen3, llama3, llama3.1, glm4"));
  EXPECT_THAT(refusal({"data", "pack", "chat.jsonl", "--out", "q", "-t", "hf", "--chat-template", "vicuna"}),
              HasSubstr("choose one by name: plain, chatml"));
  EXPECT_THAT(
      refusal(tiny("train", {"data.train=chat.jsonl", "data.tokenizer=hf", "data.chat_template=glm4"})),
      HasSubstr("chat.jsonl: conversations are written as glm4, but the tokenizer has no token '[gMASK]'"));
  write("hf/chat_template.jinja", "\n{% endfor %}");
  EXPECT_THAT(refusal(tiny("train", {"data.train=chat.jsonl", "data.tokenizer=hf"})),
              HasSubstr("the chat template: line 2: '{% endfor %}' is no block that begins here"));
  EXPECT_EQ(strata(tiny("train", {"--out", "text", "train.steps=1", "data.tokenizer=hf"})).exit_code, 0);
}

TEST_F(CliDataE2e, TextAloneIsAStream) {
  const ProgramResult run = strata(tiny("train", {"--out", "run", "train.steps=2"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(read_all(file("run/config.resolved.toml")), HasSubstr("packing = \"stream\""));
}

TEST_F(CliDataE2e, WhatIsReadFromRecordsIsReportedOnce) {
  const Words words = tiny("train", {"--out", "run", "--overwrite", "train.steps=1", "data.train=ask.jsonl"});
  EXPECT_THAT(
      strata(words).out,
      HasSubstr(
          "data     ask.jsonl: 200 prompt-completion records (prompt, completion); ignored: 'id' (200)\n"));
  // The token cache is reused, and only the first record is read.
  EXPECT_THAT(strata(words).out,
              HasSubstr("data     ask.jsonl: prompt-completion records (prompt, completion)\n"));
}

TEST_F(CliDataE2e, ValidationDataOfFewerSequencesThanAMicroBatchIsMeasured) {
  write("one.jsonl", R"({"prompt": "a", "completion": "b"})");
  const ProgramResult run =
      strata(tiny("train", {"--out", "run", "train.steps=1", "data.train=ask.jsonl", "data.val=one.jsonl"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(summary("run")["val_loss"].is_number());
}

TEST_F(CliDataE2e, TablesAreNotTrainedOnAsText) {
  write("a.csv", "question,answer\nWho?,She.\n");
  const ProgramResult refused = strata(tiny("train", {"data.train=a.csv"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("data.train: a.csv: .csv is a table, not text"));
}

TEST_F(CliDataE2e, BadRecordsAreReportedWithLineNumbersAndExitCodeTwo) {
  write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n{\"text\":\n{\"text\": 2}\n");
  for (const Words& words :
       {tiny("train", {"--out", "run", "data.train=bad.jsonl"}),
        tiny("train", {"--out", "run", "data.val=bad.jsonl"}), tiny("verify", {"data.train=bad.jsonl"})}) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("2 problems"),
                      HasSubstr("bad.jsonl: line 2: 'text' must be a string, not a number (and 1 more)"),
                      HasSubstr("bad.jsonl: line 3: not JSON: ")));
    EXPECT_FALSE(exists("run"));
  }
}

TEST_F(CliDataE2e, UnsupportedDataFormatsAreRefusedByName) {
  write("a.parquet", "PAR1");
  const ProgramResult refused = strata(tiny("train", {"data.train=a.parquet"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("data.train: a.parquet: .parquet is not supported"));
}

TEST_F(CliDataE2e, WeightsThatCannotBeSatisfiedAreRefused) {
  const auto refusal = [&](const Words& words) {
    const ProgramResult refused = strata(tiny("train", words));
    EXPECT_EQ(refused.exit_code, 2);
    return refused.err;
  };
  EXPECT_THAT(refusal({"data.weights=1,2"}), HasSubstr("data.weights: 2 weights, but data.train has 1 file"));
  EXPECT_THAT(refusal({"data.weights=0"}), HasSubstr("outside"));
  EXPECT_THAT(refusal({"data.packing=packed"}), HasSubstr("'packed' is not one of auto, stream, pack"));
  EXPECT_THAT(refusal({"data.train=train.txt,ask.jsonl", "data.weights=1,0.33333333"}),
              HasSubstr("data.weights: a weight has more than 6 decimals"));
}

TEST_F(CliDataE2e, ResumingWithOtherWeightsOrPackingIsRefused) {
  ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=2", "data.train=chat.jsonl,ask.jsonl",
                                  "data.weights=0.5,0.5"}))
                .exit_code,
            0);
  const ProgramResult refused =
      strata({"train", "--resume", "run", "data.weights=0.25,0.75", "data.packing=stream"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("data.weights: the checkpoint was made with 0.5,0.5, this run has 0.25,"),
                    HasSubstr("data.packing: the checkpoint was made with pack, this run has stream")));
}

}  // namespace
}  // namespace strata::test
