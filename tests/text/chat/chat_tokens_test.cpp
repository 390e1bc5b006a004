// Which tokens of a conversation are those of its answers.
#include <strata/text/chat.h>

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/units.h>

#include "text/chat/conversations.h"

namespace strata {
namespace {

using namespace test::conversations;
using testing::ElementsAre;

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

/// The assistant's part of a conversation, answer by answer.
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

/// The template that Qwen publishes with Qwen3 (Apache 2.0). It puts an empty thought before the last answer.
ChatTemplate published_qwen3() {
  return own(
      must(read_text(posix_io(), std::string(STRATA_SOURCE_DIR) + "/tests/text/chat/qwen3.jinja", kMiB)));
}
ChatMessage call_of(const std::string& said, const std::string& city) {
  return {"assistant", said,
          R"({"tool_calls": [{"function": {"name": "f", "arguments": {"city": ")" + city + R"("}}}]})"};
}
std::string written_call(const std::string& city) {
  return "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"" + city + "\"}}\n</tool_call>";
}

TEST(ChatTokensTest, OfQwen3ATurnOfCallsEndsBeforeTheOneOfTheirResults) {
  const Tokenizer tokenizer = bytes_and({"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"});
  const std::string thought = "<think>\n\n</think>\n\n";
  EXPECT_THAT(answers_in(tokenizer, published_qwen3(),
                         {{"user", "Q"}, call_of("", "Bath"), {"tool", "rain"}, {"assistant", "It rains."}}),
              ElementsAre(written_call("Bath") + "<|im_end|>", thought + "It rains.<|im_end|>"));
  EXPECT_THAT(
      answers_in(tokenizer, published_qwen3(),
                 {{"user", "Q"},
                  call_of("I look.", "Bath"),
                  {"tool", "rain"},
                  {"tool", "fog"},
                  call_of("", "York"),
                  {"tool", "sun"},
                  {"assistant", "Go."},
                  {"user", "R"},
                  call_of("", "Hull")}),
      ElementsAre("I look.\n" + written_call("Bath") + "<|im_end|>", written_call("York") + "<|im_end|>",
                  "Go.<|im_end|>", thought + written_call("Hull") + "<|im_end|>"));
}

TEST(ChatTokensTest, ATextThatEndsBehindCallsDoesNotPartakeInTheirTurn) {
  const ChatTemplate chat =
      own("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}<call>{{ "
          "c.function.name }}</call>{% endfor %}<|end|>{% endfor %}"
          "{% if add_generation_prompt %}<|assistant|>{% else %}<|endoftext|>{% endif %}");
  const Tokenizer tokenizer =
      bytes_and({"<|user|>", "<|assistant|>", "<|tool|>", "<|end|>", "<|endoftext|>", "<call>", "</call>"});
  EXPECT_THAT(
      answers_in(tokenizer, chat, {{"user", "Q"}, call_of("", "Bath"), {"tool", "T"}, call_of("a", "York")}),
      ElementsAre("<call>f</call><|end|>", "a<call>f</call><|end|>"));
}

TEST(ChatTokensTest, ATemplateThatRefusesToEndWithCallsEndsThemAsItDoesAnswers) {
  const ChatTemplate chat = own(
      "{% if messages[-1].tool_calls %}{{ raise_exception('no result') }}{% endif %}"
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}<call>{{ "
      "c.function.name }}</call>{% endfor %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  EXPECT_THAT(answers_in(bytes_and({"<|im_start|>", "<|im_end|>", "<call>", "</call>"}), chat,
                         {{"user", "Q"}, call_of("", "Bath"), {"tool", "T"}, {"assistant", "A"}}),
              ElementsAre("<call>f</call><|im_end|>", "A<|im_end|>"));
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
