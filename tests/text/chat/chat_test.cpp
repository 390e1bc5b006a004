// The expected texts are the output of the families' own Jinja templates for the same messages.
#include <strata/text/chat.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/text/tokenizer_config.h>

#include "text/chat/conversations.h"

namespace strata {
namespace {

using namespace test::conversations;
using testing::HasSubstr;

std::string text_of(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                    bool generation = false) {
  return must(apply_chat_template(chat, messages, generation)).text;
}
std::string refusal(const ChatTemplate& chat, const std::vector<ChatMessage>& messages) {
  return std::string(apply_chat_template(chat, messages).status().message());
}

TEST(ChatTest, ChatmlEqualsQwen2sTemplate) {
  EXPECT_EQ(text_of(named("chatml"), kFour),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
            "<|im_start|>assistant\n Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n");
}

TEST(ChatTest, Qwen3KeepsReasoningFromTheLastQuestionOn) {
  EXPECT_EQ(
      text_of(named("qwen3"), kThought),
      "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
      "<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant\n<think>\nalso\n</think>\n\n6<|im_end|>\n");
  EXPECT_EQ(text_of(named("qwen3"), kShort),
            "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nA<|im_end|>\n");
  EXPECT_EQ(
      text_of(named("qwen3"), kFour, true),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
      "<|im_start|>assistant\n Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTest, Llama3TrimsWhatPeopleWrote) {
  EXPECT_EQ(text_of(named("llama3"), kFour, true),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_THAT(text_of(named("llama3"), {{"user", "\u3000\x1c \u00a0x\u2003\t"}}),
              HasSubstr("\n\nx<|eot_id|>"));
}

TEST(ChatTest, Llama31BeginsWithItsDates) {
  const std::string head =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
      "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  EXPECT_THAT(text_of(named("llama3.1"), kFour),
              testing::StartsWith(head + "Be brief.<|eot_id|><|start_header_id|>user"));
  EXPECT_EQ(text_of(named("llama3.1"), kShort),
            head +
                "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>");
}

TEST(ChatTest, Glm4NamesRolesByMarkers) {
  EXPECT_EQ(text_of(named("glm4"), kFour, true),
            "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi <|assistant|>\n Hello<|user|>\nBye<|assistant|>");
}

TEST(ChatTest, MistralPutsQuestionsInBrackets) {
  EXPECT_EQ(text_of(named("mistral"), kThree, true), "<s>[INST] Q [/INST]A</s>[INST] R [/INST]");
}

TEST(ChatTest, GemmaCallsTheAssistantModel) {
  EXPECT_EQ(text_of(named("gemma"), {{"user", " Q "}, {"assistant", "A"}, {"user", "R"}}, true),
            "<bos><start_of_turn>user\nQ<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
            "<start_of_turn>user\nR<end_of_turn>\n<start_of_turn>model\n");
}

TEST(ChatTest, Phi3EndsEveryTurnAndTheText) {
  EXPECT_EQ(text_of(named("phi3"), kFour, true),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nHi <|end|>\n<|assistant|>\n Hello<|end|>\n"
            "<|user|>\nBye<|end|>\n<|assistant|>\n");
  EXPECT_EQ(text_of(named("phi3"), kShort), "<|user|>\nQ<|end|>\n<|assistant|>\nA<|end|>\n<|endoftext|>");
}

TEST(ChatTest, Olmo2NamesRolesInPlainText) {
  EXPECT_EQ(text_of(named("olmo2"), kFour, true),
            "<|endoftext|><|system|>\nBe brief.\n<|user|>\nHi \n<|assistant|>\n Hello<|endoftext|>\n"
            "<|user|>\nBye\n<|assistant|>\n");
  EXPECT_EQ(text_of(named("olmo2"), kShort), "<|endoftext|><|user|>\nQ\n<|assistant|>\nA<|endoftext|>");
}

TEST(ChatTest, AnOrderThatTheTemplateRefusesIsRefused) {
  for (const char* name : {"mistral", "gemma"}) {
    EXPECT_THAT(
        refusal(named(name), kFour),
        HasSubstr("the template says: message 1 of 4 has the role 'system', but the roles must alternate"));
    EXPECT_THAT(refusal(named(name), {{"user", "a"}, {"user", "b"}}),
                HasSubstr("message 2 of 2 has the role 'user'"));
  }
}

TEST(ChatTest, PlainNamesRolesByWords) {
  EXPECT_EQ(text_of(named("plain"), kFour, true),
            "System:\nBe brief.\nUser:\nHi \nAssistant:\n Hello\nUser:\nBye\nAssistant:\n");
}

TEST(ChatTest, AnEmptyConversationOrAnotherRoleIsRefused) {
  EXPECT_EQ(apply_chat_template(named("chatml"), {}).status().code(), Code::invalid);
  EXPECT_EQ(refusal(named("chatml"), {{"bot", "x"}}),
            "message 1 of 1 has the role 'bot'; the known roles are system, user, assistant, tool");
}

TEST(ChatTest, AMessageThatTheTemplateLeavesOutIsRefused) {
  const ChatTemplate deaf =
      own("{% for m in messages %}{% if m.role != 'system' %}[{{ m.content }}]{% endif %}{% endfor %}");
  EXPECT_EQ(refusal(deaf, kFour), "message 1 of 4 has the role 'system', which the chat template leaves out");
  EXPECT_EQ(text_of(deaf, kShort), "[Q][A]");
  const ChatTemplate questions =
      own("{% for m in messages if m.role == 'user' %}[{{ m.content }}]{% endfor %}");
  EXPECT_EQ(refusal(questions, kShort),
            "message 2 of 2 has the role 'assistant', which the chat template leaves out");
  EXPECT_EQ(text_of(questions, kShort, true), "[Q]") << "an earlier answer may be dropped";
}

TEST(ChatTest, ATemplateIsNamedAfterTheBuiltInOneThatWritesTheSame) {
  for (const char* name :
       {"plain", "chatml", "qwen3", "llama3", "llama3.1", "glm4", "mistral", "gemma", "phi3", "olmo2"})
    EXPECT_EQ(own(named(name).jinja()).name(), name);
  EXPECT_EQ(
      own("{%- for m in messages -%}\n{{ '<|im_start|>' ~ m.role }}\n{{ m.content }}{{ '<|im_end|>' }}\n"
          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
          .name(),
      "chatml");
  EXPECT_EQ(
      own("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
          .name(),
      "own");
}

TEST(ChatTest, ATemplatePrintsTheTokensOfTheTokenizer) {
  const ChatTemplate chat = own("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}",
                                {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_EQ(text_of(chat, {{"user", "Q"}}), "<s>Q</s>");
  EXPECT_NE(chat.digest(), own(chat.jinja(), {{"bos_token", "<b>"}, {"eos_token", "</s>"}}).digest());
}

TEST(ChatTest, TheDayIsThatOfLlamasTemplatesUnlessAnotherIsGiven) {
  const ChatTemplate chat = own("{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}");
  EXPECT_EQ(text_of(chat, {{"user", "Q"}}), "26 Jul 2024Q");
  std::tm day{};
  day.tm_year = 130;
  day.tm_mday = 2;
  EXPECT_EQ(text_of(chat.with_date(day), {{"user", "Q"}}), "02 Jan 2030Q");
}

TEST(ChatTest, ArgumentsAreVariablesOfTheTemplate) {
  const ChatTemplate chat =
      own("{{ messages[0].content }}{% if enable_thinking is defined and enable_thinking is false %}<no>{% "
          "endif %}"
          "{% for tool in extra or [] %}[{{ tool.name }}]{% endfor %}");
  const std::vector<ChatMessage> asked = {{"user", "Q"}};
  EXPECT_EQ(text_of(chat, asked, true), "Q");
  const ChatTemplate silent = must(chat.with_arguments(R"({"enable_thinking": false})"));
  EXPECT_EQ(text_of(silent, asked, true), "Q<no>");
  EXPECT_NE(silent.digest(), chat.digest());
  const ChatTemplate both = must(silent.with_arguments(R"({"extra": [{"name": "f"}]})"));
  EXPECT_EQ(text_of(both, asked, true), "Q<no>[f]") << "earlier arguments stay";
  EXPECT_EQ(text_of(must(both.with_arguments(R"({"enable_thinking": true})")), asked, true), "Q[f]");
}

TEST(ChatTest, Qwen3AnswersAtOnceIfItShallNotThink) {
  const ChatTemplate chat = must(named("qwen3").with_arguments(R"({"enable_thinking": false})"));
  EXPECT_EQ(text_of(chat, {{"user", "Q"}}, true),
            "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(ChatTest, ArgumentsCannotSayWhatTheConversationSays) {
  const ChatTemplate chat = own("{{ bos_token }}", {{"bos_token", "<s>"}});
  const auto refused = [&](const std::string& json) {
    return std::string(chat.with_arguments(json).status().message());
  };
  EXPECT_THAT(refused(R"({"messages": []})"), HasSubstr("'messages' is set by the conversation"));
  EXPECT_THAT(refused(R"({"bos_token": "x"})"), HasSubstr("'bos_token' is set by"));
  EXPECT_THAT(refused("[1]"), HasSubstr("[1] is no JSON object"));
  EXPECT_THAT(refused("{"), testing::Not(HasSubstr("json.exception")));
}

TEST(ChatTest, SpecialTokensInArgumentsAreText) {
  const ChatTemplate chat =
      must(own("<s>{{ name }}{{ messages[0].content }}").with_arguments(R"({"name": "<s>"})"));
  const ChatText text = must(apply_chat_template(chat, kShort, true));
  EXPECT_EQ(text.text, "<s><s>Q");
  ASSERT_EQ(text.of_template.size(), 1u);
  EXPECT_EQ(text.of_template[0].end, 3u);
}

TEST(ChatTest, ATemplateThatIsNoJinjaIsRefusedWithTheLine) {
  EXPECT_EQ(ChatTemplate::parse("a\n{% if %}", {}).status().message(),
            "the chat template: line 2: a value is expected, not '%}'");
  EXPECT_EQ(ChatTemplate::parse("{% extends 'x' %}", {}).status().code(), Code::unsupported);
}

TEST(ChatTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const std::string message(ChatTemplate::named("vicuna").status().message());
  EXPECT_THAT(message, HasSubstr("called 'vicuna'"));
  EXPECT_THAT(message, HasSubstr("plain, chatml, qwen3, llama3, llama3.1, glm4"));
  EXPECT_THAT(std::string(ChatTemplate::named("chatlm").status().message()),
              HasSubstr("did you mean 'chatml'?"));
}

TEST(ChatTest, ThePublishedQwen3WritesWhatTheBuiltInDoes) {
  const std::string folder = std::string(STRATA_TEST_DATA) + "/qwen3";
  if (!posix_io().exists(folder)) GTEST_SKIP() << "STRATA_TEST_DATA names no folder with qwen3";
  const TokenizerConfig config = must(load_tokenizer_config(posix_io(), folder));
  EXPECT_EQ(own(config.chat_template, special_words(config)).name(), "qwen3");
}

TEST(ChatTest, AMessageThatIsOnlyNamedLikeCallsHasNone) {
  const ChatMessage named_so{"tool", "r", R"({"name": "tool_calls"})"};
  EXPECT_EQ(text_of(named("chatml"), {{"user", "q"}, named_so}, true),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>tool\nr<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace strata
