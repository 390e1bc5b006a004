// Generates text from a run and from the folder that it was exported to.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CliGenerateE2e : public CliE2e {
 protected:
  void make_run(const Words& more = {}) {
    Words words = {"--out", "run", "train.steps=2"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult trained = strata(tiny("train", words));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  ProgramResult generate(const Words& more, const std::string& from = "run") const {
    Words words = {"generate", from};
    words.insert(words.end(), more.begin(), more.end());
    return strata(words);
  }
  std::vector<nlohmann::json> lines(const Words& more) const {
    const ProgramResult result = generate(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<nlohmann::json> all;
    for (std::size_t at = 0; at < result.out.size();) {
      const std::size_t end = result.out.find('\n', at);
      all.push_back(nlohmann::json::parse(result.out.substr(at, end - at)));
      at = end + 1;
    }
    return all;
  }
};

TEST_F(CliGenerateE2e, TheTextIsAFunctionOfItsSeed) {
  make_run();
  const auto text = [&](const std::string& seed) {
    return generate({"--prompt", "Elizabeth", "--tokens", "12", "--seed", seed});
  };
  const ProgramResult first = text("1");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, StartsWith("Elizabeth"));
  EXPECT_EQ(text("1").out, first.out);
  EXPECT_NE(text("2").out, first.out);
  EXPECT_THAT(first.err, AllOf(HasSubstr(" prompt tokens in "), HasSubstr("12 tokens generated"),
                               HasSubstr("tokens/s")));
}

TEST_F(CliGenerateE2e, APromptIsAnArgumentOrWhatIsWrittenToTheInput) {
  make_run();
  const std::string expected = generate({"--prompt", "It is x = y", "--tokens", "6"}).out;
  EXPECT_EQ(generate({"It is x = y", "--tokens", "6", "train.dtype=f32"}).out, expected);
  write("prompt.txt", "It is x = y\n");
  ProgramOptions piped = options_;
  piped.before_exec = [path = file("prompt.txt")] { return ::dup2(::open(path.c_str(), O_RDONLY), 0) == 0; };
  EXPECT_EQ(strata({"generate", "run", "--tokens", "6"}, piped).out, expected);
  EXPECT_EQ(strata({"generate", "run", "-", "--tokens", "6"}, piped).out, expected);
  EXPECT_THAT(generate({"prompt.txt"}).err, HasSubstr("--prompts prompt.txt continues each line of a file"));
}

TEST_F(CliGenerateE2e, WithoutAPromptTheMessageSaysWhereItGoes) {
  make_run();
  ProgramOptions silent = options_;
  silent.before_exec = [] { return ::dup2(::open("/dev/null", O_RDONLY), 0) == 0; };
  const ProgramResult refused = strata({"generate", "run"}, silent);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("no prompt is given: add a text in quotes behind the model"));
}

TEST_F(CliGenerateE2e, AStreamedTextEqualsTheTextPrintedAtOnce) {
  make_run();
  const Words words = {"--prompt", "She was", "--tokens", "24", "--temperature", "1", "--top-k", "0"};
  Words whole = words;
  whole.push_back("--no-stream");
  const ProgramResult streamed = generate(words), printed = generate(whole);
  EXPECT_EQ(streamed.exit_code, 0) << streamed.err;
  EXPECT_EQ(streamed.out, printed.out);
  EXPECT_NO_THROW((void)nlohmann::json(streamed.out).dump()) << "it is UTF-8";
}

TEST_F(CliGenerateE2e, StreamingPrintsTextBeforeTheEnd) {
  make_run({"model.seq=2048", "train.micro_batch=1", "memory.device=unlimited", "memory.pinned=unlimited"});
  const ProgramResult begin = generate({"--prompt", "Darcy", "--tokens", "8", "--top-k", "0"});
  RunningProgram program(
      STRATA_PROGRAM, {"generate", "run", "--prompt", "Darcy", "--tokens", "2000", "--top-k", "0"}, options_);
  EXPECT_TRUE(program.wait_for(begin.out.substr(0, 6))) << "the prompt, and what is drawn first";
  program.send(SIGKILL);
  EXPECT_EQ(program.finish().signal, SIGKILL) << "it had not ended when the text was there";
}

TEST_F(CliGenerateE2e, AFullContextEndsATextAndIsReported) {
  make_run();
  const ProgramResult full = generate({"--prompt", "It is a truth", "--max-tokens", "1000"});
  EXPECT_EQ(full.exit_code, 0) << full.err;
  EXPECT_THAT(full.err, HasSubstr("because its context of 32 is full"));
  const std::string prompt = read_all(file("train.txt")).substr(0, 600);
  const ProgramResult refused = generate({"--prompt", prompt, "--tokens", "3"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("prompt 1 has "), HasSubstr("the model supports 32 positions: shorten it")));
}

TEST_F(CliGenerateE2e, OtherPromptsDoNotChangeAText) {
  make_run();
  write("three.txt", "Elizabeth\nIt is a truth\n\nMr. Darcy\n");
  const Words common = {"--json", "--tokens", "10", "--temperature", "1"};
  const auto with = [&](const Words& words) {
    Words all = common;
    all.insert(all.end(), words.begin(), words.end());
    return lines(all);
  };
  const auto together = with({"--prompts", "three.txt"});
  ASSERT_EQ(together.size(), 3u);
  EXPECT_EQ(together[2]["prompt"], "Mr. Darcy");
  EXPECT_EQ(together[2]["index"], 2);
  EXPECT_EQ(together[2]["n_tokens"], 10);
  EXPECT_EQ(together[2]["finish_reason"], "max_tokens");
  EXPECT_EQ(with({"--prompts", "three.txt", "--batch", "1"}), together);
  EXPECT_EQ(with({"--prompts", "three.txt", "--batch", "2"}), together);
  EXPECT_EQ(with({"--prompt", "Elizabeth", "--prompt", "It is a truth"})[1]["text"], together[1]["text"]);
  const auto twice = with({"--prompt", "Elizabeth", "--prompt", "Elizabeth"});
  EXPECT_NE(twice[0]["text"], twice[1]["text"]) << "each has random numbers of its own";
}

TEST_F(CliGenerateE2e, BudgetsDoNotChangeAText) {
  make_run({"model.family=qwen3", "model.kv_heads=2"});
  const Words words = {"--prompt", "It is a truth", "--tokens", "20", "--temperature", "1"};
  Words tight = words, disk = words;
  for (const char* word : {"offload.policy=pinned", "memory.device=600KiB", "memory.pinned=4MiB"})
    tight.push_back(word);
  for (const char* word : {"offload.policy=nvme", "memory.nvme=64MiB"}) disk.push_back(word);
  const ProgramResult first = generate(words);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  for (const Words& other : {tight, disk}) {
    const ProgramResult result = generate(other);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, first.out);
  }
}

TEST_F(CliGenerateE2e, ACacheThatDoesNotFitIsRefusedBeforeTheStartWithTheShortfall) {
  make_run({"model.seq=512", "memory.device=unlimited", "memory.pinned=unlimited"});
  const ProgramResult refused = generate({"It is", "--tokens", "500", "memory.device=300KiB"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("the keys and values of 1 sequence of "), HasSubstr("shortfall"),
                                 HasSubstr("it fits with: memory.device=")));
  EXPECT_EQ(refused.out, "");
}

TEST_F(CliGenerateE2e, ConversationsUseTheTemplateOfTheTrainingData) {
  make_run();
  write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Who?"}]})"
                      "\n"
                      R"({"prompt": "User:\nWho?\nAssistant:\n", "note": 1})"
                      "\n");
  const auto both = lines({"--prompts", "chat.jsonl", "--json", "--tokens", "8", "--temperature", "0"});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0]["messages"][0]["content"], "Who?");
  EXPECT_EQ(both[0]["text"], both[1]["text"]);
  EXPECT_EQ(both[0]["n_prompt_tokens"], both[1]["n_prompt_tokens"]);
  EXPECT_THAT(generate({"--prompts", "chat.jsonl", "--tokens", "1"}).err,
              HasSubstr("chat.jsonl: 'note' of 1 record is ignored"));
}

TEST_F(CliGenerateE2e, StopTokensOfAFolderEndItsTexts) {
  make_run();
  ASSERT_EQ(strata({"export", "run", "--out", "hf"}).exit_code, 0);
  const Words words = {"--prompt", "Elizabeth", "--tokens", "9", "--temperature", "0", "--json"};
  const auto text = nlohmann::json::parse(generate(words, "hf").out);
  ASSERT_EQ(text["n_tokens"], 9);
  // From now on every token id ends a text.
  std::string all;
  for (int id = 0; id < 512; ++id) all += str(id > 0 ? ", " : "", id);
  write("hf/generation_config.json", str("{\"eos_token_id\": [", all, "]}"));
  const auto ended = nlohmann::json::parse(generate(words, "hf").out);
  EXPECT_EQ(ended["n_tokens"], 0);
  EXPECT_EQ(ended["text"], "");
  EXPECT_EQ(ended["finish_reason"], "end_of_text");
}

TEST_F(CliGenerateE2e, MistakesAreReportedWithAHint) {
  make_run();
  const auto refusal = [&](const Words& words, int code = 2) {
    const ProgramResult result = generate(words);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(refusal({"--prompt", ""}), HasSubstr("a prompt is empty"));
  EXPECT_THAT(refusal({"--prompt", "a", "--prompt", "b", "--stream"}), HasSubstr("one prompt, not 2"));
  EXPECT_THAT(refusal({"--prompt", "a", "--stream", "--json"}), HasSubstr("without --json"));
  EXPECT_THAT(refusal({"--top-p", "0"}), HasSubstr("top-p is 0; it must be above 0 and at most 1"));
  EXPECT_THAT(refusal({"--prompt", "a", "--prompts", "b"}), HasSubstr("--prompts"));
  EXPECT_THAT(refusal({"--batch", "0"}), HasSubstr("--batch"));
  EXPECT_THAT(refusal({"--prompt", "a", "train.dtype=bf17"}),  // not a second prompt
              HasSubstr("argument train.dtype=bf17"));
  write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  EXPECT_THAT(refusal({"--prompts", "bad.jsonl"}),
              HasSubstr("bad.jsonl: line 2: it has none of 'prompt', 'messages', "));
  write("none.txt", "\n");
  EXPECT_THAT(refusal({"--prompts", "none.txt"}), HasSubstr("none.txt has no prompts"));
  write("role.jsonl", R"({"messages": [{"role": "narrator", "content": "x"}]})");
  EXPECT_THAT(refusal({"--prompts", "role.jsonl"}), HasSubstr("'role' is 'narrator'"));
}

// A run that was trained in bf16, and its folder; the dtype in which the run was trained does not matter.
TEST_F(CliGenerateE2e, A16BitDtypeIsChosenByAnArgumentAndTakesHalfTheMemory) {
  make_run();
  ASSERT_EQ(strata({"export", "run", "--out", "hf"}).exit_code, 0);
  const Words words = {"--prompt", "Elizabeth", "--tokens", "9", "--temperature", "0", "--json"};
  for (const std::string from : {"run", "hf"}) {
    const ProgramResult f32 = generate(words, from);
    EXPECT_THAT(f32.err, HasSubstr("tokens/s, in f32"));
    for (const std::string dtype : {"bf16", "f16"}) {
      Words in_dtype = words;
      in_dtype.insert(in_dtype.end(), {"train.dtype=" + dtype, "cpu.bf16_matmul=widened"});
      const ProgramResult result = generate(in_dtype, from);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.err, HasSubstr("tokens/s, in " + dtype));
      in_dtype.insert(in_dtype.end(), {"offload.policy=pinned", "memory.device=1MiB"});
      EXPECT_EQ(generate(in_dtype, from).out, result.out) << "placement";
      // The bytes of f32 do not fit where those of 16 bits do.
      for (const bool fits : {true, false}) {
        Words small = words;
        if (fits) small.push_back("train.dtype=" + dtype);
        small.insert(small.end(),
                     {"memory.device=128KiB", "memory.pinned=800KiB", "cpu.bf16_matmul=widened"});
        EXPECT_EQ(generate(small, from).exit_code == 0, fits) << dtype;
      }
    }
  }
}

TEST_F(CliGenerateE2e, AnOutputThatCannotBeWrittenIsAnError) {
  make_run();
  ProgramOptions full = options_;
  full.out = ProgramOptions::Out::full;
  const ProgramResult result = strata({"generate", "run", "It is", "--tokens", "5"}, full);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the output could not be written"), Not(HasSubstr("tokens/s"))));
}

TEST_F(CliGenerateE2e, GenerateNeedsACheckpoint) {
  EXPECT_THAT(strata({"generate", "nowhere"}).err, HasSubstr("nowhere does not exist"));
  EXPECT_EQ(strata({"generate", "nowhere"}).exit_code, 2);
  make_run();
  must(posix_io().remove_all(file("run/checkpoints")));
  for (const Words& words :
       {Words{"generate", "run"}, Words{"eval", "run"}, Words{"export", "run", "--out", "hf"}}) {
    const ProgramResult refused = strata(words);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("run has no checkpoint yet in run/checkpoints"),
                                   HasSubstr("strata train --resume run")));
  }
}

}  // namespace
}  // namespace strata::test
