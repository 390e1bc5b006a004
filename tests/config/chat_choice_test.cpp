#include <strata/config/chat_choice.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/train_schema.h>
#include <strata/runtime/str.h>
#include <strata/config/load_config.h>
#include <strata/config/train_config.h>
#include <support/memory_io.h>
#include <support/temp_dir.h>

#include <strata/text/tokenizer.h>

namespace strata {
namespace {

using testing::HasSubstr;

struct ChatChoiceTest : testing::Test {
  ChatChoiceTest() {
    io.put(
        "hf/tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"})");
    io.put("bare/tokenizer.json", must(Tokenizer::train({}, 257)).to_json());
  }
  ChatChoice chosen(const std::string& wanted, const std::string& tokenizer) {
    return must(choose_chat(io, wanted, tokenizer));
  }
  std::string written(const ChatChoice& choice) {
    return must(apply_chat_template(*choice.chat, std::vector<ChatMessage>{{"user", "Q"}})).text;
  }
  MemoryIo io;
};

TEST_F(ChatChoiceTest, AutoIsTheTemplateBesideTheTokenizer) {
  for (const char* tokenizer : {"hf", "hf/tokenizer.json"}) {
    const ChatChoice choice = chosen("auto", tokenizer);
    EXPECT_EQ(choice.chat->name(), "own");
    EXPECT_EQ(written(choice), "<s>Q");
    EXPECT_EQ(choice.why, std::string("the chat_template beside ") + tokenizer);
  }
  EXPECT_EQ(written(chosen("own", "hf")), "<s>Q");
}

TEST_F(ChatChoiceTest, WithoutATemplateAutoIsPlainAndSaysWhy) {
  EXPECT_EQ(chosen("auto", "bare/tokenizer.json").chat->name(), "plain");
  EXPECT_EQ(chosen("auto", "bare/tokenizer.json").why,
            "there is no chat_template beside bare/tokenizer.json");
  EXPECT_EQ(chosen("auto", "").why, "a tokenizer trained on data.train has no chat_template");
  // A tokenizer file with another name may be in the folder of another tokenizer, whose files are ignored.
  EXPECT_EQ(chosen("auto", "hf/mine.json").chat->name(), "plain");
  EXPECT_EQ(choose_chat(io, "own", "bare").status().code(), Code::not_found);
}

TEST(ChatOfRunTest, ARunThatIsLoadedHasItsOwnTemplateWhateverItsNameMeansNow) {
  const test::TempDir dir;
  const std::string tokenizer = dir.file("tokenizer.json");
  must(write_text_atomically(posix_io(), tokenizer, must(Tokenizer::train({}, 257)).to_json()));
  must(write_text_atomically(posix_io(), dir.file("chat_template.jinja"), "own {{ messages[0].content }}"));
  const std::string toml = str("[data]\nchat_template = \"chatml\"\ntokenizer = \"", tokenizer, "\"\n");
  for (const char* name : {"config.resolved.toml", "mine.toml"})
    must(write_text_atomically(posix_io(), dir.file(name), toml));
  const auto name_in = [&](const char* file) {
    return must(load_config({.items = {dir.file(file)}})).config.data.chosen_chat.chat->name();
  };
  EXPECT_EQ(name_in("config.resolved.toml"), "own");
  EXPECT_EQ(name_in("mine.toml"), "chatml") << "somebody asks for another template";
}

TEST_F(ChatChoiceTest, ANamedTemplateTakesThePlaceOfTheTokenizers) {
  EXPECT_EQ(written(chosen("plain", "hf")), "User:\nQ\n");
}

TEST_F(ChatChoiceTest, ARunKeepsTheTemplateThatItWasTrainedWith) {
  io.put("run/tokenizer.json", io.get("bare/tokenizer.json"));
  io.put("run/config.resolved.toml", "");
  io.put("run/chat_template.jinja", "{{ eos_token }}{{ messages[0].content }}");
  EXPECT_EQ(written(must(choose_chat(io, "chatml", "run/tokenizer.json", true))), "<|endoftext|>Q");
  EXPECT_EQ(chosen("chatml", "run/tokenizer.json").chat->name(), "chatml")
      << "another run with its tokenizer";
}

TEST_F(ChatChoiceTest, ATemplateThatCannotBeUsedIsAnErrorUnlessAnotherIsNamed) {
  io.put("bare/chat_template.jinja", "{% if %}");
  EXPECT_EQ(chosen("auto", "bare").chat.status().code(), Code::invalid);
  EXPECT_THAT(chosen("auto", "bare").warning(), HasSubstr("line 1: a value is expected"));
  EXPECT_EQ(chosen("llama3", "bare").chat->name(), "llama3");
}

TEST_F(ChatChoiceTest, AWrongNameListsTheKnownOnes) {
  EXPECT_THAT(std::string(choose_chat(io, "vicuna", "hf").status().message()),
              HasSubstr("called 'vicuna'; choose one by name: plain, chatml, qwen3, llama3,"));
}

}  // namespace
}  // namespace strata
