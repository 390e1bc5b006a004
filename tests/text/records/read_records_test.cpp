#include <strata/text/documents.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "text/records/records_of_file.h"

namespace strata {
namespace {

using test::named;
using test::ReadRecordsTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ReadRecordsTest, EveryTokenOfATextIsInTheLoss) {
  EXPECT_EQ(must(read("{\"text\": \"one\"}\n{\"text\": \"two\"}")).form, "text record");
  EXPECT_THAT(documents, ElementsAre("[one]|", "[two]|"));
}

TEST_F(ReadRecordsTest, APairIsTwoDocumentsWithTheirAnswersInTheLoss) {
  const RecordStats stats =
      must(read_pairs("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"margin\": 2}\n"));
  EXPECT_TRUE(stats.are_pairs);
  EXPECT_EQ(stats.n_records, 1u);
  EXPECT_EQ(stats.ignored_keys.at("margin"), 1u);
  EXPECT_THAT(documents, ElementsAre("a[b]|", "a[c]|"));
}

TEST_F(ReadRecordsTest, PairsOfMessagesAreConversations) {
  const std::string user = "{\"role\": \"user\", \"content\": \"Hi\"}",
                    yes = "{\"role\": \"assistant\", \"content\": \"yes\"}",
                    no = "{\"role\": \"assistant\", \"content\": \"no\"}";
  must(read_pairs(str("{\"prompt\": [", user, "], \"chosen\": [", yes, "], \"rejected\": [", no, "]}")));
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_THAT(documents[0], HasSubstr("[yes"));
  EXPECT_THAT(documents[1], HasSubstr("[no"));
  const std::vector<std::string> with_prompt = documents;
  must(read_pairs(str("{\"chosen\": [", user, ", ", yes, "], \"rejected\": [", user, ", ", no, "]}")));
  EXPECT_EQ(documents, with_prompt);
}

TEST_F(ReadRecordsTest, PairsAndTextsAreNotReadAsEachOther) {
  const std::string pair = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}";
  EXPECT_THAT(refusal(pair), HasSubstr("train with --task reward or --task dpo"));
  EXPECT_THAT(std::string(read_pairs("{\"text\": \"a\"}").status().message()),
              HasSubstr("the first record must be a pair: 'chosen' and 'rejected', "));
  EXPECT_THAT(std::string(read_pairs(pair + "\n{\"prompt\": \"a\", \"chosen\": \"\", \"rejected\": \"c\"}")
                              .status()
                              .message()),
              HasSubstr("line 2: 'chosen' is empty"));
}

TEST_F(ReadRecordsTest, OnlyTheCompletionOfAPromptIsInTheLoss) {
  EXPECT_EQ(
      must(read("{\"completion\": \" b\", \"prompt\": \"a\"}\n{\"prompt\": \"\", \"completion\": \"c\"}\n"))
          .form,
      "prompt-completion record");
  EXPECT_THAT(documents, ElementsAre("a[ b]|", "[c]|"));
}

// One conversation as each family's template writes it, with the part in the loss.
TEST_F(ReadRecordsTest, OnlyAssistantTurnsAreInTheLossInEveryFormat) {
  const std::string line =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, )"
      R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, )"
      R"({"role": "assistant", "content": "b"}]})";
  constexpr std::pair<const char*, const char*> kWritten[] = {
      {"plain", "System:\ns\nUser:\nq\nAssistant:\n[a]\nUser:\nr\nAssistant:\n[b]\n|"},
      {"chatml",
       "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a]<|im_end|>"
       "\n"
       "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n[b]<|im_end|>\n|"},
      {"qwen3",
       "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a]<|im_end|>"
       "\n"
       "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\nb]<|im_end|>\n|"},
      {"llama3",
       "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n[a]<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nr<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n[b]<|eot_id|>|"},
      {"llama3.1",
       "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
       "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\ns<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n[a]<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nr<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n[b]<|eot_id|>|"},
      {"glm4", "[gMASK]<sop><|system|>\ns<|user|>\nq<|assistant|>[\na]<|user|>\nr<|assistant|>[\nb]|"},
  };
  for (const auto& [name, written] : kWritten) {
    EXPECT_EQ(must(read(line, named(name))).form, "conversation");
    EXPECT_THAT(documents, ElementsAre(written)) << name;
  }
}

TEST_F(ReadRecordsTest, TheEndIsInTheLossWhereTheAssistantSpeaksLast) {
  must(read(R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": ""}]})",
            named("plain")));
  EXPECT_THAT(documents, ElementsAre("Assistant:\n[a]\nUser:\n\n"));
}

TEST_F(ReadRecordsTest, WithoutATemplateConversationsAreRefusedOnceAndOtherRecordsAreNot) {
  const auto unknown = ChatTemplate::parse("{{ messages | bogus }", {});
  const std::string line = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}\n";
  EXPECT_EQ(read(line + line, unknown).status().message(),
            "a.jsonl: line 1: the chat template: line 1: '}' closes nothing");
  EXPECT_TRUE(read("{\"text\": \"a\"}", unknown).has_value());
}

TEST_F(ReadRecordsTest, OtherKeysAreIgnoredAndCounted) {
  const RecordStats stats =
      must(read("{\"text\": \"a\", \"id\": 1}\n{\"url\": [{}], \"text\": \"b\", \"id\": 2}"));
  EXPECT_EQ(stats.n_records, 2u);
  EXPECT_EQ(stats.ignored_keys, (std::map<std::string, std::uint64_t>{{"id", 2}, {"url", 1}}));
}

TEST_F(ReadRecordsTest, APromptNextToMessagesIsAnIgnoredKey) {
  EXPECT_EQ(must(read(R"({"prompt": "p", "messages": [{"role": "assistant", "content": "a"}]})")).form,
            "conversation");
}

TEST_F(ReadRecordsTest, CrlfLineEndsAndAByteOrderMarkAreAccepted) {
  must(read("\xEF\xBB\xBF{\"text\": \"a\"}\r\n{\"text\": \"\\u00e9\\ud83d\\ude00\"}\r\n"));
  EXPECT_THAT(documents, ElementsAre("[a]|", "[\xC3\xA9\xF0\x9F\x98\x80]|"));
}

TEST_F(ReadRecordsTest, TheDigestIsThatOfTheFile) {
  const std::string text = "{\"text\": \"" + std::string(3 << 20, 'x') + "\"}\n{\"text\": \"y\"}";
  const RecordStats stats = must(read(text));
  EXPECT_EQ(stats.file, must(digest_file(io, "a.jsonl")));
  EXPECT_EQ(documents.size(), 2u);
}

TEST_F(ReadRecordsTest, EachKindOfProblemIsReportedOnceWithItsCount) {
  std::string text = "{\"text\": \"a\"}\n";
  for (int i = 0; i < 3; ++i) text += "{\"txt\": \"a\"}\n{\"text\": \n{\"text\": \"b\"}\n";
  EXPECT_EQ(
      refusal(text),
      "a.jsonl: line 2: no 'text'; its keys: txt (and 2 more)\n"
      "a.jsonl: line 3: not JSON: column 10: syntax error while parsing value - unexpected end of input (and "
      "2 more)");
  EXPECT_THAT(documents, ElementsAre("[a]|"));  // `take` is not called after the first problem
}

TEST_F(ReadRecordsTest, AFirstRecordOfUnknownFormIsReportedAsTheOnlyProblem) {
  EXPECT_THAT(refusal("{\"dialog\": []}\n{\"dialog\": []}\n"),
              AllOf(testing::StartsWith("a.jsonl: line 1: the first record must have 'text', "),
                    testing::EndsWith("; its keys: dialog")));
}

TEST_F(ReadRecordsTest, AFileWithoutARecordIsRefused) {
  EXPECT_EQ(refusal(""), "a.jsonl: it has no records");
}

TEST_F(ReadRecordsTest, ALineOfTheMaximumLengthIsAcceptedAndOneByteMoreIsRefused) {
  const auto line_of = [](std::size_t bytes) {
    return "{\"text\": \"" + std::string(bytes - 12, 'x') + "\"}";
  };
  EXPECT_EQ(line_of(kMaxRecordBytes).size(), kMaxRecordBytes);
  EXPECT_EQ(refusal(line_of(kMaxRecordBytes)), "taken");
  EXPECT_EQ(refusal("{\"text\": \"a\"}\n" + line_of(kMaxRecordBytes + 1) + "\n{\"text\": \"b\"}"),
            str("a.jsonl: line 2: longer than ", kMaxRecordBytes, " bytes"));
}

TEST_F(ReadRecordsTest, AMessageOfALongLineStaysShort) {
  EXPECT_LT(refusal("{\"text\": \"" + std::string(100000, 'x')).size(), 300u);
  EXPECT_LT(refusal("{\"" + std::string(100000, 'x') + "\": 1}").size(), 400u);
  EXPECT_EQ(refusal("{\"\\u001b[31m\": 1}").find('\x1b'), std::string::npos);
}

// --- Blank lines ---

TEST_F(ReadRecordsTest, BlankLinesAtTheEndAreIgnored) {
  for (const char* end : {"\n\n", "\n  \t\n\r\n", "\n\n\n\n\n", "\n \t"}) {
    EXPECT_EQ(must(read(str("{\"text\": \"one\"}\n{\"text\": \"two\"}", end))).n_records, 2u) << end;
    EXPECT_THAT(documents, ElementsAre("[one]|", "[two]|"));
  }
}

TEST_F(ReadRecordsTest, BlankLinesBeforeARecordAreRefusedWithTheFirstAndTheirNumber) {
  EXPECT_EQ(refusal("{\"text\": \"one\"}\n\n \t\n{\"text\": \"two\"}\n\r\n{\"text\": \"three\"}\n\n"),
            "a.jsonl: line 2: a blank line (and 2 more)");
  EXPECT_EQ(refusal("\n{\"text\": \"one\"}"), "a.jsonl: line 1: a blank line");
  EXPECT_EQ(refusal("\n\n"), "a.jsonl: it has no records");
}

TEST_F(ReadRecordsTest, RecordsInUtf16AreNamedAsSuch) {
  EXPECT_THAT(refusal("\xFF\xFE{"), HasSubstr("a.jsonl: begins with the byte order mark of UTF-16"));
}

// --- Malformed records ---

struct Malformed {
  const char* line;
  const char* says;
};

// Each line follows a valid line of its kind.
constexpr Malformed kTexts[] = {
    {"{", "not JSON: column 2"},
    {"}", "not JSON: column 1"},
    {"{}", "no 'text'; it has no key"},
    {"[]", "a record must be an object, not an array"},
    {"[{\"text\": \"a\"}]", "a record must be an object, not an array"},
    {"null", "a record must be an object, not null"},
    {"true", "a record must be an object, not a boolean"},
    {"7", "a record must be an object, not a number"},
    {"\"text\"", "a record must be an object, not a string"},
    {"text", "not JSON: column 2"},
    {"{\"text\": \"a\"} x", "not JSON: column 15"},
    {"{\"text\": \"a\"}{\"text\": \"b\"}", "not JSON: column 14"},
    {"{\"text\": \"a\",}", "not JSON: column 14"},
    {"{\"text\": \"a\" \"b\"}", "not JSON: column 16"},
    {"{\"text\": 'a'}", "not JSON: column 10"},
    {"{text: \"a\"}", "not JSON: column 3"},
    {"{\"text\": \"a\"", "not JSON: column 13"},
    {"{\"text\": \"a", "not JSON: column 12"},
    {"{\"text\": \"a\tb\"}", "not JSON: column 12"},
    {"{\"text\": \"\\x\"}", "not JSON: column 12"},
    {"{\"text\": \"\\u12\"}", "not JSON: column 15"},
    {"{\"text\": \"\\ud800\"}", "not JSON: column 17"},
    {"{\"text\": \"\xFF\"}", "not JSON: column 11"},
    {"{\"text\": \"\xC0\x80\"}", "not JSON: column 11"},
    {"{\"text\": \"\xED\xA0\x80\"}", "not JSON: column 12"},
    {"{\"text\": \"a\"} // why", "not JSON: column 15"},
    {"{\"text\": NaN}", "not JSON: column 10"},
    {"{\"text\": \"a\", \"n\": 1e999}", "not JSON: "},
    {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate key 'text' in an object"},
    {"\xEF\xBB\xBF{\"text\": \"a\"}", "not JSON: a byte order mark"},
    {"{\"text\": null}", "'text' must be a string, not null"},
    {"{\"text\": 3}", "'text' must be a string, not a number"},
    {"{\"text\": [\"a\"]}", "'text' must be a string, not an array"},
    {"{\"text\": \"\"}", "'text' is empty"},
    {"{\"Text\": \"a\"}", "no 'text'; its keys: Text"},
    {"{\"prompt\": \"a\", \"completion\": \"b\"}", "no 'text'; its keys: prompt, completion"},
};
constexpr Malformed kCompletions[] = {
    {"{\"prompt\": \"a\"}", "no 'completion'; its keys: prompt"},
    {"{\"completion\": \"a\"}", "no 'prompt'; its keys: completion"},
    {"{\"prompt\": \"\", \"completion\": \"\"}", "'completion' is empty"},
    {"{\"prompt\": \"a\", \"completion\": 1}", "'completion' must be a string, not a number"},
    {"{\"prompt\": [], \"completion\": \"a\"}", "'prompt' must be a string, not an array"},
    {"{\"text\": \"a\"}", "no 'prompt'; its keys: text"},
};
constexpr Malformed kMessages[] = {
    {"{\"messages\": []}", "'messages' is empty"},
    {"{\"messages\": {}}", "'messages' must be an array, not an object"},
    {"{\"messages\": \"a\"}", "'messages' must be an array, not a string"},
    {"{\"message\": []}", "no 'messages'; its keys: message"},
    {"{\"messages\": [\"a\"]}", "message 1 of 1: expected an object, not a string"},
    {"{\"messages\": [{\"content\": \"a\"}]}", "message 1 of 1: no 'role'; its keys: content"},
    {"{\"messages\": [{\"role\": \"user\"}]}", "message 1 of 1: no 'content'; its keys: role"},
    {"{\"messages\": [{\"role\": 1, \"content\": \"a\"}]}", "'role' must be a string, not a number"},
    {"{\"messages\": [{\"role\": \"bot\", \"content\": \"a\"}]}",
     "message 1 of 1: 'role' is 'bot'; roles are system, user, assistant, tool, and ShareGPT's human"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
     "no message is in the loss: none has the role 'assistant'"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
     "null}]}",
     "message 2 of 2: 'content' must be a string, not null"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\"}]}]}",
     "'content' has a part that is no text: \"text\""},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [3]}]}",
     "its tool calls are no objects with 'name' and 'arguments'"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"thinking\": \"b\"}]}",
     "'thinking' of a message is not supported"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]}",
     "no message is in the loss: none of the assistant's is to be learned"},
};

struct MalformedRecordsTest : ReadRecordsTest {
  void expect_refused(const std::string& good, std::span<const Malformed> table) {
    ASSERT_EQ(refusal(good), "taken");
    for (const Malformed& bad : table) {
      const std::string said = refusal(str(good, "\n", bad.line, "\n", good));
      EXPECT_TRUE(said.starts_with("a.jsonl: line 2: ")) << bad.line << ": " << said;
      EXPECT_THAT(said, HasSubstr(bad.says)) << bad.line;
    }
  }
};

TEST_F(MalformedRecordsTest, EveryMalformedTextRecordIsRefusedWithItsLineNumber) {
  expect_refused("{\"text\": \"good\"}", kTexts);
}
TEST_F(MalformedRecordsTest, EveryMalformedCompletionIsRefusedWithItsLineNumber) {
  expect_refused("{\"prompt\": \"p\", \"completion\": \"c\"}", kCompletions);
}
TEST_F(MalformedRecordsTest, EveryMalformedConversationIsRefusedWithItsLineNumber) {
  expect_refused("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", kMessages);
}

TEST_F(MalformedRecordsTest, ANulAndDeepNestingAreRefusedWithTheirLine) {
  const std::string good = "{\"text\": \"good\"}\n";
  EXPECT_EQ(refusal(good + "{\"text\": \"a\"}" + std::string(1, '\0') + "\n"),
            "a.jsonl: line 2: a NUL at byte 13");
  EXPECT_EQ(refusal(good + "{\"text\": " + std::string(100, '[') + std::string(100, ']') + "}\n"),
            "a.jsonl: line 2: nested deeper than 64");
  EXPECT_EQ(refusal(good + std::string(200000, '[')), "a.jsonl: line 2: nested deeper than 64");
}

TEST_F(MalformedRecordsTest, AFirstRecordOfTwoKindsIsRefused) {
  EXPECT_THAT(refusal("{\"text\": \"a\", \"messages\": []}"),
              HasSubstr("line 1: the first record must be of one kind"));
}

TEST(SourceNameTest, OtherFormatsAreRefusedByTheirExtension) {
  for (const char* name : {"a/b.jsonl", "x.ndjson", "NOTES.JSONL", "a.json", "a.jsonl.gz", "A.JSON.GZ"})
    EXPECT_TRUE(has_records(name)) << name;
  for (const char* name : {"jsonl", "a.jsonl/b.txt", "a.txt.gz", ".gz"})
    EXPECT_FALSE(has_records(name)) << name;
  for (const char* name :
       {"a.txt", "a", "a.md", "dir.gz/a", "code.py", ".txt", "a.json", "a.jsonl.gz", "a.txt.gz"})
    EXPECT_TRUE(check_source_name(name).is_ok()) << name;
  for (const char* name :
       {"a.parquet", "b/a.zst", "a.arrow", "a.csv", "a.TSV", "a.csv.gz", "a.tar.gz", "a.tgz"})
    EXPECT_EQ(check_source_name(name).code(), Code::unsupported) << name;
  EXPECT_THAT(std::string(check_source_name("a.csv").message()),
              HasSubstr("a.csv: .csv is a table, not text; write its rows as records of a .jsonl file"));
}

}  // namespace
}  // namespace strata
