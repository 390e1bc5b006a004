#include <strata/text/prompts.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A tokenizer with the 256 bytes and a few special tokens.
Tokenizer byte_tokenizer(const std::vector<std::string>& special) {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const std::string& text : special) {
    ids.push_back(static_cast<std::int32_t>(tokens.size()));
    tokens.push_back(text);
  }
  return must(Tokenizer::create(tokens, {}, ids));
}
std::string shown(const Tokenizer& tokenizer, const PromptTokens& tokens) {
  std::string out;
  for (const std::int32_t id : tokens.ids)
    out += tokenizer.is_special(id) ? "[" + tokenizer.token(id) + "]" : tokenizer.token(id);
  return out;
}

TEST(PromptsTest, ATextIsEncodedAsItIsAndCannotEndATurn) {
  const Tokenizer tokenizer = byte_tokenizer({"<|im_end|>"});
  const auto tokens = must(encode_prompt(tokenizer, {"a<|im_end|>", {}}, {}, {}));
  EXPECT_EQ(shown(tokenizer, tokens), "a<|im_end|>");
  EXPECT_TRUE(tokens.stop_ids.empty());
  EXPECT_EQ(encode_prompt(tokenizer, {}, {}, {}).status().code(), Code::invalid);
}

TEST(PromptsTest, AFileOfAWindowsEditorHasTheSamePromptsAsAPlainOne) {
  const test::TempDir dir;
  const auto read = [&](const std::string& name, const std::string& text) {
    must(write_text_atomically(posix_io(), dir.file(name), text));
    return read_prompts(posix_io(), dir.file(name), [](std::string_view) {});
  };
  const auto texts = must(read("p.txt", "\xEF\xBB\xBFTea\r\nBox\r\n"));
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].text, "Tea");
  EXPECT_EQ(texts[1].text, "Box");
  const auto records = must(read("p.jsonl", "\xEF\xBB\xBF{\"prompt\": \"Tea\"}\r\n"));
  EXPECT_EQ(records[0].text, "Tea");
  EXPECT_THAT(std::string(read("wide.txt", std::string("\xFF\xFET\0e\0", 6)).status().message()),
              HasSubstr("byte order mark of UTF-16"));
}

TEST(PromptsTest, AConversationIsWrittenLikeTrainingData) {
  const Prompt prompt{"", {{"system", "Be brief."}, {"user", "Who<|im_end|>?"}}};
  const Tokenizer words = byte_tokenizer({});
  const auto plain = must(encode_prompt(words, prompt, {}, {}));
  EXPECT_EQ(shown(words, plain), "System:\nBe brief.\nUser:\nWho<|im_end|>?\nAssistant:\n");
  EXPECT_TRUE(plain.stop_ids.empty());
  const Tokenizer chat = byte_tokenizer({"<|im_start|>", "<|im_end|>"});
  const auto chatml = must(encode_prompt(chat, prompt, must(ChatTemplate::named("chatml")),
                                         std::vector{chat.added_id("<|im_end|>")}));
  EXPECT_EQ(shown(chat, chatml),
            "[<|im_start|>]system\nBe brief.[<|im_end|>]\n[<|im_start|>]user\nWho<|im_end|>?[<|im_end|>]\n"
            "[<|im_start|>]assistant\n");
  EXPECT_THAT(chatml.stop_ids, ElementsAre(chat.added_id("<|im_end|>")));
}

TEST(PromptsTest, ATemplateWritesAConversationAndEndsItsAnswer) {
  const Tokenizer tokenizer =
      byte_tokenizer({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>"});
  const auto tokens =
      must(encode_prompt(tokenizer, {"", {{"user", "Hi"}}}, must(ChatTemplate::named("llama3")),
                         answer_ends(tokenizer, must(ChatTemplate::named("llama3")))));
  EXPECT_EQ(shown(tokenizer, tokens),
            "[<|begin_of_text|>][<|start_header_id|>]user[<|end_header_id|>]\n\nHi[<|eot_id|>]"
            "[<|start_header_id|>]assistant[<|end_header_id|>]\n\n");
  EXPECT_THAT(tokens.stop_ids, ElementsAre(tokenizer.added_id("<|eot_id|>")));
  const Tokenizer bare = byte_tokenizer({});
  EXPECT_EQ(
      encode_prompt(bare, {"", {{"user", "Hi"}}}, must(ChatTemplate::named("llama3")), {}).status().code(),
      Code::not_found);
}

TEST(PromptsTest, WhatLastsOfAPromptIsWhatTheNextOneBeginsWith) {
  const Tokenizer tokenizer = byte_tokenizer({"<|im_start|>", "<|im_end|>"});
  const std::vector<ChatMessage> asked = {{"user", "Hi"}};
  const auto lasting = [&](const ChatTemplate& chat) {
    const PromptTokens prompt = must(encode_prompt(tokenizer, {{}, asked}, chat, {}));
    return std::pair{lasting_tokens(tokenizer, asked, chat, prompt.ids), prompt.ids.size()};
  };
  const ChatTemplate qwen = must(ChatTemplate::named("qwen3"));
  // [<|im_start|>]user\nHi[<|im_end|>]\n[<|im_start|>]assistant\n
  EXPECT_EQ(lasting(qwen), (std::pair<std::size_t, std::size_t>{20, 21})) << "all but the last token";
  const std::string unthought = "<think>\n\n</think>\n\n";  // earlier turns do not have it
  EXPECT_EQ(lasting(must(qwen.with_arguments(R"({"enable_thinking": false})"))),
            (std::pair<std::size_t, std::size_t>{21, 21 + unthought.size()}));
  const ChatTemplate once =
      must(ChatTemplate::parse("{% if messages|length > 1 %}{{ raise_exception('no') }}{% endif %}"
                               "{{ messages[0]['content'] }}",
                               {}));
  EXPECT_EQ(lasting(once).first, 0u) << "a template of one question";
}

TEST(PromptsTest, FilesHaveOnePromptPerLineOrRecords) {
  const test::TempDir dir;
  const auto read = [&](const std::string& name, const std::string& text, std::string* warned = nullptr) {
    must(write_text_atomically(posix_io(), dir.file(name), text));
    return read_prompts(posix_io(), dir.file(name), [&](std::string_view w) {
      if (warned != nullptr) *warned += w;
    });
  };
  const auto lines = must(read("a.txt", "one\n\n  two\r\nthree"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].text, "  two");
  std::string warned;
  const auto records = must(read("a.jsonl",
                                 "{\"prompt\": \"p\", \"id\": 7}\n"
                                 "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}]}\n",
                                 &warned));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].text, "p");
  EXPECT_EQ(records[1].messages.at(0).content, "c");
  EXPECT_THAT(warned, HasSubstr("'id' of 1 record is ignored"));
  const auto chosen =
      must(read("b.jsonl",
                "{\"prompt\": \"p\", \"adapter\": \"law\"}\n{\"prompt\": \"p\"}\n"
                "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}], \"adapter\": null}\n"));
  EXPECT_EQ(chosen[0].adapter, "law");
  EXPECT_EQ(chosen[1].adapter, std::nullopt);
  EXPECT_EQ(chosen[2].adapter, "") << "the model itself";
  for (const char* bad :
       {"{", "[1]", "{\"prompt\": \"a\", \"adapter\": 1}", "{\"prompt\": \"a\", \"adapter\": \"\"}", "{}",
        "{\"prompt\": \"a\", \"messages\": []}", "{\"prompt\": \"\"}", "{\"prompt\": 1}",
        "{\"messages\": []}", "{\"messages\": [1]}", "{\"messages\": [{\"role\": \"user\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"c\", \"tool_calls\": [1]}]}"})
    EXPECT_THAT(std::string(read("b.jsonl", std::string("{\"prompt\": \"a\"}\n") + bad).status().message()),
                HasSubstr("line 2: "))
        << bad;
  EXPECT_THAT(std::string(read("c.txt", "\n \n").status().message()), HasSubstr("has no prompts"));
}

}  // namespace
}  // namespace strata
