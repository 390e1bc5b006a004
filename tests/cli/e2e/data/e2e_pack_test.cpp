// strata data pack and data inspect.
#include <filesystem>

#include "cli/e2e/data/e2e_data_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliPackE2e : public CliDataE2e {
 protected:
  CliPackE2e() {
    EXPECT_EQ(strata({"tokenizer", "train", "train.txt", "--vocab", "400", "-o", "tokenizer.json"}).exit_code,
              0);
  }
};

TEST_F(CliPackE2e, InspectShowsTheContentsOfAPackedFile) {
  const ProgramResult packed =
      strata({"data", "pack", "ask.jsonl", "train.txt", "--out", "p.tokens", "--seq", "64"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(
      packed.out,
      AllOf(HasSubstr("ask.jsonl: 200 prompt-completion records (prompt, completion); ignored: 'id' (200)"),
            HasSubstr("p.tokens written"), HasSubstr("documents  201")));
  const auto shown = nlohmann::json::parse(
      strata({"data", "inspect", "p.tokens", "--seq", "64", "--sample", "1", "--json"}).out);
  EXPECT_EQ(shown["documents"], 201);
  EXPECT_LT(shown["loss_tokens"].get<int>(), shown["tokens"].get<int>());
  EXPECT_GT(shown["pack"]["efficiency"].get<double>(), 0.9);
  int in_bins = 0;
  for (const auto& bin : shown["lengths"]) in_bins += bin["documents"].get<int>();
  EXPECT_EQ(in_bins, 201);
  EXPECT_EQ(shown["sample"]["index"], 1);
  const auto& runs = shown["sample"]["documents"][0]["runs"];
  EXPECT_FALSE(runs[0]["loss_mask"].get<bool>());
  EXPECT_THAT(runs[1]["text"].get<std::string>(), testing::EndsWith("<|endoftext|>"));
  EXPECT_THAT(strata({"data", "inspect", "p.tokens", "--seq", "64"}).out,
              AllOf(HasSubstr("    context  \""), HasSubstr("    loss     \"")));
}

TEST_F(CliPackE2e, PackingAgainChangesNothingAndReplacesNoOtherFile) {
  const Words words = {"data", "pack", "ask.jsonl", "--out", "p.tokens"};
  ASSERT_EQ(strata(words).exit_code, 0);
  const std::string before = read_all(file("p.tokens"));
  EXPECT_THAT(strata(words).out, HasSubstr("p.tokens is up to date"));
  EXPECT_EQ(read_all(file("p.tokens")), before);
  const ProgramResult refused = strata({"data", "pack", "ask.jsonl", "--out", "chat.jsonl"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--out chat.jsonl exists and is not a packed file"));
}

TEST_F(CliPackE2e, APackedFileTrainsLikeItsSources) {
  ASSERT_EQ(strata({"data", "pack", "ask.jsonl", "--out", "p.tokens"}).exit_code, 0);
  for (const std::string source : {"ask.jsonl", "p.tokens"}) {
    const ProgramResult run =
        strata(tiny("train", {"--out", source + ".run", "train.steps=4", "data.train=" + source,
                              "data.tokenizer=tokenizer.json"}));
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  EXPECT_EQ(digest("p.tokens.run"), digest("ask.jsonl.run"));
  EXPECT_THAT(strata(tiny("train", {"data.train=p.tokens"})).err,
              HasSubstr("p.tokens is a packed file; set data.tokenizer"));
  EXPECT_THAT(strata(tiny("train", {"data.train=p.tokens,train.txt", "data.tokenizer=tokenizer.json"})).err,
              HasSubstr("p.tokens is a packed file among 2 files"));
}

TEST_F(CliPackE2e, MistakesHaveTheirExitCodes) {
  ASSERT_EQ(strata({"data", "pack", "ask.jsonl", "--out", "p.tokens"}).exit_code, 0);
  const auto expect = [&](const Words& words, int code, const std::string& says) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, code) << refused.output();
    EXPECT_THAT(refused.err, HasSubstr(says));
  };
  expect({"data"}, 2, "missing action; known: pack, inspect");
  expect({"data", "pakc"}, 2, "did you mean 'pack'?");
  expect({"data", "pack", "--out", "x"}, 2, "no input: name at least one text or .jsonl file");
  expect({"data", "pack", "ask.jsonl"}, 2, "name the file to write: --out FILE");
  expect({"data", "pack", "gone.jsonl", "--out", "x"}, 2, "gone.jsonl: No such file");
  expect({"data", "pack", "ask.jsonl", "--out", "x", "--seq", "0"}, 2, "--seq");
  expect({"data", "pack", "ask.jsonl", "--out", "gone/x"}, 5, "gone/x");
  expect({"data", "inspect"}, 2, "no input: name data files, a packed file or a configuration");
  expect({"data", "inspect", "gone.tokens"}, 2, "gone.tokens: No such file");
  expect({"data", "inspect", "ask.jsonl", "-t", "none.json"}, 2, "name the model's folder with --model DIR");
  expect({"data", "inspect", "p.tokens", "-t", "gone.json"}, 2, "gone.json: No such file");
  expect({"data", "inspect", "p.tokens", "--sample", "100000"}, 2,
         "--sample: 1 samples from index 100000 were requested, but there are ");
  std::string damaged = read_all(file("p.tokens"));
  damaged[200] ^= 1;
  write("damaged.tokens", damaged);
  expect({"data", "inspect", "damaged.tokens"}, 5, "its tokens are damaged: the checksum differs");
  ASSERT_EQ(strata({"tokenizer", "train", "val.txt", "--vocab", "300", "-o", "other.json"}).exit_code, 0);
  expect({"data", "inspect", "p.tokens", "-t", "other.json"}, 2, "built with tokenizer ");
}

TEST_F(CliPackE2e, AFolderThatIsNotWritableIsAnIoError) {
  must(posix_io().make_dirs(file("closed")));
  ASSERT_EQ(::chmod(file("closed").c_str(), 0555), 0);
  options_.before_exec = obey_permissions;
  const ProgramResult refused = strata({"data", "pack", "ask.jsonl", "--out", "closed/x"});
  EXPECT_EQ(refused.exit_code, 5) << refused.output();
  EXPECT_THAT(refused.err, AllOf(HasSubstr("closed/x"), HasSubstr("Permission denied")));
}

// Each command reports all bad files at once.
TEST_F(CliPackE2e, EveryBadFileIsNamed) {
  write("binary.txt", std::string("PNG\0\x1A\0", 6));
  write("bad.jsonl", "{\"text\": 1}\n");
  const auto expect = [&](const Words& words, const std::string& n) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.output();
    EXPECT_THAT(refused.err, AllOf(HasSubstr(n + " problems"), HasSubstr("gone.txt: No such file"),
                                   HasSubstr("binary.txt: "), HasSubstr("lost.txt: No such file")));
  };
  expect({"data", "pack", "gone.txt", "binary.txt", "bad.jsonl", "ask.jsonl", "lost.txt", "--out", "x"}, "4");
  expect({"tokenizer", "train", "gone.txt", "binary.txt", "train.txt", "lost.txt", "-o", "t.json"}, "3");
  const std::string files = "data.train=gone.txt,binary.txt,bad.jsonl,lost.txt";
  expect(tiny("train", {"--out", "run", files}), "4");
  expect(tiny("train", {"--out", "run", files, "data.tokenizer=tokenizer.json"}), "4");
  expect(tiny("train", {"--out", "run", files, "data.weights=1,1,1,1", "data.tokenizer=tokenizer.json"}),
         "4");
  expect(tiny("train", {"--out", "run", "data.train=gone.txt,binary.txt", "data.val=lost.txt",
                        "data.tokenizer=tokenizer.json"}),
         "3");
}

TEST_F(CliPackE2e, TheExampleQuestionsAreReproducibleAndValidRecords) {
  if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "no /usr/bin/python3";
  const std::string script = STRATA_SOURCE_DIR "/examples/data/make_austen_qa.py";
  for (const std::string name : {"one", "two"})
    ASSERT_EQ(run_program("/usr/bin/python3",
                          {script, "--out", name + ".jsonl", "--val", name + "_val.jsonl"}, options_)
                  .exit_code,
              0);
  EXPECT_EQ(read_all(file("one.jsonl")), read_all(file("two.jsonl")));
  EXPECT_EQ(read_all(file("one_val.jsonl")), read_all(file("two_val.jsonl")));
  EXPECT_THAT(strata({"data", "pack", "one.jsonl", "--out", "one.tokens"}).out,
              HasSubstr("one.jsonl: 600 conversations (messages) read as chats (plain)\n"));
  ASSERT_EQ(run_program("/usr/bin/python3", {script, "--form", "completion", "--out", "c.jsonl"}, options_)
                .exit_code,
            0);
  EXPECT_THAT(strata({"data", "pack", "c.jsonl", "--out", "c.tokens"}).out,
              HasSubstr("c.jsonl: 600 prompt-completion records (prompt, completion)\n"));
}

}  // namespace
}  // namespace strata::test
