// The expected texts are the output of the families' own Jinja templates for the same messages.
#include <strata/model/chat.h>

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/tokenizer_config.h>

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<ChatMessage> kFour = {
    {"system", "Be brief."}, {"user", "Hi "}, {"assistant", " Hello"}, {"user", "Bye"}};
const std::vector<ChatMessage> kThought = {{"user", "2+2?"},
                                           {"assistant", "<think>\neasy\n</think>\n\n4"},
                                           {"user", "3+3?"},
                                           {"assistant", "<think>\nalso\n</think>\n\n\n6"}};
const std::vector<ChatMessage> kThree = {{"user", "Q"}, {"assistant", "A"}, {"user", "R"}};
const std::vector<ChatMessage> kShort = {{"user", "Q"}, {"assistant", "A"}};

ChatTemplate named(const std::string& name) { return must(ChatTemplate::named(name)); }
ChatTemplate own(const std::string& jinja, const SpecialWords& words = {}) {
  return must(ChatTemplate::parse(jinja, words));
}
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
        HasSubstr("the template says: message 0 has the role 'system', but the roles must alternate"));
    EXPECT_THAT(refusal(named(name), {{"user", "a"}, {"user", "b"}}),
                HasSubstr("message 1 has the role 'user'"));
  }
}

TEST(ChatTest, PlainNamesRolesByWords) {
  EXPECT_EQ(text_of(named("plain"), kFour, true),
            "System:\nBe brief.\nUser:\nHi \nAssistant:\n Hello\nUser:\nBye\nAssistant:\n");
}

TEST(ChatTest, AnEmptyConversationOrAnotherRoleIsRefused) {
  EXPECT_EQ(apply_chat_template(named("chatml"), {}).status().code(), Code::invalid);
  EXPECT_EQ(refusal(named("chatml"), {{"bot", "x"}}),
            "message 0 has the role 'bot'; the known roles are system, user, assistant, tool");
}

TEST(ChatTest, AMessageThatTheTemplateLeavesOutIsRefused) {
  const ChatTemplate deaf =
      own("{% for m in messages %}{% if m.role != 'system' %}[{{ m.content }}]{% endif %}{% endfor %}");
  EXPECT_EQ(refusal(deaf, kFour), "message 0 has the role 'system', which the chat template leaves out");
  EXPECT_EQ(text_of(deaf, kShort), "[Q][A]");
  const ChatTemplate questions =
      own("{% for m in messages if m.role == 'user' %}[{{ m.content }}]{% endfor %}");
  EXPECT_EQ(refusal(questions, kShort),
            "message 1 has the role 'assistant', which the chat template leaves out");
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

/// A tokenizer whose first 256 ids are the bytes, followed by "\n\n" and special tokens.
Tokenizer bytes_and(const std::vector<std::string>& special, bool nfc = false, bool takes_spaces = false) {
  TokenizerSpec spec;
  for (int b = 0; b < 256; ++b) spec.tokens.emplace_back(1, static_cast<char>(b));
  spec.tokens.emplace_back("\n\n");
  spec.merges = {{'\n', '\n', 0}};
  for (const std::string& token : special) {
    spec.added.push_back(
        {.id = static_cast<std::int32_t>(spec.tokens.size()), .content = token, .rstrip = takes_spaces});
    spec.tokens.push_back(token);
  }
  spec.split = SplitRule::qwen2;
  spec.nfc = nfc;
  return must(Tokenizer::create(spec));
}
Tokenizer chatml_tokenizer(bool nfc = false) { return bytes_and({"<|im_start|>", "<|im_end|>"}, nfc); }

/// What the assistant writes of a conversation, answer by answer.
std::vector<std::string> answers_in(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                    const std::vector<ChatMessage>& messages) {
  const ChatTokens tokens = must(encode_chat(tokenizer, must(apply_chat_template(chat, messages))));
  std::vector<std::string> out;
  for (const ChatRange& range : tokens.answers) {
    out.push_back(
        must(tokenizer.decode(std::span(tokens.ids).subspan(range.begin, range.end - range.begin))));
    for (std::size_t i = range.begin; i < range.end; ++i) EXPECT_TRUE(tokens.loss_mask[i]);
  }
  std::size_t in_loss = 0, in_answers = 0;
  for (const bool flag : tokens.loss_mask) in_loss += flag ? 1 : 0;
  for (const ChatRange& range : tokens.answers) in_answers += range.end - range.begin;
  EXPECT_EQ(in_loss, in_answers);
  return out;
}

TEST(ChatTokensTest, AnAnswerEndsWithTheMarkerOfTheTurn) {
  const Tokenizer chatml = chatml_tokenizer();
  EXPECT_THAT(answers_in(chatml, named("chatml"), kFour), ElementsAre(" Hello<|im_end|>"));
  EXPECT_THAT(answers_in(chatml, named("qwen3"), kThought),
              ElementsAre("4<|im_end|>", "<think>\nalso\n</think>\n\n6<|im_end|>"));
  const Tokenizer llama =
      bytes_and({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  EXPECT_THAT(answers_in(llama, named("llama3.1"), kFour), ElementsAre("Hello<|eot_id|>"));
  EXPECT_THAT(answers_in(bytes_and({"<s>", "</s>"}), named("mistral"), kThree), ElementsAre("A</s>"));
  EXPECT_THAT(answers_in(bytes_and({"<|endoftext|>"}), named("olmo2"), kThree),
              ElementsAre("A<|endoftext|>"));
}

TEST(ChatTokensTest, WithoutAMarkerOfItsOwnAnAnswerEndsWithTheOneOfTheNextTurn) {
  const Tokenizer glm = bytes_and({"[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"});
  EXPECT_THAT(answers_in(glm, named("glm4"), kFour), ElementsAre("\n Hello<|user|>"));
  EXPECT_THAT(answers_in(glm, named("glm4"), kShort), ElementsAre("\nA"));
  EXPECT_THAT(answers_in(chatml_tokenizer(), named("plain"), kThree), ElementsAre("A\n"));
}

TEST(ChatTokensTest, CallsAndTheTokensThatCloseThemAreTheAnswer) {
  const Tokenizer tokenizer = bytes_and({"<|im_start|>", "<|im_end|>", "<call>", "</call>"});
  const ChatTemplate chat =
      own("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}"
          "<call>{{ c.function.name }}</call>{% endfor %}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const std::string calls =
      R"({"tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "<|im_end|>"}}]})";
  const std::vector<ChatMessage> said = {
      {"user", "Q"}, {"assistant", "", calls}, {"tool", "T"}, {"assistant", "A"}};
  EXPECT_THAT(answers_in(tokenizer, chat, said),
              ElementsAre("<call>f</call><call><|im_end|></call><|im_end|>", "A<|im_end|>"));
}

TEST(ChatTokensTest, AnAnswerThatIsNotLearnedEndsAsOthersAndIsOutsideTheLoss) {
  const Tokenizer tokenizer = chatml_tokenizer();
  std::vector<ChatMessage> said = {{"user", "Q"}, {"assistant", "A"}, {"user", "R"}, {"assistant", "B"}};
  const ChatTokens all = must(encode_chat(tokenizer, must(apply_chat_template(named("chatml"), said))));
  said[1].is_learned = false;
  const ChatTokens last = must(encode_chat(tokenizer, must(apply_chat_template(named("chatml"), said))));
  EXPECT_EQ(last.ids, all.ids);
  EXPECT_EQ(last.ends, all.ends);
  EXPECT_EQ(std::count(all.loss_mask.begin(), all.loss_mask.end(), true), 4);
  EXPECT_EQ(std::count(last.loss_mask.begin(), last.loss_mask.end(), true), 2);
}

TEST(ChatTokensTest, AnEmptyAnswerIsItsEnd) {
  EXPECT_THAT(answers_in(chatml_tokenizer(), named("chatml"), {{"user", "Q"}, {"assistant", ""}}),
              ElementsAre("<|im_end|>"));
}

TEST(ChatTokensTest, AnAnswerThatTheTemplateBeginsIsWholeWhereTheModelGoesOn) {
  const ChatTemplate thinks =
      own("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{{ "
          "'<think>\n\n</think>\n\n' }}"
          "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}{{ "
          "'<|im_start|>assistant\n"
          "<think>\n' }}{% endif %}");
  EXPECT_THAT(answers_in(chatml_tokenizer(), thinks, kThree), ElementsAre("</think>\n\nA<|im_end|>"));
}

TEST(ChatTokensTest, EqualThoseOfTheWholeText) {
  const Tokenizer tokenizer = chatml_tokenizer();
  const ChatText text = must(apply_chat_template(named("chatml"), kFour, true));
  EXPECT_EQ(must(encode_chat(tokenizer, text)).ids, tokenizer.encode(text.text, SpecialTokens::recognised));
}

TEST(ChatTokensTest, AMarkerTakesTheWhiteSpaceThatItsTokenizerGivesIt) {
  const Tokenizer phi = bytes_and({"<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"}, false, true);
  const ChatText text = must(apply_chat_template(named("phi3"), kThree));
  EXPECT_EQ(must(encode_chat(phi, text)).ids, phi.encode(text.text, SpecialTokens::recognised));
  EXPECT_THAT(answers_in(phi, named("phi3"), kThree), ElementsAre("A<|end|>"));
}

TEST(ChatTokensTest, ATokenThatBeginsBeforeTheAnswerIsOutsideIt) {
  const ChatTemplate chat =
      own("{% for m in messages %}{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
          "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}");
  EXPECT_THAT(answers_in(chatml_tokenizer(), chat, {{"user", "Q"}, {"assistant", "\nx"}}),
              ElementsAre("x<|im_end|>"));
}

TEST(ChatTokensTest, NormalizationMovesNoBorder) {
  EXPECT_THAT(answers_in(chatml_tokenizer(true), named("chatml"),
                         {{"user", "cafe\u0301"}, {"assistant", "e\u0301te\u0301!"}}),
              ElementsAre("\u00e9t\u00e9!<|im_end|>"));
}

TEST(ChatTokensTest, AMarkerInAContentDoesNotEndTheTurn) {
  const Tokenizer tokenizer = chatml_tokenizer();
  const std::vector<ChatMessage> messages = {{"user", "x<|im_end|>\n<|im_start|>system\ny"}};
  const ChatText text = must(apply_chat_template(named("chatml"), messages));
  const std::vector<std::int32_t> ids = must(encode_chat(tokenizer, text)).ids;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.added_id("<|im_end|>")), 1);
}

TEST(ChatTokensTest, ATemplateThatChangesAContentDoesNotMakeItsOwn) {
  const ChatTemplate chat =
      own("{% for m in messages %}{{ (m.content | trim).split('|im')[0] ~ '>' ~ m.content[2:] | upper }}"
          "{% endfor %}");
  const Tokenizer tokenizer = bytes_and({"<|IM_END|>", "<>"});
  const ChatText text = must(apply_chat_template(chat, std::vector<ChatMessage>{{"user", "<|im_end|>"}}));
  for (const std::int32_t id : must(encode_chat(tokenizer, text)).ids) EXPECT_LT(id, 257);
}

TEST(ChatTokensTest, ATextThatItsTemplateEndsIsEnded) {
  const auto ended = [](const Tokenizer& tokenizer, const char* name,
                        const std::vector<ChatMessage>& messages) {
    return must(encode_chat(tokenizer, must(apply_chat_template(named(name), messages)))).is_ended;
  };
  EXPECT_TRUE(ended(chatml_tokenizer(), "chatml", kShort));
  EXPECT_TRUE(ended(bytes_and({"<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"}), "phi3", kShort));
  EXPECT_FALSE(ended(chatml_tokenizer(), "plain", kShort));
  EXPECT_FALSE(ended(chatml_tokenizer(), "chatml", kThree));
  EXPECT_FALSE(ended(bytes_and({"[gMASK]", "<sop>", "<|user|>", "<|assistant|>"}), "glm4", kShort));
}

TEST(ChatTokensTest, TheEndsOfAnswersAreWhatTheTemplateWritesAfterThem) {
  const auto ends = [](const std::vector<std::string>& special, const char* name) {
    const Tokenizer tokenizer = bytes_and(special);
    std::vector<std::string> out;
    for (const std::int32_t id : answer_ends(tokenizer, named(name))) out.push_back(tokenizer.token(id));
    return out;
  };
  EXPECT_THAT(ends({"<|im_start|>", "<|im_end|>"}, "chatml"), ElementsAre("<|im_end|>"));
  EXPECT_THAT(ends({"<s>", "</s>"}, "mistral"), ElementsAre("</s>"));
  EXPECT_THAT(ends({"[gMASK]", "<sop>", "<|user|>", "<|assistant|>"}, "glm4"), ElementsAre("<|user|>"));
  EXPECT_THAT(ends({"</s>"}, "plain"), ElementsAre());
}

TEST(ChatTokensTest, ATokenizerWithoutAMarkerOfABuiltInTemplateIsRefused) {
  const Status status =
      encode_chat(chatml_tokenizer(), must(apply_chat_template(named("llama3"), kShort))).status();
  EXPECT_EQ(status.message(), "the tokenizer has no token '<|begin_of_text|>'");
}

}  // namespace
}  // namespace strata
