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
  ProgramResult chat(const std::string& lines, const Words& words = {}, const std::string& model = "run") {
    write("lines.txt", lines);
    ProgramOptions options = options_;
    options.before_exec = [path = file("lines.txt")] {
      return ::dup2(::open(path.c_str(), O_RDONLY), 0) == 0;
    };
    Words all = {"chat", model};
    all.insert(all.end(), words.begin(), words.end());
    if (std::find(words.begin(), words.end(), "--tokens") == words.end())
      all.insert(all.end(), {"--tokens", "5"});
    return strata(all, options);
  }
  /// The text that generate writes behind the first `n` messages of a conversation.
  std::string generated(nlohmann::json messages, std::size_t n, const std::string& model = "run") {
    while (messages.size() > n) messages.erase(messages.size() - 1);
    write("prompt.jsonl", nlohmann::json{{"messages", messages}}.dump() + "\n");
    const ProgramResult alone = strata(
        {"generate", model, "--prompts", "prompt.jsonl", "--tokens", "5", "--temperature", "0", "--json"});
    EXPECT_EQ(alone.exit_code, 0) << alone.output();
    return nlohmann::json::parse(alone.out)["text"];
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
  const auto messages = saved("talk.jsonl")["messages"];
  EXPECT_EQ(generated(messages, 3), messages[3]["content"]);
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

// The prompt asks for an answer behind words that later turns do not have, so each turn goes back before the
// last answer, and /retry does, too.
class CliHybridTalkE2e : public CliTalkE2e, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    for (const Words& words :
         {tiny("train", {"--out", "run", "train.steps=30", "optim.warmup=0", "optim.lr=1e-2", "model.seq=256",
                         "train.micro_batch=1", "memory.device=64MiB", "memory.pinned=64MiB",
                         str("model.family=", GetParam()), "model.layers=4"}),
          Words{"export", "run", "--out", "model"}}) {
      const ProgramResult made = strata(words);
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
    const char* const text =
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' / ' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: (without a thought) ' }}{% endif %}";
    write("model/tokenizer_config.json", nlohmann::json{{"chat_template", text}}.dump());
  }
};

TEST_P(CliHybridTalkE2e, AnswersAreThoseOfGenerateThoughTheTemplateChangesTheirHistory) {
  const Words sampled = {"--temperature", "1", "--top-k", "0", "--tokens", "30"};
  const ProgramResult said =
      chat("Hello there\nAnd you?\n/retry\nWhat was that?\n/save talk.jsonl\n", sampled, "model");
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const auto messages = saved("talk.jsonl")["messages"];
  ASSERT_EQ(messages.size(), 6u);
  // Behind `n` messages chat draws the random numbers of prompt `n`, and since /retry those of the next seed.
  std::string prompts;
  for (std::size_t n = 0; n < 6; ++n) {
    auto before = messages;
    while (before.size() > std::max<std::size_t>(n, 1)) before.erase(before.size() - 1);
    prompts += nlohmann::json{{"messages", n % 2 == 1 ? before : nlohmann::json{messages[0]}}}.dump() + "\n";
  }
  write("prompts.jsonl", prompts);
  for (const auto& [seed, answers] :
       {std::pair<const char*, std::vector<std::size_t>>{"1", {1}}, {"2", {3, 5}}}) {
    Words words = {"generate", "model", "--prompts", "prompts.jsonl", "--seed", seed, "--json"};
    words.insert(words.end(), sampled.begin(), sampled.end());
    const ProgramResult done = strata(words);
    ASSERT_EQ(done.exit_code, 0) << done.err;
    std::vector<std::string> texts;
    for (std::size_t at = 0, end = 0; at < done.out.size(); at = end + 1) {
      end = std::min(done.out.find('\n', at), done.out.size());
      texts.push_back(nlohmann::json::parse(done.out.substr(at, end - at))["text"]);
    }
    ASSERT_EQ(texts.size(), 6u);
    for (const std::size_t n : answers) EXPECT_EQ(messages[n]["content"], texts[n]) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CliHybridTalkE2e,
                         ::testing::Values("qwen3_5_text", "granitemoehybrid", "lfm2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace strata::test
