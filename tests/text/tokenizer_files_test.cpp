#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/text/tokenizer.h>
#include <strata/runtime/str.h>
#include <support/memory_io.h>
#include <support/temp_dir.h>

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer small_tokenizer() {
  const std::vector<std::string_view> texts = {"the theme of the thesis, the \"theory\""};
  return must(Tokenizer::train(texts, 260));
}
struct Files {
  std::string vocab, merges;
};
Files small_files() {
  MemoryIo io;
  must(small_tokenizer().save_vocab_and_merges(io, "gpt2"));
  return {io.get("gpt2/vocab.json"), io.get("gpt2/merges.txt")};
}

TEST(VocabAndMergesTest, AFolderRoundTrips) {
  MemoryIo io;
  must(small_tokenizer().save_vocab_and_merges(io, "gpt2"));
  EXPECT_EQ(must(Tokenizer::load(io, "gpt2")).digest(), small_tokenizer().digest());
}

TEST(VocabAndMergesTest, AFolderWithoutATokenizerSaysWhichFilesItLacks) {
  const test::TempDir dir;
  const Status status = Tokenizer::load(posix_io(), dir.file("")).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(" has no tokenizer.json, and no vocab.json with merges.txt"));
}

TEST(VocabAndMergesTest, LinesMayEndWithCrlf) {
  const Files files = small_files();
  std::string merges;
  for (const char c : files.merges) merges += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_EQ(must(Tokenizer::from_vocab_and_merges(files.vocab, merges)).digest(), small_tokenizer().digest());
}

TEST(VocabAndMergesTest, TheConfigurationDeterminesTheFamily) {
  const Files files = small_files();
  TokenizerConfig config;
  config.tokenizer_class = "Qwen2TokenizerFast";
  const Tokenizer qwen = must(Tokenizer::from_vocab_and_merges(files.vocab, files.merges, config));
  EXPECT_EQ(qwen.spec().split, SplitRule::qwen2);
  EXPECT_TRUE(qwen.spec().nfc);
}

TEST(VocabAndMergesTest, TheConfigurationAddsTokens) {
  const Files files = small_files();
  TokenizerConfig config;
  config.bos_token = "<s>";
  config.add_bos_token = true;
  config.added = {{.id = 260, .content = "<s>"}, {.id = 261, .content = "<think>", .special = false}};
  const Tokenizer tokenizer = must(Tokenizer::from_vocab_and_merges(files.vocab, files.merges, config));
  EXPECT_EQ(tokenizer.vocab_size(), 262);
  EXPECT_THAT(tokenizer.encode("<think>a", SpecialTokens::as_text, AddSpecialTokens::yes),
              ElementsAre(260, 261, 'a'));
}

TEST(VocabAndMergesTest, AFolderWithTokenizerJsonIsReadByThat) {
  MemoryIo io;
  io.put("hf/vocab.json", "damaged");
  io.put("hf/merges.txt", "");
  must(small_tokenizer().save(io, "hf/tokenizer.json"));
  EXPECT_EQ(must(Tokenizer::load(io, "hf")).digest(), small_tokenizer().digest());
}

TEST(VocabAndMergesTest, ATokenizerThatTheTwoFilesCannotExpressIsNotWritten) {
  MemoryIo io;
  TokenizerSpec spec = small_tokenizer().spec();
  spec.nfc = true;
  EXPECT_EQ(must(Tokenizer::create(spec)).save_vocab_and_merges(io, "x").code(), Code::unsupported);
  spec.nfc = false;
  spec.added[0].special = false;
  EXPECT_THAT(std::string(must(Tokenizer::create(spec)).save_vocab_and_merges(io, "x").message()),
              HasSubstr("the added token '<|endoftext|>'"));
}

struct Damage {
  std::string what;
  std::string file, from, to;
  std::string message;
};
std::vector<Damage> damages() {
  return {
      Damage{"VocabNoJson", "vocab.json", "{", "(", "vocab.json: not JSON"},
      Damage{"VocabList", "vocab.json", "{", "[1]", "vocab.json: not JSON"},
      Damage{"VocabKeyTwice", "vocab.json", "\"A\": 65", "\"A\": 65, \"A\": 65",
             "duplicate key 'A' in an object"},
      Damage{"VocabSparse", "vocab.json", "\"A\": 65", "\"A\": 650", "has id 650 among 260 tokens"},
      Damage{"VocabNoByte", "vocab.json", "\"A\"", "\"\\u65e5\"", "represents no byte"},
      Damage{"VocabIdText", "vocab.json", "\"A\": 65", "\"A\": \"65\"", "token 'A' has the id \"65\""},
      Damage{"VocabEndIdText", "vocab.json", "\"<|endoftext|>\": 259", "\"<|endoftext|>\": -1",
             "token '<|endoftext|>' has the id -1"},
      Damage{"MergesOneWord", "merges.txt", "h e", "he", "merges.txt: line 2 is 'he', not two tokens"},
      Damage{"MergesThreeWords", "merges.txt", "h e", "h e x", "line 2 is 'h e x', not two tokens"},
      Damage{"MergesEmptyLine", "merges.txt", "h e\n", "\nh e\n", "line 2 is '', not two tokens"},
      Damage{"MergesUnknown", "merges.txt", "h e", "h zz", "line 2: merge 0 refers to 'zz'"},
      Damage{"MergesNoResult", "merges.txt", "h e", "Q Q", "merge 0 produces 'QQ'"},
      Damage{"MergesTwice", "merges.txt", "h e\n", "h e\nh e\n", "of 'he' occurs twice"},
      Damage{"ConfigNoJson", "tokenizer_config.json", "{", "", "tokenizer_config.json: not JSON"},
      Damage{"ConfigClass", "tokenizer_config.json", "GPT2", "Bert", "tokenizer_class 'BertTokenizer'"},
      Damage{"ConfigClassNumber", "tokenizer_config.json", "\"GPT2Tokenizer\"", "2", "tokenizer_class is 2"},
      Damage{"ConfigEosUnknown", "tokenizer_config.json", "<|endoftext|>", "<|stop|>", "names '<|stop|>'"},
      Damage{"ConfigEosNumber", "tokenizer_config.json", "\"<|endoftext|>\"", "[5]",
             "eos_token is [5], not a token"},
      Damage{"ConfigPrefixSpace", "tokenizer_config.json", "{", "{\"add_prefix_space\": true, ",
             "add_prefix_space"},
      Damage{"ConfigBos", "tokenizer_config.json", "{", "{\"add_bos_token\": true, ", "without a bos_token"},
      Damage{"ConfigAddedList", "tokenizer_config.json", "{", "{\"added_tokens_decoder\": [], ",
             "is [], not an object"},
      Damage{"ConfigAddedKey", "tokenizer_config.json", "{",
             "{\"added_tokens_decoder\": {\"x1\": {\"content\": \"<a>\"}}, ", "'x1' is not a token id"},
      Damage{"ConfigAddedNoContent", "tokenizer_config.json", "{",
             "{\"added_tokens_decoder\": {\"260\": {}}, ", "lacks a content"},
      Damage{"ConfigAddedSparse", "tokenizer_config.json", "{",
             "{\"added_tokens_decoder\": {\"700\": {\"content\": \"<a>\"}}, ", "has id 700 among 261 tokens"},
      Damage{"ConfigTemplate", "tokenizer_config.json", "{", "{\"chat_template\": 1, ", "chat_template is 1"},
      Damage{"ConfigTemplates", "tokenizer_config.json", "{", "{\"chat_template\": [{}], ", "lacks a name"}};
}

TEST(VocabAndMergesDamageTest, IsRefusedByName) {
  for (const Damage& given : damages()) {
    SCOPED_TRACE(given.what);
    MemoryIo io;
    must(small_tokenizer().save_vocab_and_merges(io, "hf"));
    io.put("hf/tokenizer_config.json",
           R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"})");
    std::string text = io.get("hf/" + given.file);
    const std::size_t at = text.find(given.from);
    ASSERT_NE(at, std::string::npos) << "nothing was damaged";
    io.put("hf/" + given.file, text.replace(at, given.from.size(), given.to));
    const Status status = Tokenizer::load(io, "hf").status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(given.message)) << status.to_string();
  }
}

TEST(TokenizerConfigTest, IsReadFromAFolder) {
  MemoryIo io;
  io.put("hf/tokenizer_config.json",
         R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
    "pad_token": null, "chat_template": [{"name": "tool_use", "template": "A"}, {"name": "default", "template": "B"}],
    "added_tokens_decoder": {"9": {"content": "<x>", "special": true}, "8": {"content": "<y>", "rstrip": true}}})");
  const TokenizerConfig config = must(load_tokenizer_config(io, "hf"));
  EXPECT_EQ(config.bos_token, "<s>");
  EXPECT_EQ(config.eos_token, "</s>");
  EXPECT_EQ(config.pad_token, "");
  EXPECT_EQ(config.chat_template, "B");
  ASSERT_EQ(config.added.size(), 2u);
  EXPECT_EQ(config.added[0].id, 8);
  EXPECT_TRUE(config.added[0].rstrip && config.added[0].normalized && !config.added[0].special);
}

TEST(TokenizerConfigTest, NamedTemplatesWithoutADefaultRefuseConversations) {
  const TokenizerConfig config =
      must(parse_tokenizer_config(R"({"chat_template": [{"name": "tool_use", "template": "A"}]})"));
  EXPECT_THAT(config.chat_template,
              HasSubstr("the folder has the chat templates tool_use, and none is the default"));
}

TEST(TokenizerConfigTest, ATemplateInASeparateFileTakesPrecedence) {
  MemoryIo io;
  io.put("hf/tokenizer_config.json", R"({"chat_template": "A"})");
  io.put("hf/chat_template.jinja", "B");
  EXPECT_EQ(must(load_tokenizer_config(io, "hf")).chat_template, "B");
}

TEST(GenerationConfigTest, EosIsOneOrSeveralIds) {
  EXPECT_THAT(must(parse_generation_config(R"({"eos_token_id": 7})")).eos, ElementsAre(7));
  const GenerationConfig several =
      must(parse_generation_config(R"({"eos_token_id": [7, 9], "bos_token_id": 1, "top_k": 5})"));
  EXPECT_THAT(several.eos, ElementsAre(7, 9));
  EXPECT_EQ(several.bos, 1);
  EXPECT_FALSE(several.pad.has_value());
}

TEST(GenerationConfigTest, AnAbsentFileSaysNothing) {
  MemoryIo io;
  EXPECT_TRUE(must(load_generation_config(io, "hf")).eos.empty());
}

TEST(GenerationConfigTest, AnInvalidIdIsRefusedByName) {
  for (const std::string value : {"-1", "\"7\"", "[7, null]", "1.5", "4294967296", "{}"})
    EXPECT_THAT(
        std::string(parse_generation_config(str("{\"eos_token_id\": ", value, "}")).status().message()),
        HasSubstr("eos_token_id is "))
        << value;
}

}  // namespace
}  // namespace strata
