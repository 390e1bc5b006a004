// Tests the meaning of single keys and values of records, where programs differ.
#include <strata/text/prompts.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "text/records/records_of_file.h"

namespace strata {
namespace {

using test::named;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

struct RecordRulesTest : test::ReadRecordsTest {
  std::string pair_of(const std::string& prompt, const std::string& before) {
    const auto side = [&](const char* said) {
      return str("[", before, "{\"role\": \"assistant\", \"content\": \"", said, "\"}]");
    };
    return str("{\"prompt\": \"", prompt, "\", \"chosen\": ", side("yes"), ", \"rejected\": ", side("no"),
               "}");
  }
  std::string refusal_of(const std::string& text, const Result<ChatTemplate>& chat) {
    return std::string(read(text, chat).status().message());
  }
};

std::string json_message(const char* role, const char* content) {
  return str("{\"role\": \"", role, "\", \"content\": \"", content, "\"}");
}
/// A conversation whose last message has these keys, too.
std::string conversation_with(const std::string& keys, const char* role = "assistant") {
  return str("{\"messages\": [", json_message("user", "q"), ", {\"role\": \"", role,
             "\", \"content\": \"a\", ", keys, "}, ", json_message("assistant", "b"), "]}");
}

// --- A text as the prompt of conversations ---

constexpr const char* kAsked = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n";

TEST_F(RecordRulesTest, ATextPromptThatTheAnswersLackIsPutBeforeThem) {
  must(read_pairs(pair_of("Why?", "")));
  EXPECT_THAT(documents, ElementsAre(str(kAsked, "[yes]<|im_end|>\n|"), str(kAsked, "[no]<|im_end|>\n|")));
  must(read_pairs(pair_of("Why?", json_message("system", "s") + ", ")));
  EXPECT_EQ(documents[0], str("<|im_start|>system\ns<|im_end|>\n", kAsked, "[yes]<|im_end|>\n|"));
}

TEST_F(RecordRulesTest, ATextPromptThatTheAnswersBeginWithIsNotRepeated) {
  for (const char* const prompt : {"Why?", " Why?\\n", "\\n\\nHuman: Why?\\n\\nAssistant:", ""}) {
    must(read_pairs(pair_of(prompt, json_message("user", "Why?") + ", ")));
    EXPECT_EQ(documents[0], str(kAsked, "[yes]<|im_end|>\n|")) << prompt;
  }
}

TEST_F(RecordRulesTest, ATextPromptIsThatOfAnswersOfOneMessage) {
  must(read_pairs(str("{\"prompt\": \"Why?\", \"chosen\": ", json_message("assistant", "yes"),
                      ", \"rejected\": ", json_message("assistant", "no"), "}")));
  EXPECT_EQ(documents[0], str(kAsked, "[yes]<|im_end|>\n|"));
}

// --- Unpaired preferences ---

TEST_F(RecordRulesTest, UnpairedPreferencesAreRefusedOnceInEveryForm) {
  const std::vector<std::string> forms = {
      str("\"messages\": [", json_message("user", "q"), ", ", json_message("assistant", "bad"), "]"),
      R"("conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "bad"}])",
      R"("prompt": "q", "completion": "bad")", R"("instruction": "q", "output": "bad")",
      R"("instruction": "q", "response": "bad")"};
  for (const std::string& form : forms)
    for (const char* const mark : {R"("label": false)", R"("label": 0)", R"("label": true)", R"("label": 1)",
                                   R"("kto_tag": false)", R"("kto_tag": true)"}) {
      const std::string record = str("{", form, ", ", mark, "}\n");
      EXPECT_THAT(refusal(record + record), HasSubstr("line 1: its records are unpaired preferences"))
          << record;
      EXPECT_EQ(refusal(record + record).find("more"), std::string::npos) << record;
    }
}

TEST_F(RecordRulesTest, AClassOfATextAndAnotherLabelAreNoPreference) {
  EXPECT_EQ(refusal(R"({"text": "a", "label": 0})"), "taken");
  EXPECT_EQ(refusal(R"({"prompt": "a", "completion": "b", "label": "good"})"), "taken");
  EXPECT_EQ(refusal(R"({"prompt": "a", "completion": "b", "label": 3})"), "taken");
  must(read_pairs(R"({"prompt": "a", "chosen": "b", "rejected": "c", "label": false})"));
}

// --- Empty answers ---

TEST_F(RecordRulesTest, AnEmptyAnswerIsLearnedAsItsEnd) {
  must(read(R"({"instruction": "i", "input": "", "output": ""})"));
  EXPECT_THAT(documents,
              ElementsAre("<|im_start|>user\ni<|im_end|>\n<|im_start|>assistant\n[]<|im_end|>\n|"));
  must(read(R"({"instruction": "i", "output": ""})", named("plain")));
  EXPECT_THAT(documents[0], EndsWith("### Response:\n[]|"));
  must(read(R"({"instruction": "i", "response": ""})", named("plain")));
  EXPECT_THAT(documents[0], EndsWith("### Response:\n[]|"));
  must(read(R"({"prompt": "p", "completion": ""})"));
  EXPECT_THAT(documents, ElementsAre("p[]|"));
  must(read(str("{\"messages\": [", json_message("user", "i"), ", ", json_message("assistant", ""), "]}")));
  EXPECT_THAT(documents,
              ElementsAre("<|im_start|>user\ni<|im_end|>\n<|im_start|>assistant\n[]<|im_end|>\n|"));
  EXPECT_THAT(refusal(R"({"prompt": "", "completion": ""})"), HasSubstr("'completion' is empty"));
  EXPECT_THAT(
      std::string(read_pairs(R"({"instruction": "i", "chosen": "", "rejected": "b"})").status().message()),
      HasSubstr("'chosen' is empty"));
}

// --- Calls ---

TEST_F(RecordRulesTest, AMessageOfAnyRoleMayHaveNoCalls) {
  for (const char* const role : {"system", "user", "assistant", "tool"})
    EXPECT_EQ(refusal(conversation_with(R"("tool_calls": [])", role)), "taken") << role;
  EXPECT_THAT(
      refusal(conversation_with(R"("tool_calls": [{"name": "f", "arguments": {}}])", "user")),
      HasSubstr("message 2 of 3: 'tool_calls' has 1 call in a message of the user; only the assistant "
                "calls tools"));
}

TEST_F(RecordRulesTest, IntegersOfCallsKeepTheirDigitsOrAreRefused) {
  const ChatTemplate chat = must(ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }} {{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
      "{{ c.function.arguments "
      "| "
      "tojson }}{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant {% endif %}",
      {}));
  const auto calls = [](const std::string& arguments) {
    return conversation_with(str(R"("tool_calls": [{"name": "f", "arguments": )", arguments, "}]"));
  };
  must(read(calls("{\"n\": 18446744073709551615, \"m\": -9223372036854775808, \"x\": 1e22}"), chat));
  EXPECT_THAT(documents[0],
              HasSubstr(R"({"n": 18446744073709551615, "m": -9223372036854775808, "x": 1e+22})"));
  const std::string why = "'id' is 18446744073709551616, an integer of more than 64 bits";
  EXPECT_THAT(refusal_of(calls(R"({"n": {"id": 18446744073709551616}})"), chat), HasSubstr("line 1: " + why));
  EXPECT_THAT(refusal_of(calls(R"("{\"id\": 18446744073709551616}")"), chat),
              HasSubstr("line 1: message 2 of 3: " + why));
  EXPECT_THAT(refusal_of(calls("[-9223372036854775809]"), chat),
              HasSubstr("'arguments' is -9223372036854775809"));
  EXPECT_EQ(refusal(R"({"text": "a 99999999999999999999", "id": 99999999999999999999})"), "taken");
}

// --- Reasoning ---

TEST_F(RecordRulesTest, ReasoningIsGivenToATemplateThatReadsItAndIsLearned) {
  const std::string source =
      must(read_text(posix_io(), std::string(STRATA_SOURCE_DIR) + "/tests/text/chat/qwen3.jinja", kMiB));
  const ChatTemplate qwen3 = must(ChatTemplate::parse(source, {}));
  for (const char* const key : {"reasoning_content", "reasoning"}) {
    must(read(str("{\"messages\": [", json_message("user", "q"),
                  ", {\"role\": \"assistant\", \"content\": \"4\", \"", key, "\": \"easy\"}]}"),
              qwen3));
    EXPECT_THAT(documents, ElementsAre("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
                                       "[<think>\neasy\n</think>\n\n4]<|im_end|>\n|"))
        << key;
  }
  const std::string earlier = str("{\"messages\": [", json_message("user", "q"),
                                  R"(, {"role": "assistant", "content": "4", "reasoning_content": "easy"}, )",
                                  json_message("user", "r"), ", ", json_message("assistant", "5"), "]}");
  must(read(earlier, qwen3));
  EXPECT_EQ(documents[0].find("easy"), std::string::npos) << "as the template has it";
}

TEST_F(RecordRulesTest, ReasoningThatTheTemplateDoesNotKnowIsRefused) {
  const std::string record = conversation_with(R"("reasoning_content": "hm")");
  for (const char* const name : {"plain", "chatml", "qwen3", "llama3"})
    EXPECT_THAT(refusal_of(record, named(name)),
                HasSubstr("message 2 of 3 has reasoning ('reasoning_content'), "
                          "which the chat template leaves out"))
        << name;
  EXPECT_EQ(refusal(conversation_with(R"("reasoning_content": "")", "user")), "taken");
  EXPECT_THAT(refusal(conversation_with(R"("reasoning": "hm")", "user")),
              HasSubstr("'reasoning' in a message of the user; only the assistant reasons"));
  EXPECT_THAT(refusal(conversation_with(R"("reasoning": "hm", "reasoning_content": "so")")),
              HasSubstr("'reasoning_content' and 'reasoning' differ"));
  EXPECT_THAT(refusal(conversation_with(R"("reasoning": 1)")),
              HasSubstr("'reasoning' must be a string, not a number"));
}

// --- As prompts ---

TEST_F(RecordRulesTest, WhatIsTrainedOnCanBeAPrompt) {
  const auto prompt = [&](const std::string& record) {
    io.put("p.jsonl", record);
    const std::vector<Prompt> all = must(read_prompts(io, "p.jsonl", [](std::string_view) {}));
    std::string said = all[0].text;
    for (const ChatMessage& one : all[0].messages) said += str(one.role, " ", one.content, "; ");
    return said;
  };
  const std::string said = str("[", json_message("user", "q"), ", ", json_message("assistant", "a"), "]");
  EXPECT_EQ(prompt(str(R"({"prompt": "q", "prompt_id": "x", "messages": )", said, "}")), "user q; ");
  EXPECT_EQ(prompt(str(R"({"label": false, "messages": )", said, "}")), "user q; ");
  EXPECT_EQ(prompt(R"({"prompt": "q", "completion": "a", "label": false})"), "q");
}

}  // namespace
}  // namespace strata
