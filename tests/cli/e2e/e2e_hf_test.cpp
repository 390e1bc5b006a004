// Imports and exports models: a run starts from a Hugging Face folder and is exported to one.
#include <algorithm>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

class CliHfE2e : public CliE2e {
 protected:
  /// Trains a run of `family` and exports it to hf.
  void make_folder(const std::string& family) {
    const ProgramResult trained =
        strata(tiny("train", {"--out", "run", "train.steps=4", "model.family=" + family}));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const ProgramResult exported = strata({"export", "run", "--out", "hf", "--check"});
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    EXPECT_THAT(exported.out, HasSubstr("all tensors read back as they were written"));
  }
};

TEST_F(CliHfE2e, ARunThatStartsFromAnExportHasTheFinalLossOfTheExportedRun) {
  make_folder("qwen3");
  // The learning rate is so small that the parameters stay those that were exported.
  const Words words = {"train.steps=1", "optim.lr=1e-30", "optim.warmup=0", "train.eval_every=0"};
  Words again = {"--out", "again", "--init", "hf"};
  again.insert(again.end(), words.begin(), words.end());
  const ProgramResult trained = strata(tiny("train", again));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NEAR(summary("again")["val_loss"].get<double>(), summary("run")["val_loss"].get<double>(), 1e-6);
  EXPECT_EQ(strata({"train", "--resume", "again", "train.steps=2"}).exit_code, 0);
}

// As trainers of records do, each is read by itself; a book is read in windows.
TEST_F(CliHfE2e, ShortTextsAreTunedOnByThemselvesAndALongOneInWindows) {
  make_folder("qwen3");
  std::string records;
  for (int i = 0; i < 12; ++i) records += str("{\"text\": \"Mr. Bennet ", i, "\"}\n");
  write("texts.jsonl", records);
  const auto packing_of = [&](const std::string& name, const Words& words) {
    Words all = {"train", "--init", "hf", "--out", name, "train.steps=1"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramResult trained = strata(all);
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    const std::string config = read_all(file(name + "/config.resolved.toml"));
    return config.substr(config.find("packing = ") + 10, 8);
  };
  EXPECT_THAT(packing_of("texts", {"data.train=texts.jsonl"}), HasSubstr("\"pack\""));
  EXPECT_THAT(packing_of("book", {"data.train=train.txt"}), HasSubstr("\"stream\""));
  EXPECT_THAT(packing_of("long", {"data.train=texts.jsonl", "model.seq=2"}), HasSubstr("\"stream\""));
  EXPECT_THAT(packing_of("asked", {"data.train=texts.jsonl", "data.packing=stream"}),
              HasSubstr("\"stream\""));
}

TEST_F(CliHfE2e, AFolderIsTunedForThreeEpochsOfRowsThatItsDataNeed) {
  make_folder("qwen3");
  std::string records;
  for (int i = 0; i < 40; ++i) records += "{\"prompt\": \"Mr.\", \"completion\": \" Bennet\"}\n";
  write("ask.jsonl", records);
  const Words words = {"train", "--init", "hf", "data.train=ask.jsonl", "train.dtype=f32"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), words.begin(), words.end());
    return strata(more);
  };
  const ProgramResult tuned = with({"--out", "tuned"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.output(), HasSubstr("data     40 documents, "));
  const std::string toml = read_all(file("tuned/config.resolved.toml"));
  EXPECT_THAT(toml, HasSubstr("epochs = 3"));
  EXPECT_THAT(toml, HasSubstr("lr = 2e-05"));
  EXPECT_THAT(toml, HasSubstr("seq = 16 "));
  const int steps = metrics("tuned").back()["step"].get<int>();
  EXPECT_THAT(tuned.output(), HasSubstr(str(steps, " steps of 64 tokens are 3")));
  EXPECT_THAT(toml, HasSubstr(str("steps = ", steps, " ")));
  // A longer run, from where this one ended.
  EXPECT_EQ(strata({"train", "--resume", "tuned"}).exit_code, 0);
  ASSERT_EQ(strata({"train", "--resume", "tuned", "train.epochs=4"}).exit_code, 0);
  EXPECT_GT(metrics("tuned").back()["step"].get<int>(), steps);
  EXPECT_EQ(with({"--out", "many", "train.steps=200"}).exit_code, 0);
  EXPECT_THAT(
      with({"--out", "many", "--overwrite", "train.steps=200", "optim.lr=1"}).err,
      testing::AllOf(HasSubstr("the run reads data.train "), HasSubstr("optim.lr = 1 is 5e+04 times 2e-05")));
  EXPECT_THAT(with({"--out", "split", "model.seq=2", "train.steps=1"}).err,
              HasSubstr("40 of 40 documents are longer than model.seq = 2 and are split"));
}

// Layouts of GPT-2 (transposed), BLOOM (by heads) and LLaMA (three matrices for one).
TEST_F(CliHfE2e, ARunGoesOnFromAnExportWithStatesAsIfItHadNotBeenInterrupted) {
  for (const std::string family : {"gpt2", "bloom", "llama"}) {
    SCOPED_TRACE(family);
    const Words common = {"--overwrite", "optim.schedule=constant", "optim.warmup=0", "train.eval_every=0"};
    const auto train = [&](const std::string& out, Words words) {
      words.insert(words.end(), common.begin(), common.end());
      words.insert(words.end(), {"--out", out});
      const ProgramResult trained = strata(tiny("train", words));
      EXPECT_EQ(trained.exit_code, 0) << trained.err;
    };
    const std::string exported = "hf-" + family;
    train("whole", {"train.steps=6", "model.family=" + family});
    train("part", {"train.steps=3", "model.family=" + family});
    const ProgramResult done = strata({"export", "part", "--out", exported, "--states"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr(exported + "/step-00000003"));
    train("again", {"train.steps=6", "--init", exported, "model.states=" + exported});
    EXPECT_EQ(metrics("again").front()["step"], 4);
    EXPECT_EQ(digest("again"), digest("whole"));
    EXPECT_NE(digest("again"), digest("part"));
  }
}

TEST_F(CliHfE2e, StatesThatAreDamagedOrOfAnotherRunAreRefused) {
  make_folder("gpt2");
  ASSERT_EQ(strata({"export", "run", "--out", "states", "--states"}).exit_code, 0);
  const auto refusal = [&](Words words, int exit_code) {
    words.insert(words.end(), {"--out", "again", "--overwrite"});
    const ProgramResult refused = strata(tiny("train", words));
    EXPECT_EQ(refused.exit_code, exit_code) << refused.output();
    return refused.err;
  };
  EXPECT_THAT(refusal({"model.states=states"}, 2), HasSubstr("model.from, whose tensors it names, is empty"));
  EXPECT_THAT(refusal({"--init", "hf", "model.states=nowhere"}, 2), HasSubstr("nowhere"));
  EXPECT_THAT(refusal({"--init", "hf", "model.states=run/checkpoints"}, 5),
              HasSubstr("layers.0.qkv.weight is not a tensor of this model"));
  EXPECT_THAT(refusal({"--init", "hf", "model.states=states", "optim.name=lion"}, 2),
              HasSubstr("has v.safetensors, and lion has no such state"));
  std::string bytes = read_all(file("states/step-00000004/v.safetensors"));
  bytes[bytes.size() - 3] ^= 1;
  write("states/step-00000004/v.safetensors", bytes);
  EXPECT_THAT(refusal({"--init", "hf", "model.states=states"}, 5), HasSubstr("v.safetensors is damaged"));
}

TEST_F(CliHfE2e, SizesComeFromTheFolderAndDifferencesAreRefused) {
  make_folder("gpt2");
  const ProgramResult refused = strata(tiny("train", {"--out", "again", "--init", "hf", "model.layers=3"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("model.layers = 3, but 2 according to hf/config.json"));
  const ProgramResult longer = strata(tiny("train", {"--out", "again", "--init", "hf", "model.seq=64"}));
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(longer.err,
              HasSubstr("model.seq is 64; the model has only 32 positions: set model.seq=32 or less"));
}

TEST_F(CliHfE2e, AnExportIsRefusedWhereThereIsNothingToWriteOrNoPlaceForIt) {
  make_folder("gpt2");
  const ProgramResult there = strata({"export", "run", "--out", "hf"});
  EXPECT_EQ(there.exit_code, 2);
  EXPECT_THAT(there.err, HasSubstr("hf already exists"));
  EXPECT_EQ(strata({"export", "nowhere", "--out", "other"}).exit_code, 2);
  const ProgramResult dtype = strata({"export", "run", "--out", "other", "--dtype", "f64"});
  EXPECT_EQ(dtype.exit_code, 2);
  EXPECT_THAT(dtype.err, HasSubstr("--dtype f64 is not one of f32, bf16, f16"));
}

TEST_F(CliHfE2e, ParametersThatDoNotMatchTheManifestAreNotExported) {
  make_folder("gpt2");
  const std::string params = "run/checkpoints/step-00000004/param.safetensors";
  std::string bytes = read_all(file(params));
  bytes[bytes.size() - 5] ^= 1;
  write(params, bytes);
  const ProgramResult refused = strata({"export", "run", "--out", "other"});
  EXPECT_EQ(refused.exit_code, 5) << refused.output();
  EXPECT_THAT(refused.err, HasSubstr("is damaged: its digest is"));
  EXPECT_FALSE(exists("other"));
}

TEST_F(CliHfE2e, AnExportContainsTheRunsTokenizerAndStopTokens) {
  make_folder("llama");
  const Words other = {"--out", "again", "--init", "hf", "train.steps=1", "data.tokenizer=other.json"};
  ASSERT_EQ(strata({"tokenizer", "train", "val.txt", "--vocab", "400", "--out", "other.json"}).exit_code, 0);
  const ProgramResult trained = strata(tiny("train", other));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProgramResult exported = strata({"export", "again", "--out", "out/", "--check"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("the tokenizer equals the run's"));
  EXPECT_EQ(read_all(file("out/tokenizer.json")), read_all(file("again/tokenizer.json")));
  const auto generation = nlohmann::json::parse(read_all(file("out/generation_config.json"))),
             config = nlohmann::json::parse(read_all(file("out/config.json")));
  EXPECT_EQ(generation["eos_token_id"], 399);
  EXPECT_EQ(config["eos_token_id"], 399);
}

TEST_F(CliHfE2e, AnExportSaysWhereTransformersSplitsOtherwiseThanTheRun) {
  make_folder("qwen2");  // passes --check: its own tokenizer has the splits that transformers gives it
  EXPECT_THAT(strata({"tokenizer", "info", "-t", "hf"}).out, HasSubstr("splits as     qwen2"));
  ASSERT_EQ(strata({"tokenizer", "train", "val.txt", "--vocab", "400", "--out", "other.json"}).exit_code, 0);
  const Words words = {"--out", "again", "--init", "hf", "train.steps=1", "data.tokenizer=other.json"};
  ASSERT_EQ(strata(tiny("train", words)).exit_code, 0);
  const ProgramResult noted = strata({"export", "again", "--out", "noted"});
  EXPECT_EQ(noted.exit_code, 0) << noted.err;
  EXPECT_THAT(noted.out,
              HasSubstr("note: AutoTokenizer of transformers 5 reads the tokenizer of a qwen2 model as"));
  const ProgramResult checked = strata({"export", "again", "--out", "checked", "--check"});
  EXPECT_EQ(checked.exit_code, 2);
  EXPECT_THAT(checked.err, HasSubstr("the model was trained with the splits of GPT-2"));
}

TEST_F(CliHfE2e, AHeadThatOnlyTheConfigurationTiesIsTrainedByItself) {
  make_folder("llama");
  const Words measure = {"eval", "hf", "--data", "val.txt", "--json", "model.seq=32", "train.micro_batch=2"};
  const auto loss_of = [&] { return nlohmann::json::parse(strata(measure).out)["loss_bits"]; };
  const auto apart = loss_of();
  auto config = nlohmann::json::parse(read_all(file("hf/config.json")));
  config["tie_word_embeddings"] = true;
  write("hf/config.json", config.dump());
  EXPECT_EQ(loss_of(), apart);
  const ProgramResult trained = strata(tiny("train", {"--out", "again", "--init", "hf", "train.steps=2"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.output(), HasSubstr("the head is not tied, as in transformers"));
  must(posix_io().remove_all(file("hf")));
  EXPECT_EQ(strata({"train", "--resume", "again", "train.steps=3"}).exit_code, 0);
  ASSERT_EQ(strata({"export", "again", "--out", "out", "--check"}).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_all(file("out/config.json")))["tie_word_embeddings"], false);
}

TEST_F(CliHfE2e, AnAddedTokenWithoutARowIsRefusedOnlyWhereATextHasIt) {
  make_folder("llama");
  auto tokenizer = nlohmann::json::parse(read_all(file("hf/tokenizer.json")));
  const auto n = tokenizer["model"]["vocab"].size();
  tokenizer["added_tokens"].push_back({{"id", n}, {"content", "[PAD]"}, {"special", false}});
  write("hf/tokenizer.json", tokenizer.dump());
  const Words words = {"--out", "again", "--init", "hf", "train.steps=1"};
  const ProgramResult trained = strata(tiny("train", words));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  write("pad.txt", read_all(file("val.txt")) + "[PAD]");
  for (const Words& refused :
       {tiny("train", {"--out", "no", "--init", "hf", "data.train=pad.txt"}),
        Words{"eval", "again", "--data", "pad.txt"}, Words{"generate", "hf", "--prompt", "Tea [PAD]"}}) {
    const ProgramResult done = strata(refused);
    EXPECT_EQ(done.exit_code, 2) << done.output();
    EXPECT_THAT(done.err, HasSubstr(str("token ", n, " ('[PAD]') has no row in the model, which has ", n,
                                        " tokens (model.vocab), while the tokenizer has ", n + 1)));
  }
}

TEST_F(CliHfE2e, ARunResumesAndIsExportedWithoutItsOriginalFolder) {
  make_folder("qwen3");
  write("hf/generation_config.json", R"({"eos_token_id": [7, 8]})");
  ASSERT_EQ(strata(tiny("train", {"--out", "again", "--init", "hf", "train.steps=2"})).exit_code, 0);
  must(posix_io().remove_all(file("hf")));
  must(posix_io().make_dirs(file("elsewhere")));
  must(posix_io().rename(file("again"), file("elsewhere/x=y")));
  ProgramOptions there = options_;
  there.cwd = file("elsewhere");
  for (const Words& words :
       {Words{"train", "--resume", "x=y", "train.steps=3"}, Words{"generate", "x=y", "It is"},
        Words{"eval", "x=y"}, Words{"export", "x=y", "--out", "out", "--check"}}) {
    const ProgramResult done = strata(words, there);
    EXPECT_EQ(done.exit_code, 0) << done.output();
  }
  EXPECT_EQ(summary("elsewhere/x=y")["steps"], 3);
  const auto generation = nlohmann::json::parse(read_all(file("elsewhere/out/generation_config.json")));
  EXPECT_EQ(generation["eos_token_id"], nlohmann::json({7, 8}));
}

TEST_F(CliHfE2e, AFoldersChatTemplateIsUsedAndADamagedOneIsReported) {
  make_folder("llama");
  write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Who?"}]})");
  const Words words = {"generate", "hf", "--prompts", "chat.jsonl", "--tokens", "1", "--json"};
  write("hf/chat_template.jinja", "{% for m in messages %}<|im_start|>{{ m.role }}<|im_end|>{% endfor %}");
  const ProgramResult chatml = strata(words);
  EXPECT_EQ(chatml.exit_code, 2);
  EXPECT_THAT(chatml.err,
              HasSubstr("message 1 of 1 has the role 'user', which the chat template leaves out"));
  write("hf/chat_template.jinja", "[Q]{{ messages[0].content }}[A]");
  EXPECT_THAT(
      nlohmann::json::parse(strata(words).out)["prompt_ids"],
      nlohmann::json::parse(
          strata({"generate", "hf", "--prompt", "[Q]Who?[A]", "--tokens", "1", "--json"}).out)["prompt_ids"]);
  write("hf/chat_template.jinja", "{{ messages");
  EXPECT_THAT(strata({"generate", "hf", "It is", "--tokens", "1"}).err,
              HasSubstr("cannot be used: the chat template: line 1: a tag has no end"));
}

TEST_F(CliHfE2e, AFolderContinuesAPrompt) {
  make_folder("llama");
  const Words prompt = {"--prompt", "It is a truth", "--tokens", "20", "--temperature", "0"};
  Words from_run = {"generate", "run"}, from_folder = {"generate", "hf"};
  from_run.insert(from_run.end(), prompt.begin(), prompt.end());
  from_folder.insert(from_folder.end(), prompt.begin(), prompt.end());
  const ProgramResult run = strata(from_run), folder = strata(from_folder);
  ASSERT_EQ(folder.exit_code, 0) << folder.err;
  EXPECT_EQ(folder.out, run.out);
  EXPECT_THAT(folder.out, HasSubstr("It is a truth"));
}

}  // namespace
}  // namespace strata::test
