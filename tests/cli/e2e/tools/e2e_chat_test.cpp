// Conversations with a model whose lines come from a file.
#include <fcntl.h>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliTalkE2e : public CliE2e {
 protected:
  void SetUp() override {
    ASSERT_EQ(strata(tiny("train", {"--out", "run", "train.steps=4", "optim.warmup=0", "model.seq=256",
                                    "memory.device=8MiB"}))
                  .exit_code,
              0);
  }
  ProgramResult chat(const std::string& lines, const Words& words = {}) {
    write("lines.txt", lines);
    ProgramOptions options = options_;
    options.before_exec = [path = file("lines.txt")] {
      return ::dup2(::open(path.c_str(), O_RDONLY), 0) == 0;
    };
    Words all = {"chat", "run", "--tokens", "5"};
    all.insert(all.end(), words.begin(), words.end());
    return strata(all, options);
  }
  nlohmann::json saved(const std::string& name) const { return nlohmann::json::parse(read_all(file(name))); }
};

TEST_F(CliTalkE2e, AConversationIsSavedAsALineThatCanBeTrainedOn) {
  const ProgramResult said = chat("Hello there\nAnd you?\n/save talk.jsonl\n", {"--system", "Be brief"});
  ASSERT_EQ(said.exit_code, 0) << said.output();
  const auto messages = saved("talk.jsonl")["messages"];
  ASSERT_EQ(messages.size(), 5u);
  const char* const roles[] = {"system", "user", "assistant", "user", "assistant"};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(messages[i]["role"], roles[i]);
  EXPECT_EQ(messages[3]["content"], "And you?");
  EXPECT_THAT(said.out, HasSubstr(messages[2]["content"].get<std::string>()));
}

TEST_F(CliTalkE2e, AnAnswerIsThatOfGenerateWhateverIsInTheCacheAlready) {
  ASSERT_EQ(chat("Hello there\nAnd you?\n/save talk.jsonl\n", {"--temperature", "0"}).exit_code, 0);
  auto messages = saved("talk.jsonl")["messages"];
  const std::string answer = messages.back()["content"];
  messages.erase(messages.size() - 1);
  write("prompt.jsonl", nlohmann::json{{"messages", messages}}.dump() + "\n");
  const ProgramResult alone = strata(
      {"generate", "run", "--prompts", "prompt.jsonl", "--tokens", "5", "--temperature", "0", "--json"});
  ASSERT_EQ(alone.exit_code, 0) << alone.output();
  EXPECT_EQ(nlohmann::json::parse(alone.out)["text"], answer);
}

TEST_F(CliTalkE2e, AnAnswerThatIsCutSaysSo) {
  EXPECT_THAT(chat("Hello\n").err, HasSubstr("the answer is cut after 5 tokens; --tokens N allows more"));
}

TEST_F(CliTalkE2e, CommandsBeginAnewAndMistakesDoNotEndIt) {
  const ProgramResult said =
      chat("Hello\n/reset\n/what\n/save\nAgain\n/retry\n/save talk.jsonl\n/quit\nnever read\n");
  ASSERT_EQ(said.exit_code, 0) << said.output();
  EXPECT_THAT(said.err, AllOf(HasSubstr("unknown command /what"), HasSubstr("/save needs the name")));
  const auto messages = saved("talk.jsonl")["messages"];
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0]["content"], "Again");
}

TEST_F(CliTalkE2e, AFullContextSaysHowToGoOn) {
  const ProgramResult said =
      chat("Hello there, it is a truth universally acknowledged\n", {"--context", "16"});
  ASSERT_EQ(said.exit_code, 0) << said.output();
  EXPECT_THAT(said.err, AllOf(HasSubstr("its context is 16"), HasSubstr("/reset")));
}

}  // namespace
}  // namespace strata::test
