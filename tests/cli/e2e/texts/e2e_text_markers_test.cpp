// Which tokens begin and end a text, from the folder of a model over its data to what is generated and
// exported.
#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CliTextMarkersE2e : public CliE2e {
 protected:
  /// A folder "hf" of a model whose texts end with `end`, and begin with <s> if `begins`; beside it, chat
  /// markers.
  void make_base(const std::string& end, bool begins = false) {
    ASSERT_EQ(strata({"tokenizer", "train", "train.txt", "--vocab", "300", "-o", "t.json"}).exit_code, 0);
    auto tokenizer = nlohmann::json::parse(read_all(file("t.json")));
    nlohmann::json& vocab = tokenizer["model"]["vocab"];
    vocab[end] = 299;
    if (end != "<|endoftext|>") vocab.erase("<|endoftext|>");
    tokenizer["added_tokens"][0]["content"] = end;
    for (const char* marker : {"<s>", "<|im_start|>", "<|im_end|>"}) {
      nlohmann::json added = tokenizer["added_tokens"][0];
      added["id"] = vocab.size();
      added["content"] = marker;
      vocab[marker] = added["id"];
      tokenizer["added_tokens"].push_back(added);
    }
    if (begins)
      tokenizer["post_processor"] = nlohmann::json::parse(
          R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
              {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
              {"Sequence": {"id": "B", "type_id": 1}}],
              "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]}}})");
    write("t.json", tokenizer.dump());
    const ProgramResult made =
        strata(tiny("train", {"--out", "made", "train.steps=1", "model.seq=64", "data.tokenizer=t.json"}));
    ASSERT_EQ(made.exit_code, 0) << made.err;
    ASSERT_EQ(strata({"export", "made", "--out", "hf"}).exit_code, 0);
    for (const char* name : {"hf/tokenizer_config.json", "hf/generation_config.json"})
      must(posix_io().remove_all(file(name)));
  }
  void train(const std::string& out, const std::string& data, const Words& more = {"train.steps=2"}) {
    Words words = tiny("train", {"--out", out, "--init", "hf", "data.train=" + data, "data.val="});
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult trained = strata(words);
    ASSERT_EQ(trained.exit_code, 0) << trained.output();
  }
  std::string first_document(const std::string& data) {
    const ProgramResult packed = strata({"data", "pack", data, "-t", "hf", "--out", "p.tokens"});
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
    return strata({"data", "inspect", "p.tokens", "-t", "hf", "--seq", "64", "--sample", "1"}).out;
  }
  nlohmann::json prompt_ids(const std::string& model) {
    const ProgramResult said = strata({"generate", model, "--prompt", "Box", "--tokens", "1", "--json"});
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return nlohmann::json::parse(said.out)["prompt_ids"];
  }
  void write_records() {
    std::string texts, answers, chats;
    for (int i = 0; i < 40; ++i) {
      texts += str("{\"text\": \"Tea number ", i, ".\"}\n");
      answers += str("{\"prompt\": \"Box ", i, " holds \", \"completion\": \"red tea\"}\n");
      chats += str("{\"messages\": [{\"role\": \"user\", \"content\": \"Box ", i,
                   "?\"}, {\"role\": \"assistant\", \"content\": \"red tea\"}]}\n");
    }
    write("texts.jsonl", texts);
    write("answers.jsonl", answers);
    write("chats.jsonl", chats);
  }
};

TEST_F(CliTextMarkersE2e, TextsAreKeptApartByTheEndOfTheBaseWhateverItIsCalled) {
  write_records();
  for (const std::string end : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"}) {
    make_base(end);
    EXPECT_THAT(first_document("texts.jsonl"), HasSubstr("." + end + "Tea number"));
    EXPECT_THAT(first_document("answers.jsonl"), HasSubstr("red tea" + end));
    must(posix_io().remove_all(file("made")));
    must(posix_io().remove_all(file("hf")));
    must(posix_io().remove_all(file("p.tokens")));
    must(posix_io().remove_all(file("t.json")));  // it is no longer what the command wrote
  }
}

TEST_F(CliTextMarkersE2e, TrainingAndPromptsBeginAlikeAlsoAfterAnExport) {
  write_records();
  make_base("</s>", true);
  EXPECT_THAT(first_document("answers.jsonl"), HasSubstr("context  \"<s>Box"));
  train("run", "answers.jsonl");
  ASSERT_EQ(strata({"export", "run", "--out", "out"}).exit_code, 0);
  EXPECT_EQ(prompt_ids("hf")[0], 300);
  EXPECT_EQ(prompt_ids("run"), prompt_ids("hf"));
  EXPECT_EQ(prompt_ids("out"), prompt_ids("hf"));
}

TEST_F(CliTextMarkersE2e, AStartSaysWhatBeginsAndEndsADocument) {
  write_records();
  make_base("</s>", true);
  const ProgramResult trained = strata(tiny(
      "train", {"--out", "run", "--init", "hf", "data.train=texts.jsonl", "train.steps=1", "data.val="}));
  EXPECT_THAT(trained.output(), HasSubstr("each document begins with <s> and ends with </s>"));
}

TEST_F(CliTextMarkersE2e, ARunOfConversationsExportsTheEndOfItsTurns) {
  write_records();
  make_base("</s>");
  train("run", "chats.jsonl", {"train.steps=2", "data.chat_template=chatml"});
  ASSERT_EQ(strata({"export", "run", "--out", "out"}).exit_code, 0);
  const auto json_of = [&](const std::string& name) { return nlohmann::json::parse(read_all(file(name))); };
  EXPECT_EQ(json_of("out/generation_config.json")["eos_token_id"], nlohmann::json({302, 299}));
  EXPECT_EQ(json_of("out/tokenizer_config.json")["eos_token"], "<|im_end|>");
  train("plain", "texts.jsonl");
  ASSERT_EQ(strata({"export", "plain", "--out", "plain-out"}).exit_code, 0);
  EXPECT_EQ(json_of("plain-out/generation_config.json")["eos_token_id"], 299);
}

TEST_F(CliTextMarkersE2e, ARunThatKeptNoMarkersIsReadAsItWasTrained) {
  write_records();
  make_base("</s>", true);
  train("run", "answers.jsonl");
  EXPECT_EQ(prompt_ids("run")[0], 300);
  must(posix_io().remove_all(file("run/text_markers.json")));
  EXPECT_NE(prompt_ids("run")[0], 300);
}

TEST_F(CliTextMarkersE2e, ACacheOfOtherMarkersIsNotReused) {
  write_records();
  make_base("</s>");
  EXPECT_THAT(first_document("texts.jsonl"), HasSubstr(".</s>Tea number"));
  write("hf/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  EXPECT_THAT(first_document("texts.jsonl"), HasSubstr(".<|im_end|>Tea number"));
}

TEST_F(CliTextMarkersE2e, ATextIsScoredAsAfterAnEmptyContext) {
  make_base("</s>", true);
  write("in.jsonl", "{\"context\": \"\", \"continuation\": \"Red tea.\"}\n{\"text\": \"Red tea.\"}\n");
  const ProgramResult scored = strata({"score", "hf", "--in", "in.jsonl"});
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  const std::size_t line = scored.out.find('\n');
  const auto pair = nlohmann::json::parse(scored.out.substr(0, line)),
             text = nlohmann::json::parse(scored.out.substr(line));
  EXPECT_EQ(pair["logprob"], text["logprob"]);
  EXPECT_EQ(pair["tokens"], text["tokens"]);
}

TEST_F(CliTextMarkersE2e, ARunStopsAtTheEndItHasLearned) {
  write_records();
  make_base("</s>");
  train("run", "chats.jsonl",
        {"data.chat_template=chatml", "train.steps=60", "optim.lr=1e-2", "optim.warmup=0", "model.seq=64"});
  write("ask.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Box 7?\"}]}\n");
  const ProgramResult said =
      strata({"generate", "run", "--prompts", "ask.jsonl", "--tokens", "40", "--temperature", "0", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const auto answer = nlohmann::json::parse(said.out);
  EXPECT_EQ(answer["finish_reason"], "end_of_text");
  EXPECT_THAT(answer["text"].get<std::string>(), Not(HasSubstr("<|im_end|>")));
}

}  // namespace
}  // namespace strata::test
