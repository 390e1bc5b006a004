#include <strata/train/chat_choice.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/train/train_config.h>
#include <support/memory_io.h>

namespace strata {
namespace {

using testing::HasSubstr;

struct ChatChoiceTest : testing::Test {
  ChatChoiceTest() {
    io.put("hf/tokenizer_config.json",
           R"({"chat_template": "{{'<|im_start|>system\nBe kind.<|im_end|>\n'}}"})");
    io.put("bare/tokenizer.json", "{}");
  }
  ChatChoice chosen(const std::string& wanted, const std::string& tokenizer) {
    return must(choose_chat(io, wanted, tokenizer));
  }
  MemoryIo io;
};

TEST_F(ChatChoiceTest, AutoIsTheTemplateBesideTheTokenizer) {
  for (const char* tokenizer : {"hf", "hf/tokenizer.json"}) {
    const ChatChoice choice = chosen("auto", tokenizer);
    EXPECT_EQ(choice.chat->format, ChatFormat::chatml);
    EXPECT_EQ(choice.chat->system, "Be kind.");
    EXPECT_EQ(choice.why, std::string("the chat_template beside ") + tokenizer);
  }
}

TEST_F(ChatChoiceTest, WithoutATemplateAutoIsPlainAndSaysWhy) {
  EXPECT_EQ(chosen("auto", "bare/tokenizer.json").chat->format, ChatFormat::plain);
  EXPECT_EQ(chosen("auto", "bare/tokenizer.json").why,
            "there is no chat_template beside bare/tokenizer.json");
  EXPECT_EQ(chosen("auto", "").why, "a tokenizer trained on data.train has no chat_template");
  // A tokenizer file with another name may be in the folder of another tokenizer, whose files are ignored.
  EXPECT_EQ(chosen("auto", "hf/mine.json").chat->format, ChatFormat::plain);
}

TEST_F(ChatChoiceTest, ANamedFormatUsesTheSystemMessageOfTheTokenizersTemplate) {
  EXPECT_EQ(chosen("chatml", "hf").chat->system, "Be kind.");
  EXPECT_EQ(chosen("chatml", "bare").chat->system, "");
  EXPECT_EQ(chosen("plain", "hf").chat->format, ChatFormat::plain);
}

TEST_F(ChatChoiceTest, AnUnknownTemplateIsAnErrorUnlessAFormatIsNamed) {
  io.put("odd/chat_template.jinja", "{{ messages }}");
  EXPECT_EQ(chosen("auto", "odd").chat.status().code(), Code::unsupported);
  EXPECT_EQ(chosen("llama3", "odd").chat->format, ChatFormat::llama3);
}

TEST_F(ChatChoiceTest, AWrongNameListsTheKnownOnes) {
  EXPECT_THAT(std::string(choose_chat(io, "vicuna", "hf").status().message()),
              HasSubstr("called 'vicuna'; choose one by name: plain, chatml, qwen3, llama3,"));
}

TEST_F(ChatChoiceTest, TheSchemaHasTheSameFormatNames) {
  std::string names;
  for (const KeySpec& key : train_schema().keys)
    if (key.section == "data" && key.name == "chat_template") names = key.choices;
  for (std::size_t at = 0; (at = names.find('|', at)) != std::string::npos;) names.replace(at, 1, ", ");
  EXPECT_EQ(names, chat_template_names());
}

}  // namespace
}  // namespace strata
