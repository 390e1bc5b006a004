// Files in the forms of other programs (forms/theirs) have the tokens of the same records written by hand in
// strata's own (forms/ours).
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/text/documents.h>
#include <strata/text/prompts.h>
#include <strata/runtime/str.h>
#include <support/memory_io.h>

#include "data/records/record_forms.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kForms = std::string(STRATA_SOURCE_DIR) + "/tests/text/records/forms/";

/// A tokenizer with the 256 bytes and ChatML's tokens.
const Tokenizer& bytes_and_turns() {
  static const Tokenizer tokenizer = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.insert(tokens.end(), {"<|im_start|>", "<|im_end|>", "<|endoftext|>"});
    return must(Tokenizer::create(tokens, {}, {256, 257, 258}));
  }();
  return tokenizer;
}

/// ChatML that also writes tools and their calls, as Qwen2.5 does.
const ChatTemplate& with_tools() {
  static const ChatTemplate chat = must(ChatTemplate::parse(
      "{% if tools %}<|im_start|>tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% "
      "endif %}"
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "{% for c in m.tool_calls %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
      "{{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      {}));
  return chat;
}

struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<bool> loss_mask;
  bool operator==(const Tokens&) const = default;
};

std::vector<Tokens> tokens_of(const std::string& file, const ChatTemplate& chat,
                              RecordStats* stats = nullptr) {
  std::vector<Tokens> out;
  const auto take = [&](const Document& document) -> Status {
    STRATA_TRY_ASSIGN(DocumentTokens tokens, encode_document(bytes_and_turns(), document));
    out.push_back({std::move(tokens.ids), std::move(tokens.loss_mask)});
    return {};
  };
  const RecordStats read = must(read_records(posix_io(), file, chat, take, RecordUse::any));
  if (stats != nullptr) *stats = read;
  return out;
}

struct TheirFile {
  std::string name, want;
};
std::vector<TheirFile> files_of_others() {
  std::vector<TheirFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(kForms + "theirs")) {
    const std::string name = entry.path().filename();
    files.push_back(
        {kForms + "theirs/" + name, kForms + "ours/" + name.substr(0, name.find('.')) + ".jsonl"});
  }
  std::sort(files.begin(), files.end(),
            [](const TheirFile& a, const TheirFile& b) { return a.name < b.name; });
  return files;
}

TEST(RecordFormsTest, FilesOfOtherProgramsHaveTheTokensOfTheSameRecordsWrittenByHand) {
  const std::vector<TheirFile> files = files_of_others();
  ASSERT_EQ(files.size(), 25u);
  for (const TheirFile& file : files) {
    const bool is_plain = file.name.find(".plain.") != std::string::npos;
    const ChatTemplate chat = is_plain ? ChatTemplate() : with_tools();
    const std::vector<Tokens> wanted = tokens_of(file.want, chat);
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(tokens_of(file.name, chat), wanted) << file.name;
  }
}

TEST(RecordFormsTest, EveryFormOfTheTableHasAFileThatIsReadAsIt) {
  std::set<std::string> read, table;
  for (const TheirFile& file : files_of_others()) {
    RecordStats stats;
    tokens_of(file.name, with_tools(), &stats);
    read.insert(stats.form);
  }
  for (const detail::RecordForm& form : detail::record_forms())
    if (form.keys != "text") table.emplace(form.name);
  EXPECT_EQ(read, table);
}

TEST(RecordFormsTest, AFileIsDescribedByItsFormItsKeysAndHowItIsRead) {
  RecordStats stats;
  tokens_of(kForms + "theirs/alpaca.json", must(ChatTemplate::named("chatml")), &stats);
  EXPECT_EQ(stats.described(ChatTemplate::named("chatml")),
            "2 Alpaca records (instruction, input, output) read as chats (chatml)");
  tokens_of(kForms + "theirs/alpaca_as_text.plain.json", {}, &stats);
  EXPECT_EQ(stats.described(ChatTemplate{}),
            "2 Alpaca records (instruction, input, output) read as Alpaca's prompts, since there is no chat "
            "template");
  tokens_of(kForms + "theirs/ultrafeedback.json", with_tools(), &stats);
  EXPECT_EQ(stats.described(with_tools()),
            "1 preference pair (prompt, chosen, rejected) read as chats (chatml); ignored: 'messages' (1), "
            "'prompt_id' "
            "(1), 'score_chosen' (1), 'score_rejected' (1)");
}

struct OneFileTest : testing::Test {
  std::string refusal(const std::string& name, const std::string& text, RecordUse use = RecordUse::texts) {
    io.put(name, text);
    const auto read = read_records(
        io, name, with_tools(), [](const Document&) { return Status::ok(); }, use);
    return read.has_value() ? "read" : std::string(read.status().message());
  }
  MemoryIo io;
};

TEST_F(OneFileTest, AFormAmongRecordsOfAnotherIsRefusedWithBothRecords) {
  EXPECT_EQ(refusal("a.jsonl",
                    "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"instruction\": \"c\", \"output\": \"d\"}\n"),
            "a.jsonl: line 3: no 'text'; its keys: instruction, output; it is an Alpaca record, and line 1 "
            "is a text "
            "record: put them into files of their own");
  EXPECT_THAT(
      refusal("a.json",
              "[{\"conversations\": [{\"from\": \"gpt\", \"value\": \"a\"}]},\n {\"text\": \"b\"}]"),
      HasSubstr("a.json: record 2 (byte 54): no 'conversations'; its keys: text; it is a text record, and "
                "record 1 (byte 1) is a ShareGPT conversation"));
}

TEST_F(OneFileTest, UnpairedPreferencesAreRefusedAndNotLearnedAsAnswers) {
  EXPECT_THAT(refusal("a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": false}"),
              HasSubstr("unpaired preferences"));
}

TEST_F(OneFileTest, ARecordOfNoFormIsAnsweredWithTheKnownOnes) {
  EXPECT_EQ(
      refusal("a.jsonl", "{\"question\": \"a\"}"),
      "a.jsonl: line 1: the first record must have 'text', 'prompt' and 'completion', 'messages', "
      "'conversations', 'instruction' and 'output', or 'instruction' and 'response'; its keys: question");
}

TEST_F(OneFileTest, WhatATemplateLeavesOutIsRefused) {
  const std::string call =
      "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
      "\"arguments\": {}}}]}";
  io.put("a.jsonl", str("{\"messages\": [", call, "]}"));
  const auto chatml = ChatTemplate::named("chatml");
  const auto read = read_records(io, "a.jsonl", chatml, [](const Document&) { return Status::ok(); });
  EXPECT_THAT(std::string(read.status().message()),
              HasSubstr("message 1 of 1 has tool calls, which the chat template leaves out"));
  EXPECT_EQ(refusal("a.jsonl", str("{\"messages\": [", call, "]}")), "read");
}

TEST_F(OneFileTest, AMessageWithAnImageOrAnotherWeightIsRefused) {
  const auto of_user = [&](const std::string& keys) {
    return refusal("a.jsonl", str("{\"messages\": [{\"role\": \"user\", ", keys,
                                  "}, {\"role\": \"assistant\", \"content\": \"a\"}]}"));
  };
  EXPECT_THAT(of_user("\"content\": [{\"type\": \"image_url\", \"image_url\": {}}]"),
              HasSubstr("message 1 of 2: 'content' has a part that is no text: \"image_url\""));
  EXPECT_THAT(of_user("\"content\": \"q\", \"weight\": 1"),
              HasSubstr("'weight' is 1 in a message of the user; it may be 0, or 1 in one of the assistant"));
}

TEST(PromptFormsTest, TheAnswerAtTheEndOfAConversationIsNoPartOfItsPrompt) {
  const auto messages = [](const std::string& file) {
    std::vector<std::string> said;
    for (const Prompt& prompt :
         must(read_prompts(posix_io(), kForms + "theirs/" + file, [](std::string_view) {})))
      for (const ChatMessage& message : prompt.messages)
        said.push_back(str(message.role, " ", message.content));
    return said;
  };
  EXPECT_THAT(messages("sharegpt_system.jsonl"),
              ElementsAre("system Be brief.", "user Hi", "system Be brief.", "user Hi"));
  EXPECT_THAT(messages("alpaca_with_text.jsonl"), ElementsAre("user Translate to French.\nThe cat"));
  EXPECT_THAT(messages("trl_prompt_completion.jsonl"), ElementsAre("user What colour is the sky?"));
  EXPECT_THAT(messages("two_members.jsonl.gz"), ElementsAre("user What colour is the sky?"));
}

TEST(PromptFormsTest, WithoutAChatTemplateAnInstructionIsAlpacasPrompt) {
  const auto prompts = must(read_prompts(posix_io(), kForms + "theirs/alpaca.json", [](std::string_view) {}));
  const auto text = must(encode_prompt(bytes_and_turns(), prompts[0], ChatTemplate(), {}));
  EXPECT_THAT(must(bytes_and_turns().decode(text.ids)),
              HasSubstr("### Instruction:\nGive three colours.\n\n### Response:\n"));
  const auto chat =
      must(encode_prompt(bytes_and_turns(), prompts[0], must(ChatTemplate::named("chatml")), {}));
  EXPECT_EQ(chat.ids.front(), 256);
}

}  // namespace
}  // namespace strata
