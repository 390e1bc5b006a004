#include "data/records/record_reader.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <strata/text/documents.h>
#include <strata/text/token_cache.h>
#include <strata/runtime/str.h>
#include <support/memory_io.h>

namespace strata {
namespace {

using detail::Record;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string gzip(const std::string& text) {
  std::string out(compressBound(text.size()) + 32, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct RecordReaderTest : testing::Test {
  /// The records as "where: text", and what was wrong.
  std::vector<std::string> read(const std::string& name, const std::string& bytes, std::size_t most = 100) {
    io.put(name, bytes);
    std::vector<std::string> records;
    const auto take = [&](const Record& record) {
      records.push_back(str(record.where(), ": ", record.text, record.too_long ? "..." : ""));
      return Status::ok();
    };
    const auto done = detail::for_each_record(io, name, most, take);
    if (!done.has_value())
      records.push_back(str(to_string(done.status().code()), " ", done.status().message()));
    return records;
  }
  MemoryIo io;
};

TEST_F(RecordReaderTest, LinesAreRecordsUnlessTheFileBeginsWithABracket) {
  EXPECT_THAT(read("a.json", "{\"a\": 1}\n{\"b\": 2}"),
              ElementsAre("line 1: {\"a\": 1}", "line 2: {\"b\": 2}"));
  EXPECT_THAT(read("a.jsonl", "\xEF\xBB\xBF\n [{\"a\": 1},{\"b\": [2]}]"),
              ElementsAre("record 1 (byte 6): {\"a\": 1}", "record 2 (byte 15): {\"b\": [2]}"));
}

TEST_F(RecordReaderTest, BracketsAndQuotesInStringsEndNoElement) {
  EXPECT_THAT(read("a.json", R"([ {"a": "]}\"{"} , "x,y" ,-1 , [[1], {"b": "\\"}],null ])"),
              ElementsAre(R"(record 1 (byte 2): {"a": "]}\"{"})", R"(record 2 (byte 19): "x,y")",
                          "record 3 (byte 26): -1", R"(record 4 (byte 31): [[1], {"b": "\\"}])",
                          "record 5 (byte 50): null"));
  EXPECT_THAT(read("a.json", " [ ] \n"), ElementsAre());
}

TEST_F(RecordReaderTest, AnArrayIsTheSameWhereverItsBlocksEnd) {
  std::string text = "[";
  for (int i = 0; text.size() < (std::size_t{5} << 19); ++i)
    text += str(i == 0 ? "" : ", ", "{\"n\": \"", i, "\\\"]\"}");
  text += "]";
  const std::vector<std::string> records = read("a.json", text);
  ASSERT_GT(records.size(), 100000u);
  for (std::size_t i = 0; i < records.size(); ++i)
    ASSERT_THAT(records[i], testing::EndsWith(str("): {\"n\": \"", i, "\\\"]\"}"))) << i;
}

TEST_F(RecordReaderTest, AMalformedArrayIsRefusedWithTheRecordBefore) {
  const auto refusal = [&](const std::string& text) { return read("a.json", text).back(); };
  EXPECT_THAT(refusal("[{\"a\": 1}, {\"b\": 2}"),
              HasSubstr("does not end: the file has no ']' after record 2"));
  EXPECT_THAT(refusal("[{\"a\": 1}, {\"b\": "),
              HasSubstr("does not end: the file has no ']' after record 1"));
  EXPECT_THAT(refusal("[{\"a\": 1} {\"b\": 2}]"),
              HasSubstr("byte 10, after record 1: no comma before the next record"));
  EXPECT_THAT(refusal("[{\"a\": 1},]"),
              HasSubstr("byte 10, after record 1: a comma without a record behind it"));
  EXPECT_THAT(refusal("[{\"a\": 1}] x"), HasSubstr("byte 11, after record 1: something behind the ']'"));
  EXPECT_THAT(refusal("[,{}]"), HasSubstr("byte 1, after record 0: a comma without a record behind it"));
}

TEST_F(RecordReaderTest, AnElementOfTheMaximumLengthIsWholeAndALongerOneIsCut) {
  EXPECT_THAT(read("a.json", "[\"12345678\", \"123456789\"]", 10),
              ElementsAre("record 1 (byte 1): \"12345678\"", "record 2 (byte 13): \"123456789..."));
}

TEST_F(RecordReaderTest, GzipDataIsReadAsItsText) {
  const std::string lines = "{\"a\": 1}\n{\"b\": 2}\n";
  EXPECT_THAT(read("a.jsonl.gz", gzip(lines)), ElementsAre("line 1: {\"a\": 1}", "line 2: {\"b\": 2}"));
  EXPECT_THAT(read("a.jsonl.GZ", gzip(lines) + gzip("{\"c\": 3}")), testing::SizeIs(3));
  std::string long_text;
  while (long_text.size() < (std::size_t{7} << 19)) long_text += lines;
  EXPECT_EQ(read("a.jsonl.gz", gzip(long_text)).size(), long_text.size() / 9);
}

TEST_F(RecordReaderTest, BrokenGzipDataIsCorruptWithTheFile) {
  const std::string whole = gzip("{\"a\": 1}\n{\"b\": 2}\n");
  EXPECT_THAT(
      read("a.jsonl.gz", whole.substr(0, whole.size() - 1)).back(),
      testing::StartsWith(str("corrupt a.jsonl.gz: the gzip data ends early, after ", whole.size() - 1)));
  EXPECT_THAT(read("a.jsonl.gz", ""), ElementsAre(HasSubstr("the gzip data ends early, after 0 bytes")));
  std::string changed = whole;
  changed[changed.size() - 6] = static_cast<char>(changed[changed.size() - 6] + 1);  // a byte of the checksum
  EXPECT_THAT(read("a.jsonl.gz", changed).back(),
              HasSubstr("a.jsonl.gz: the gzip data is damaged before byte"));
  EXPECT_THAT(read("a.jsonl.gz", "{\"a\": 1}\n").back(),
              HasSubstr("corrupt a.jsonl.gz: the gzip data is damaged"));
}

TEST_F(RecordReaderTest, ZerosBehindGzipDataArePadding) {
  const std::string whole = gzip("{\"a\": 1}\n");
  for (const std::size_t zeros : {std::size_t{1}, std::size_t{512}, std::size_t{3} << 20})
    EXPECT_THAT(read("a.jsonl.gz", whole + std::string(zeros, '\0')), ElementsAre("line 1: {\"a\": 1}"))
        << zeros;
  EXPECT_THAT(read("a.jsonl.gz", whole + std::string(5, '\0') + "sign"),
              testing::Contains(str("corrupt a.jsonl.gz: 4 bytes behind the gzip data, from byte ",
                                    whole.size() + 5, ": is the file complete?")));
  EXPECT_THAT(read("a.jsonl.gz", whole + "x").back(), HasSubstr("1 byte behind the gzip data"));
  EXPECT_THAT(read("a.jsonl.gz", std::string(9, '\0')).back(), HasSubstr("is damaged"));
}

struct GzipCacheTest : testing::Test {
  std::vector<std::int32_t> tokens(const std::string& name, const std::string& bytes) {
    io.put(name, bytes);
    cache = must(TokenCache::open_or_build(io, tokenizer, {name}, "cache.tokens"));
    std::vector<std::int32_t> ids;
    for (std::uint64_t i = 0; i < cache->n_tokens(); ++i) ids.push_back(cache->token(i));
    return ids;
  }
  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = must(Tokenizer::train(std::vector<std::string_view>{"a text about texts"}, 260));
  std::unique_ptr<TokenCache> cache;
};

TEST_F(GzipCacheTest, ATextAndRecordsHaveTheTokensOfTheirUncompressedFiles) {
  std::string text;
  while (text.size() < (std::size_t{5} << 20)) text += str("a text about text ", text.size(), "\n");
  EXPECT_EQ(tokens("a.txt.gz", gzip(text)), tokens("a.txt", text));
  EXPECT_EQ(cache->source_bytes(), text.size());
  const std::string records = "[{\"text\": \"a\"}, {\"text\": \"b\"}]";
  EXPECT_EQ(tokens("a.json.gz", gzip(records)), tokens("a.json", records));
}

TEST_F(GzipCacheTest, ACacheIsOfTheFileAndOfHowItIsRead) {
  tokens("a.txt", "{\"text\": \"b\"}");
  tokens("a.txt", "{\"text\": \"b\"}");
  EXPECT_EQ(cache->rebuild_reason(), "");
  tokens("a.json", "{\"text\": \"b\"}");
  EXPECT_EQ(cache->rebuild_reason(), "built from other text");
}

TEST_F(GzipCacheTest, ACacheOfInstructionsIsOfTheTemplateThatWritesThem) {
  io.put("a.json", "[{\"instruction\": \"a\", \"output\": \"b\"}]");
  const auto open = [&](const ChatTemplate& chat) {
    return must(TokenCache::open_or_build(io, tokenizer, {"a.json"}, "c.tokens", chat));
  };
  open(ChatTemplate());
  const auto again = open(ChatTemplate());
  EXPECT_EQ(again->rebuild_reason(), "");
  EXPECT_THAT(again->notes(), ElementsAre(HasSubstr("a.json: Alpaca records (instruction, output)")));
  const ChatTemplate turns =
      must(ChatTemplate::parse("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                               "{% if add_generation_prompt %}assistant: {% endif %}",
                               {}));
  EXPECT_EQ(open(turns)->rebuild_reason(), "built with another chat template");
}

TEST(DataFolderTest, ItsRecordsAreItsDataAndTheRestIsNamed) {
  MemoryIo io;
  const auto files = [&](std::string* noted) {
    return data_files_of(io, "d", DataSplit::train, [&](const std::string& note) { *noted += note; });
  };
  std::string noted;
  EXPECT_FALSE(files(&noted).has_value());
  for (const char* name :
       {"d/b.jsonl", "d/a.json.gz", "d/README.md", "d/dataset_info.json", "d/LICENSE.txt", "d/.x.json"})
    io.put(name, "x");
  EXPECT_THAT(must(files(&noted)), ElementsAre("d/a.json.gz", "d/b.jsonl"));
  EXPECT_EQ(noted, "d: not read: LICENSE.txt, README.md, dataset_info.json");
}

struct DataSplitTest : testing::Test {
  /// The files and the notes, each in brackets.
  std::vector<std::string> files(const std::vector<const char*>& names, DataSplit split) {
    MemoryIo io;
    for (const char* const name : names) io.put(str("d/", name), "x");
    std::vector<std::string> notes;
    const auto found = data_files_of(io, "d", split, [&](const std::string& note) { notes.push_back(note); });
    std::vector<std::string> all =
        found.has_value() ? *found : std::vector<std::string>{std::string(found.status().message())};
    for (const std::string& note : notes) all.push_back(str("[", note, "]"));
    return all;
  }
};

TEST_F(DataSplitTest, TrainingLeavesOutWhatANameHoldsOut) {
  EXPECT_THAT(files({"train.jsonl", "test.jsonl", "validation.jsonl"}, DataSplit::train),
              ElementsAre("d/train.jsonl",
                          "[d: not trained on, by their names: test.jsonl, validation.jsonl; data.val=d "
                          "evaluates on such, and data.train=FILE,... trains on any]"));
  for (const char* const held : {"dev.json", "val-00.jsonl.gz", "Eval.jsonl", "qa_test.jsonl",
                                 "a.valid.jsonl", "test2.jsonl", "evaluation.jsonl", "testing_1.jsonl"})
    EXPECT_EQ(files({"notes.jsonl", held}, DataSplit::train).at(0), "d/notes.jsonl") << held;
  for (const char* const kept :
       {"latest.jsonl", "values.jsonl", "developers.jsonl", "contest.jsonl", "train_test.jsonl"})
    EXPECT_EQ(files({"aaa.jsonl", kept}, DataSplit::train).size(), 2u) << kept;
  EXPECT_THAT(files({"test.jsonl"}, DataSplit::train), ElementsAre("d/test.jsonl"));
  EXPECT_THAT(files({"train.txt", "test.txt"}, DataSplit::train), testing::Contains("d/train.txt"));
}

TEST_F(DataSplitTest, AnEvaluationReadsWhatANameHoldsOut) {
  EXPECT_THAT(files({"train.jsonl", "test.jsonl", "val.jsonl"}, DataSplit::validation),
              ElementsAre("d/val.jsonl",
                          "[d: not evaluated on: test.jsonl, train.jsonl; name files to choose others]"));
  EXPECT_EQ(files({"train.jsonl", "test.jsonl"}, DataSplit::validation).at(0), "d/test.jsonl");
  EXPECT_THAT(files({"a.jsonl", "b.jsonl"}, DataSplit::validation), ElementsAre("d/a.jsonl", "d/b.jsonl"));
}

TEST_F(DataSplitTest, AFileBesideItsOwnGzipDataIsRefused) {
  EXPECT_THAT(
      files({"a.jsonl", "train.jsonl", "train.jsonl.gz"}, DataSplit::train),
      ElementsAre("d: train.jsonl and train.jsonl.gz are the same data twice: remove one, or name the "
                  "files"));
  EXPECT_THAT(files({"a.jsonl", "test.jsonl", "test.jsonl.gz"}, DataSplit::train),
              testing::Contains("d/a.jsonl"))
      << "of what is not read it does not matter";
}

}  // namespace
}  // namespace strata
